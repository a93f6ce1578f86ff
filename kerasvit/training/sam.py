"""SAM: sharpness-aware minimisation for any Keras model."""

import inspect

import keras
import numpy as np

from kerasvit.arguments import integer
from kerasvit.backend import TrainStep
from kerasvit.backend.keras_internals import compute_loss
from kerasvit.backend.stateless import lend_compiled

from .checks import check_model
from .radius import Radius, is_number, number_or_schedule
from .vectors import all_finite, ascend, only_if

SERIALIZED = {"model", "rho"}  # settings that are objects of Keras, or may be


@keras.saving.register_keras_serializable("kerasvit")
class SAM(TrainStep, keras.Model):
    """Trains a model towards flat minima, where nearby weights have a low loss too.

    Plain training lowers the loss L(w). Sharpness-aware minimisation lowers the worst
    loss within a distance rho of w, for which one step up the gradient is enough:

        g  = ∇L(w)                      first pass, as in plain training
        w' = w + rho · g / ‖g‖₂         one norm over all trainable weights together
        g' = ∇L(w')                     second pass: same batch, same dropout masks
        w  ← optimizer(w, g')           clipping, decay and momentum see g' alone

    So a step costs two forward and two backward passes, and about one more copy of the
    weights in memory. The model's weights are written by the optimizer only. State is
    kept as in the authors' code (google-research/sam,
    sam_jax/training_utils/flax_training.py): moving statistics are those of the first
    pass, and random seeds advance once a step. One deliberate difference: the loss and
    metrics reported are those of the first pass too, at w and not at w'.

        trainer = kerasvit.SAM(model, rho=0.05)
        trainer.compile("sgd", loss)
        trainer.fit(x, y)               # and `model` holds the trained weights

    Shape: inputs and outputs are the model's.

    Args:
        model: Built `keras.Model`, compiled or not. Its own `compute_loss`,
            `compute_metrics` and `metrics` are used; its variables are shared.
        rho: Radius of the neighbourhood, a distance between all weights as one vector;
            ≥ 0. The paper's grid is 0.01 to 0.5, with 0.05 as default. 0 is plain
            training, in one pass. Or a `keras.optimizers.schedules`
            `LearningRateSchedule`: each step calls it with `optimizer.iterations` and
            takes 0 for a negative value, in two passes. May be assigned between steps.
            A step is compiled again only from or to the number 0, and for another
            schedule. Files of weights do not have it; `.keras` files do.
        perturbation: Where a batch is spread over devices, "local", the papers' rule:
            every device climbs along the gradient of its own part; or "global", along
            the mean gradient, as one device would. The optimizer gets the mean over
            devices either way. On one device they are the same.
        micro_batches: In how many parts, n, each device takes its batch, one after the
            other in the memory of one: each climbs along its own gradient, and the
            optimizer gets the mean (m-sharpness with m = batch / n, which the paper
            finds the better the smaller m is, section 4.1). A part draws its own masks;
            moving statistics are the mean over parts. The loss must be a mean over
            samples, as Keras's are: of sums over a part, too, the mean is taken. What
            takes memory once is activations: on JAX the parts are a compiled loop, on
            TensorFlow a part waits for the one before, and PyTorch has freed its graph.
        every: k, for SAM at every k-th update by the optimizer only, beginning with the
            first, and plain steps between: 1 + 1/k passes on average. A batch that the
            optimizer leaves out, for an overflow, does not count.
        name: Name of the trainer.

    With `gradient_accumulation_steps` every batch has a perturbation of its own, from
    the weights of the last update, and the optimizer gets the mean. `save_weights`
    keeps the optimizer, the seeds of dropout and the place in `every`, too, so that
    training goes on from it as if it had not stopped. (On PyTorch, Keras draws from
    PyTorch's own generator where `Dropout` is given no seed; only seeds are kept.)

    Raises:
        ValueError: `model` is not a built `keras.Model`, or is itself a `SAM`, or has
            its own train, test or predict step, or wraps torch modules; a number is out
            of its range; Keras cannot do what is asked for, as accumulation under
            `tf.distribute.MirroredStrategy`.

    Reference: Foret et al. 2021, arXiv 2010.01412, equations 2 and 3, algorithm 1.
    """

    plain_at_zero = True  # whether `rho=0` is another step, that of plain training

    def __init__(
        self,
        model: keras.Model,
        rho: float = 0.05,
        *,
        perturbation: str = "local",
        micro_batches: int = 1,
        every: int = 1,
        name: str = "sam",
    ):
        if isinstance(model, SAM):
            raise ValueError(
                "`model` is a SAM already, and two passes around two passes are no "
                "method. Pass the plain model, `trainer.model`. Received: "
                f"model={model!r}."
            )
        check_model(model)
        # The model's policy decides on loss scaling in `compile`. Casting inputs is
        # left to the model.
        super().__init__(name=name, dtype=model.dtype_policy, autocast=False)
        self.model = model
        with self.variables_scope():
            self._radius = Radius(model, self.plain_at_zero)
        self.rho = rho
        if perturbation not in ("local", "global"):
            raise ValueError(
                '`perturbation` must be "local", each device\'s own, or "global". '
                f"Received: perturbation={perturbation!r}."
            )
        self.perturbation = perturbation
        meaning = "the parts that a batch is taken in"
        self.micro_batches = integer("micro_batches", micro_batches, 1, meaning=meaning)
        self.period = integer("every", every, 1, meaning="SAM at every so many updates")
        self.built = True

    def compile(self, *arguments, **options):
        """As Keras's; restarts the count of `every`."""
        super().compile(*arguments, **options)
        given = inspect.signature(keras.Model.compile).bind(self, *arguments, **options)
        self._automatic_jit = given.arguments.get("jit_compile", "auto") == "auto"
        self.batches = 0

    def get_compile_config(self):
        """As Keras's, but `jit_compile="auto"` stays "auto" for another backend.

        Keras writes what "auto" was on this backend. A trainer saved on JAX would spend
        minutes in `torch.compile` on PyTorch.
        """
        config = super().get_compile_config()
        if config and self._automatic_jit:
            config["jit_compile"] = "auto"
        return config

    def compile_from_config(self, config):
        """As Keras's, which needs it beside a custom `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    @property
    def every(self):
        """Number of optimizer updates from one SAM step to the next."""
        return self.period

    @property
    def rho(self):
        """Radius of the neighbourhood: a float, or the schedule."""
        return self._radius.given

    @rho.setter
    def rho(self, rho):
        rho = number_or_schedule(rho)
        compile_again = self._radius.replace(rho)
        if is_number(rho):
            self.assign_between_steps(self._radius.variable, rho)
        if compile_again and getattr(self, "train_function", None) is not None:
            self.make_train_function(force=True)

    def current_rho(self):
        """Returns the radius of the next step, a scalar tensor."""
        return self._radius.at(self)

    def step_constants(self):
        """Returns the variable of the radius, which a step reads."""
        return [self._radius.variable]

    def step_gradients(self, loss_and_gradients, weights, memory):
        """Returns the gradients for the optimizer: those at the perturbed weights."""
        if self._radius.plain:
            return loss_and_gradients(weights)[1], memory
        # No names for the first gradients and the perturbed weights: they make room.
        return self.gradients_above(
            loss_and_gradients,
            self.perturbed(weights, loss_and_gradients(weights)[1]),
        ), memory

    def perturbed(self, weights, gradients):
        """Returns the perturbed weights."""
        return ascend(weights, gradients, self.current_rho())

    def gradients_above(self, loss_and_gradients, above):
        """Returns gradients at perturbed weights; NaN if the first pass overflowed.

        Max-pooling on TensorFlow can hide that weights are NaN.
        """
        finite = all_finite(above)
        gradients = loss_and_gradients(above)[1]
        del above
        return only_if(finite, gradients)

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The model's own."""
        with lend_compiled(self, self.model) as model:
            return compute_loss(model, x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """The model's own."""
        with lend_compiled(self, self.model) as model:
            return model.compute_metrics(x, y, y_pred, sample_weight)

    def step_scope(self):
        """Returns the context in which the model has the trainer's loss and metrics."""
        return lend_compiled(self, self.model)

    @property
    def metrics(self):
        """The metrics given to `compile`, and the model's own."""
        with lend_compiled(self, self.model) as model:
            return model.metrics

    @property
    def output_names(self):
        """Names of the outputs, for losses and targets in a dictionary."""
        return self.model.output_names

    def save_own_variables(self, store):
        """Saves seeds, memory and the position in `every` for the next step."""
        store["batches"] = np.array(self.batches)
        for name, variable in self._own_variables():
            store[name] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store):
        """Loads what `save_own_variables` wrote, for variables that exist here."""
        if "batches" in store:
            self.batches = int(np.asarray(store["batches"]))
        if self.optimizer is not None and not self.optimizer.built:
            # It is loaded next, but without its variables Keras would leave it out.
            with self.variables_scope():
                self.optimizer.build(self.trainable_variables)
        for name, variable in self._own_variables():
            if name in store:
                variable.assign(np.asarray(store[name]))

    def _own_variables(self):
        seeds = (
            variable
            for variable in self.model.non_trainable_variables
            if variable.name == "seed_generator_state"
        )
        yield from ((f"seed_{i}", seed) for i, seed in enumerate(seeds))
        memory = self.memory_of(self.model.trainable_variables)
        yield from ((f"memory_{i}", each) for i, each in enumerate(memory))

    def summary(self, line_length=None, positions=None, print_fn=None, **options):
        """Prints a line on SAM and the table of the model's layers."""
        (print_fn or print)(f"{type(self).__name__}, rho={_shown(self.rho)}, around:")
        self.model.summary(line_length, positions, print_fn, **options)

    def export(self, filepath, *arguments, **options):
        """Exports the inner model by its own `export`."""
        return self.model.export(filepath, *arguments, **options)

    def settings(self) -> dict:
        """Returns the constructor's arguments without the model."""
        return {
            "rho": self.rho,
            "perturbation": self.perturbation,
            "micro_batches": self.micro_batches,
            "every": self.period,
            "name": self.name,
        }

    def __repr__(self):
        settings = {**self.settings(), "model": self.model.name}
        text = ", ".join(f"{name}={_shown(it)}" for name, it in settings.items())
        return f"<{type(self).__name__} {text}>"

    def get_config(self):
        """Returns the constructor's arguments."""
        config = {"model": self.model, **self.settings()}
        for name in SERIALIZED.intersection(config):
            config[name] = keras.saving.serialize_keras_object(config[name])
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Builds the trainer and its model from what `get_config` returned."""
        made = {
            name: keras.saving.deserialize_keras_object(config[name], custom_objects)
            for name in SERIALIZED.intersection(config)
        }
        return cls(**{**config, **made})


def _shown(setting):
    return repr(setting) if is_number(setting) else f"<{type(setting).__name__}>"
