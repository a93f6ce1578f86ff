"""SAM: sharpness-aware minimisation for any Keras model."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras.optimizers.schedules import LearningRateSchedule

from kerasvit.arguments import integer, one_of
from kerasvit.backend import TrainStep
from kerasvit.backend.train_step import Setting
from kerasvit.types import Gradients, LossAndGradients, Tensor

from .ascent import FEWEST, Ascent, Means, Passes, advice
from .radius import Radius, is_number, number_or_schedule
from .vectors import all_finite, ascend, norm, only_if
from .wrapper import ModelWrapper, check_model, head_of_zeros

_like: Any = functools.wraps  # its types would be those of calls of `keras.Model`
SERIALIZED = {"model", "rho"}  # settings that are, or may be, Keras objects


@keras.saving.register_keras_serializable("kerasvit")
class SAM(ModelWrapper, TrainStep):
    """Trains a model towards flat minima, where nearby weights have a low loss too.

    Plain training lowers the loss L(w). Sharpness-aware minimisation lowers the worst
    loss within a distance rho of w, which one step along the gradient approximates:

        g  = ∇L(w)                      first pass, as in plain training
        w' = w + rho · g / ‖g‖₂         one norm over all trainable weights together
        g' = ∇L(w')                     second pass: same batch, same dropout masks
        w  ← optimizer(w, g')           clipping, decay and momentum use g' alone

    A step costs two forward and two backward passes, and about one more copy of the
    weights in memory. Only the optimizer writes the model's weights. Other state is
    updated as in the authors' code (google-research/sam,
    sam_jax/training_utils/flax_training.py): moving statistics are those of the first
    pass, and random seeds advance once per step. One deliberate difference: the loss
    and metrics reported are those of the first pass too, at w and not at w'.

        trainer = kerasvit.SAM(model, rho=0.05)
        trainer.compile(keras.optimizers.AdamW(1e-3), loss)     # fresh weights
        trainer.fit(x, y, epochs=10)    # then `model` has the trained weights

    Shape: the model's inputs and outputs.

    Args:
        model: Built `keras.Model`, compiled or not. The trainer calls its
            `compute_loss`, `compute_metrics` and `metrics`, and shares its variables.
        rho: Radius of the neighbourhood, ≥ 0: the Euclidean distance between all
            weights as one vector. The paper's grid is 0.01 to 0.5, its default 0.05. 0
            is plain training, in one pass. Or a `keras.optimizers.schedules`
            `LearningRateSchedule`: each step calls it with `optimizer.iterations`, uses
            0 for a negative value, and always takes two passes. May be assigned between
            steps; the step is compiled again only for a change from or to the number 0
            and for a different schedule. `.keras` files store it, files of weights do
            not.
        perturbation: For a batch that is distributed over devices. "local", as in the
            papers: every device perturbs along the gradient of its own samples.
            "global": all perturb along the mean gradient, as one device would. The
            optimizer gets the mean over devices in both cases.
        micro_batches: Number of parts, n, of each device's batch. They are computed one
            after the other, so that activations take the memory of one part. Each part
            has its own perturbation and dropout masks. The optimizer gets the mean of
            the gradients (m-sharpness with m = batch / n, which the paper finds to be
            better for smaller m, section 4.1), and moving statistics are the mean too.
            The loss must be a mean over samples, as Keras's losses are by default.
        every: k, for SAM at every k-th update by the optimizer, beginning with the
            first, and plain steps between: 1 + 1/k passes on average. A batch that the
            optimizer skips because of an overflow does not count.
        diagnostics: Whether training reports, beside the loss and the metrics, two
            means over the steps of the epoch (and over `micro_batches` and devices):
            `sharpness`, L(w') − L(w), and `gradient_cosine`, the cosine between g and
            g', above 0 where the step descends. Steps with one pass and those that
            overflow are left out; NaN before an epoch's first other step. No further
            pass, but g is kept in memory until g' is known.
        name: Name of the trainer.

    `fit` warns, once, if its first epoch does not lower the loss because rho is too
    large, and names a radius to try; and if loaded weights have a head of zeros. SAM is
    attracted to saddles (arXiv 2301.06308, 2301.08203), and pretrained weights need
    about 0.002: kerasvit/training/README.md, "A radius that is too large".

    With `gradient_accumulation_steps` every batch has its own perturbation, from the
    weights of the last update, and the optimizer gets the mean. `save_weights` also
    saves the optimizer, the seeds of dropout and the position in `every`, so that a
    resumed training gives the same result as one that was not interrupted. (On PyTorch
    give `Dropout` a seed: the state of PyTorch's own generator is not saved.)

    Raises:
        ValueError: `model` is not a built `keras.Model`, or is itself a `SAM`, or has
            its own train, test or predict step, or wraps torch modules; a number is out
            of its range; Keras does not support the configuration, such as accumulation
            under `tf.distribute.MirroredStrategy`.

    Reference: Foret et al. 2021, arXiv 2010.01412, equations 2 and 3, algorithm 1.
    """

    micro_batches = Setting(
        lambda _, count: integer(
            "micro_batches", count, 1, meaning="the number of parts of a batch"
        )
    )
    plain_at_zero = True  # whether `rho=0` selects the step of plain training
    advises = True  # whether `fit` warns of a radius that is too large

    def __init__(
        self,
        model: keras.Model,
        rho: float | LearningRateSchedule = 0.05,
        *,
        perturbation: str = "local",
        micro_batches: int = 1,
        every: int = 1,
        diagnostics: bool = False,
        name: str = "sam",
    ) -> None:
        if isinstance(model, SAM):
            model.check_inside()
        else:
            check_model(model)
        # `compile` decides on loss scaling by the model's policy. The model itself
        # casts its inputs.
        super().__init__(name=name, dtype=model.dtype_policy, autocast=False)
        self.model = model
        with self.variables_scope():
            self._radius = Radius(model, self.plain_at_zero)
            self._ascent = Ascent()
        self.rho = rho
        self.perturbation = one_of("perturbation", perturbation, ("local", "global"))
        self.micro_batches = micro_batches
        meaning = "the number of updates from one SAM step to the next"
        self._every = integer("every", every, 1, meaning=meaning)
        self.diagnostics = bool(diagnostics)
        self._advice_due = False
        self._early: Means | None = None  # of the epochs of this `fit` so far
        self.built = True

    def check_inside(self) -> None:
        """Raises a `ValueError` for a trainer around this one; a subclass may not."""
        raise ValueError(
            "`model` is a SAM already, and a SAM around a SAM is not supported. "
            f"Pass the plain model, `trainer.model`. Received: model={self!r}."
        )

    def check_plain(self) -> None:
        """Raises a `ValueError` for settings that a trainer around would not use."""
        plain = {"rho": 0, "perturbation": "local", "micro_batches": 1, "every": 1}
        plain["diagnostics"] = False
        found = {name: getattr(self, name) for name in plain}
        if found != plain:
            raise ValueError(
                f"`model` is a {type(self).__name__} with settings of its own, which "
                "the trainer around it would not use. Give them to that one. Received: "
                f"{found}."
            )

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Compiles as Keras does, and restarts the count of `every`."""
        super().compile(*arguments, **options)
        bound = inspect.signature(keras.Model.compile).bind(self, *arguments, **options)
        self._automatic_jit = bound.arguments.get("jit_compile", "auto") == "auto"
        self.batches = 0

    def get_compile_config(self) -> dict[str, Any] | None:
        """Returns Keras's configuration, in which `jit_compile="auto"` stays "auto".

        Keras writes the value that "auto" has on the present backend. A trainer that is
        saved on JAX would then spend minutes in `torch.compile` on PyTorch.
        """
        config = super().get_compile_config()
        if config and self._automatic_jit:
            config["jit_compile"] = "auto"
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles from a configuration; Keras requires it for a custom `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    @property
    def every(self) -> int:
        """Number of optimizer updates from one SAM step to the next."""
        return self._every

    @property
    def rho(self) -> float | LearningRateSchedule:
        """Radius of the neighbourhood: a float, or the schedule."""
        return self._radius.given

    @rho.setter
    def rho(self, rho: float | LearningRateSchedule) -> None:
        rho = self._checked_rho(rho)
        compile_again = self._radius.replace(rho)
        if is_number(rho):
            self.assign_between_steps(self._radius.variable, rho)
        if compile_again and getattr(self, "train_function", None) is not None:
            self.make_train_function(force=True)

    def _checked_rho(self, rho: Any) -> float | LearningRateSchedule:
        return number_or_schedule(rho)

    def current_rho(self) -> Tensor:
        """Returns the radius of the next step, a scalar tensor."""
        return self._radius.at(self)

    def step_constants(self) -> list[keras.Variable]:
        """Returns the variable of the radius and those that the model reads."""
        return [self._radius.variable, *self.sums(), *super().step_constants()]

    def sums(self) -> list[keras.Variable]:
        """Returns the variable of sums over the steps of an epoch."""
        return [self._ascent.sums]

    def selected_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns the gradients of one micro-batch, and adds to the sums."""
        if not self.sums():
            return super().selected_gradients(loss_and_gradients, weights, slots)
        *slots, sums = slots
        passes = Passes(loss_and_gradients, self._ascent, self.diagnostics)
        gradients, slots = super().selected_gradients(passes, weights, slots)
        return gradients, [*slots, passes.added_to(sums)]

    def step_logs(self) -> dict[str, Tensor]:
        """Returns the means of `diagnostics`."""
        if not self.diagnostics or self._radius.plain:
            return {}
        _, rise, _, cosine, _, steps = keras.ops.unstack(self._ascent.sums.value)
        return {"sharpness": rise / steps, "gradient_cosine": cosine / steps}

    def ascent(self) -> Means:
        """Returns means over the steps since `reset_metrics`."""
        return self._ascent.means()

    def reset_metrics(self) -> None:
        """Resets the metrics, and the sums over the steps of an epoch."""
        super().reset_metrics()
        if self.sums():
            self._advise()
            sums = self._ascent.sums
            self.assign_between_steps(sums, np.zeros(sums.shape, "float32"))

    @_like(keras.Model.fit)
    def fit(self, *arguments: Any, **options: Any) -> Any:
        self.reset_metrics()
        perturbs = self.advises and not self._radius.plain
        if perturbs:
            found = head_of_zeros(innermost(self.model), self.trainable_variables)
            if found:
                warnings.warn(found, stacklevel=2)
        self._advice_due, self._early = perturbs and bool(self.sums()), None
        try:
            history = super().fit(*arguments, **options)
            self._advise()
            return history
        finally:
            self._advice_due = False

    def _advise(self) -> None:
        """Warns, once in `fit`, if the steps of its first epoch do not descend.

        Epochs count together until they have `FEWEST` steps with two passes.
        """
        if not self._advice_due:
            return
        self._early = self._ascent.means(self._early)
        if self._early.steps >= FEWEST:
            self._advice_due = False
            if text := advice(self._early, self.rho):
                warnings.warn(text, stacklevel=3)

    def step_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns the gradients for the optimizer: those at the perturbed weights."""
        if self._radius.plain:
            return loss_and_gradients(weights)[1], slots
        # The first gradients and the perturbed weights have no names, so that they are
        # freed as early as possible.
        return self.gradients_above(
            loss_and_gradients,
            self.perturbed(weights, loss_and_gradients(weights)[1]),
        ), slots

    def perturbed(self, weights: list[Tensor], gradients: Gradients) -> list[Tensor]:
        """Returns the perturbed weights."""
        length, rho = norm(gradients), self.current_rho()
        self._ascent.begin(rho, length)
        return ascend(weights, gradients, rho, length)

    def gradients_above(
        self, loss_and_gradients: LossAndGradients, above: list[Tensor]
    ) -> Gradients:
        """Returns gradients at perturbed weights; NaN if the first pass overflowed.

        Max-pooling on TensorFlow may give finite values for weights that are NaN.
        """
        finite = all_finite(above)
        gradients = loss_and_gradients(above)[1]
        del above
        return only_if(finite, gradients)

    def save_own_variables(self, store: Any) -> None:
        """Saves seeds, slot variables and the position in `every` for the next step."""
        store["batches"] = np.array(self.batches)
        for name, variable in self._saved_variables():
            store[name] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Loads what `save_own_variables` wrote, for variables that exist here."""
        if "batches" in store:
            self.batches = int(np.asarray(store["batches"]))
        optimizer = getattr(self, "optimizer", None)  # an inner trainer has none
        if optimizer is not None and not optimizer.built:
            # Keras loads the optimizer next, and skips one without variables.
            with self.variables_scope():
                optimizer.build(self.trainable_variables)
        for name, variable in self._saved_variables():
            if name in store:
                variable.assign(np.asarray(store[name]))

    def _saved_variables(self) -> Iterator[tuple[str, keras.Variable]]:
        seeds = (
            variable
            for variable in self.variables
            if variable.name == "seed_generator_state"
        )
        yield from ((f"seed_{i}", seed) for i, seed in enumerate(seeds))
        slots = self.slots_of(self.model.trainable_variables)
        # Files of version 0.1 have this name.
        yield from ((f"memory_{i}", slot) for i, slot in enumerate(slots))

    def summary(
        self,
        line_length: int | None = None,
        positions: list[float] | None = None,
        print_fn: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        """Prints a line about the trainer and the table of the model's layers."""
        (print_fn or print)(f"{type(self).__name__}, rho={_shown(self.rho)}, around:")
        self.model.summary(line_length, positions, print_fn, **options)

    def settings(self) -> dict[str, Any]:
        """Returns the constructor's arguments without the model."""
        settings = {
            "rho": self.rho,
            "perturbation": self.perturbation,
            "micro_batches": self.micro_batches,
            "every": self._every,
            "name": self.name,
        }
        # Only if asked for, so that earlier versions load the files of other trainers.
        return {**settings, "diagnostics": True} if self.diagnostics else settings

    def __repr__(self) -> str:
        settings = {**self.settings(), "model": self.model.name}
        text = ", ".join(f"{name}={_shown(v)}" for name, v in settings.items())
        return f"<{type(self).__name__} {text}>"

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = {"model": self.model, **self.settings()}
        for name in SERIALIZED.intersection(config):
            config[name] = keras.saving.serialize_keras_object(config[name])
        return config

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "SAM":
        """Builds the trainer and its model from what `get_config` returned."""
        objects = {
            name: keras.saving.deserialize_keras_object(config[name], custom_objects)
            for name in SERIALIZED.intersection(config)
        }
        return cls(**{**config, **objects})


def innermost(model: keras.Model) -> keras.Model:
    """Returns the model inside of trainers."""
    return innermost(model.model) if isinstance(model, SAM) else model


def _shown(setting: Any) -> str:
    return repr(setting) if is_number(setting) else f"<{type(setting).__name__}>"
