"""Optimizers whose learning rate is multiplied by a factor for each weight."""

import functools
from collections.abc import Iterator
from typing import Any

import keras

from kerasvit.types import Gradients, Tensor

# {path of a weight: (factor of its learning rate, whether it decays)}
Rates = dict[str, tuple[float, bool]]


def with_rates(optimizer: keras.Optimizer, rates: Rates) -> keras.Optimizer:
    """Returns an optimizer like another one, with a factor for each weight.

    Args:
        optimizer: Optimizer whose settings are copied, without its variables.
        rates: One entry for each weight, in the order of the model's weights.

    Raises:
        ValueError: The optimizer has factors, or chooses optimizers by a function.
    """
    again = functools.partial(with_rates, rates=rates)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return type(optimizer)(
            again(optimizer.inner_optimizer),
            optimizer.initial_scale,
            optimizer.dynamic_growth_steps,
            name=optimizer.name,
        )
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        inner = optimizer._optimizer_map
        if not isinstance(inner, keras.optimizers.OptimizerMap):
            raise ValueError(
                "A MultiOptimizer must have a keras.optimizers.OptimizerMap. Received: "
                f"{inner!r}. Or call `layer_decay` for each of its optimizers."
            )
        made = {id(each): again(each) for each in optimizer.optimizers}
        chosen = {key: made[id(each)] for key, each in inner.items()}
        default = made[id(inner.default_optimizer)]
        return type(optimizer)(
            keras.optimizers.OptimizerMap(default, chosen),
            loss_scale_factor=optimizer.loss_scale_factor,
            name=optimizer.name,
        )
    if isinstance(optimizer, LayerRates):
        raise ValueError(
            "`optimizer` has learning rates by layer already. Pass the optimizer from "
            f"which it was made. Received: {optimizer!r}."
        )
    base: Any = type(optimizer)
    return _with_rates(base).around(optimizer, rates)


def decays(optimizer: keras.Optimizer, variable: keras.Variable) -> bool:
    """Returns whether `exclude_from_weight_decay` has not named a variable."""
    # `_use_weight_decay` would write its result into the optimizer.
    keys: set = getattr(optimizer, "_exclude_from_weight_decay", set())
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    named = pattern is not None and pattern.search(variable.name)
    return not named and optimizer._var_key(variable) not in keys


@keras.saving.register_keras_serializable("kerasvit")
class LayerRates(keras.Optimizer):
    """Base of optimizers with factors, before the class of the optimizer.

    A file contains the name of this class, because the subclass for each class of
    optimizers is made when it is needed.
    """

    _base: dict[str, Any]  # class of the optimizer, serialised
    _rates: Rates
    _factors: tuple[float, ...]  # of the trained weights
    # Of the group of weights that decay at present. The methods of all optimizers and
    # backends read the rate of weight decay from `learning_rate`.
    _factor = 1.0

    @classmethod
    def around(cls, optimizer: keras.Optimizer, rates: Rates) -> "LayerRates":
        """Returns an optimizer of this class with the settings of another one."""
        config = optimizer.get_config()
        if not isinstance(optimizer._learning_rate, keras.Variable):
            # The schedule itself: its class need not be registered.
            config["learning_rate"] = optimizer._learning_rate
        new = super().from_config(config)
        base = keras.saving.serialize_keras_object(optimizer)
        del base["config"]
        if (base["module"] or "").startswith("keras."):
            # PyTorch's own version of a class is not public; other backends lack it.
            base.update(module="keras.optimizers", registered_name=None)
        # TensorFlow wraps dictionaries that are set as attributes.
        vars(new).update(_base=base, _rates=rates)
        return new

    def build(self, variables: list[keras.Variable]) -> None:
        """Builds for the weights of the model, or for some of them.

        Raises:
            ValueError: A weight has no factor.
        """
        rates = self._rates_of(variables)
        self._factors = tuple(factor for factor, _ in rates)
        excluded = [
            v for v, (_, decays) in zip(variables, rates, strict=True) if not decays
        ]
        if excluded and not hasattr(self, "_exclude_from_weight_decay"):
            self.exclude_from_weight_decay(var_list=excluded)
        super().build(variables)

    def _rates_of(self, variables: list[keras.Variable]) -> list[tuple[float, bool]]:
        paths = [variable.path for variable in variables]
        if len({*paths} & self._rates.keys()) == len(paths):
            return [self._rates[path] for path in paths]
        # The layers inside a Sequential, loaded from a file, have paths without its
        # name. The order is the same.
        known, found = iter(self._rates.items()), []
        for path in paths:
            for full, rate in known:
                if full == path or full.endswith(f"/{path}"):
                    found.append(rate)
                    break
            else:
                raise ValueError(
                    "The optimizer must train weights of the model that `layer_decay` "
                    f"received. Received another: {path}. Call `layer_decay` with this "
                    "model, after all its layers have been added."
                )
        return found

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        """Updates a weight with its own learning rate."""
        rate = learning_rate * self._factor_of(variable)
        super().update_step(gradient, variable, rate)

    def _backend_update_step(
        self, grads: Gradients, trainable_variables: list, learning_rate: Tensor
    ) -> None:
        step = super()._backend_update_step
        if not hasattr(self, "_parallel_update_step"):
            step(grads, trainable_variables, learning_rate)
            return
        # Keras's optimizers on PyTorch update a list of weights at once, without
        # `update_step`. Each call advances Nadam's product, which all weights share.
        gradients = dict(zip(map(id, trainable_variables), grads, strict=True))
        product = getattr(self, "_u_product", None)
        start = None if product is None else product.value.clone()
        for factor, group in self._by_factor(trainable_variables):
            if product is not None:
                product.assign(start)
            step([gradients[id(v)] for v in group], group, learning_rate * factor)

    def _apply_weight_decay(self, variables: list) -> None:
        # Keras on PyTorch raises an error for an empty list.
        decayed = [v for v in variables if self._use_weight_decay(v)]
        try:
            for factor, group in self._by_factor(decayed):
                self._factor = factor
                super()._apply_weight_decay(group)
        finally:
            self._factor = 1.0

    def _get_current_learning_rate(self) -> Any:
        rate = super()._get_current_learning_rate()
        return rate if self._factor == 1 else rate * self._factor

    def _factor_of(self, variable: Any) -> float:
        return self._factors[self._get_variable_index(variable)]

    def _by_factor(self, variables: list) -> Iterator[tuple[float, list]]:
        groups: dict[float, list] = {}
        for variable in variables:
            groups.setdefault(self._factor_of(variable), []).append(variable)
        yield from groups.items()

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration of the optimizer, and the rates."""
        return {
            "optimizer": {**self._base, "config": super().get_config()},
            "rates": self._rates,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> keras.Optimizer:
        """Builds the optimizer from what `get_config` returned."""
        # `keras.optimizers.deserialize` does not know all of Keras's optimizers.
        optimizer = keras.saving.deserialize_keras_object(
            config["optimizer"], custom_objects
        )
        return with_rates(optimizer, config["rates"])


@functools.cache
def _with_rates(base: type[keras.Optimizer]) -> type[LayerRates]:
    """Returns the subclass of a class of optimizers that has factors."""
    new = type(f"LayerDecay{base.__name__}", (LayerRates, base), {})
    return keras.saving.register_keras_serializable("kerasvit", "LayerRates")(new)
