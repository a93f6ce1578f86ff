"""Optimizer, learning rate by its steps, and loss of a training."""

import re

import keras
from training.training_data import has_soft_labels

import kerasvit

CLASSES = {
    "adamw": kerasvit.AdamW,
    "sgd": keras.optimizers.SGD,
    "adam": keras.optimizers.Adam,
    "nadam": keras.optimizers.Nadam,
    "lamb": keras.optimizers.Lamb,
    "lion": keras.optimizers.Lion,
    "muon": keras.optimizers.Muon,
    "rmsprop": keras.optimizers.RMSprop,
    "adafactor": keras.optimizers.Adafactor,
}
ARGUMENTS = {  # not Keras's defaults
    "sgd": {"momentum": 0.9},
    # Muon's paper and Keras's docstring: the last layer is trained by AdamW.
    "muon": {"exclude_layers": [r"(^|/)head(_distillation)?/"]},
    "adafactor": {"relative_step": False},  # its own schedule instead of ours
}
KERNELS = re.compile("kernel|lora_kernel_[ab]")  # names of weights


def make_optimizer(config, model, steps: int) -> keras.optimizers.Optimizer:
    """Returns the optimizer of the settings, with a schedule of `steps` steps.

    Args:
        config: Dataclass of the settings.
        model: Model to train, on its devices.
        steps: Steps of the training.

    Raises:
        ValueError: A setting does not fit to the model or to the number of steps.
    """
    arguments = {
        **ARGUMENTS.get(config.optimizer, {}),
        **accumulation(schedule(config, steps), config.accumulate),
        "global_clipnorm": config.clip or None,
    }
    if config.ema:
        # Keras averages after each batch of `fit`, and n of them are a step.
        momentum = config.ema ** (1 / config.accumulate)
        arguments |= {"use_ema": True, "ema_momentum": momentum}
    if config.momentum is not None:
        arguments["momentum"] = config.momentum
    still = [w for w in model.trainable_variables if not _may_decay(w, config)]
    weight_decay = config.weight_decay
    if len(still) == len(model.trainable_variables):
        weight_decay = 0  # Keras on PyTorch raises an error if nothing decays
    if weight_decay is not None:
        none = 0.0 if config.optimizer == "adamw" else None  # Keras demands a number
        arguments["weight_decay"] = weight_decay or none
        if config.optimizer == "muon":  # of the weights that AdamW trains
            arguments["adam_weight_decay"] = weight_decay or None
    optimizer = CLASSES[config.optimizer](**arguments)
    if config.no_decay:
        _check_no_decay(config.no_decay, optimizer, model)
    if optimizer.weight_decay:
        optimizer.exclude_from_weight_decay(var_list=still)
    return with_layer_decay(optimizer, model, config.layer_decay)


def _may_decay(weight, config):
    if config.no_decay and re.search(config.no_decay, weight.path):
        return False
    return config.decayed == "all" or KERNELS.fullmatch(weight.name)


def _check_no_decay(pattern, optimizer, model):
    paths = [weight.path for weight in model.trainable_variables]
    if not any(re.search(pattern, path) for path in paths):
        shown = f"{', '.join(paths[:3])} … {paths[-1]}"
        raise ValueError(
            f"`no_decay` matches no trained weight. Received: {pattern!r}, for the "
            f"weights {shown}."
        )
    if not optimizer.weight_decay:
        raise ValueError("`no_decay`: nothing decays. Give --weight-decay, too.")


def with_layer_decay(optimizer, model, decay):
    """Returns the optimizer with `kerasvit.layer_decay`, if decay is not None."""
    return kerasvit.layer_decay(optimizer, model, decay) if decay else optimizer


def loss_of(config, counts=None):
    """Returns the loss of the settings, for labels of `training_data.fit_options`.

    Args:
        config: Dataclass of the settings.
        counts: Number of training images of each class, for rare classes.
    """
    loss = _loss_of(config, counts)
    if config.class_weights:
        weights = kerasvit.class_weights(counts, config.class_weights)
        return WeightedLoss(loss, [*weights.values()])
    return loss


def _loss_of(config, counts):
    if config.task == "multilabel":
        return {
            None: keras.losses.BinaryCrossentropy,
            "sigmoid": keras.losses.BinaryCrossentropy,
            "focal": keras.losses.BinaryFocalCrossentropy,
        }.get(config.loss, _asymmetric)(from_logits=True)
    if config.loss == "sigmoid":
        return sigmoid
    if config.loss == "adjusted":
        return kerasvit.LogitAdjustedCrossentropy(counts)
    if config.loss == "focal":
        return keras.losses.CategoricalFocalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        )
    if not has_soft_labels(config):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=config.label_smoothing
    )


def _asymmetric(from_logits):
    return kerasvit.AsymmetricLoss()


class WeightedLoss(keras.losses.Loss):
    """A loss of images, each with the weight of its class.

    `fit(class_weight=...)` is not for data that are distributed over devices.

    Args:
        loss: Loss, or function, of labels and logits.
        weights: Weight of each class.
    """

    def __init__(self, loss, weights: list[float]):
        super().__init__(name="loss")
        if isinstance(loss, keras.losses.Loss):
            loss.reduction = "none"
        self.loss, self.weights = loss, weights

    def call(self, y_true, y_pred):
        """Returns one number for each image, shape (batch,)."""
        labels = y_true
        if y_true.shape != y_pred.shape:
            classes = keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32")
            labels = keras.ops.one_hot(classes, y_pred.shape[-1])
        weights = keras.ops.convert_to_tensor(self.weights, y_pred.dtype)
        each = keras.ops.sum(keras.ops.cast(labels, y_pred.dtype) * weights, axis=-1)
        return each * self.loss(y_true, y_pred)


def accuracy_of(config) -> keras.metrics.Metric:
    """Returns the accuracy, for labels of `training_data.fit_options`."""
    metrics = keras.metrics
    if config.task == "multilabel":
        return metrics.BinaryAccuracy(name="label_accuracy", threshold=0.0)
    if has_soft_labels(config):
        return metrics.CategoricalAccuracy(name="accuracy")
    return metrics.SparseCategoricalAccuracy(name="accuracy")


def sigmoid(labels, logits):
    """Returns the sum over classes of the binary cross-entropies, shape (batch,)."""
    each = keras.ops.binary_crossentropy(labels, logits, from_logits=True)
    return keras.ops.sum(each, axis=-1)


class SparseSigmoid(keras.losses.Loss):
    """The loss `sigmoid` of class indices (batch,) instead of one-hot labels."""

    def call(self, y_true, y_pred):
        """Returns one number for each image, shape (batch,)."""
        classes = keras.ops.cast(y_true, "int32")
        return sigmoid(keras.ops.one_hot(classes, y_pred.shape[-1]), y_pred)


def schedule(config, steps: int) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate of the settings for a training of `steps` steps.

    Raises:
        ValueError: The rate would decrease after the last step.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(
            # Without a `warmup_target` Keras starts from the first argument.
            peak * config.warmup_from if warmup else peak,
            steps - warmup,
            alpha=config.final_rate,
            warmup_target=peak if warmup else None,
            warmup_steps=warmup,
        )
    options = {"warmup_steps": warmup, "warmup_from": config.warmup_from}
    if config.schedule == "linear":
        return WarmupLinear(peak, steps=steps, final=config.final_rate, **options)
    at = [
        min(round(x * steps), steps - 1) if x < 1 else int(x) for x in config.decay_at
    ]
    if at[-1] >= steps:
        raise ValueError(
            f"`decay_at`: the training has {steps:,} steps. Received: {at[-1]:,}. Give "
            "smaller numbers, or shares of the steps, such as 0.33 0.67."
        )
    return WarmupSteps(peak, at=at, factor=config.decay_factor, **options)


def accumulation(rate, parts: int) -> dict:
    """Returns arguments of an optimizer that updates after each `parts` batches.

    Args:
        rate: Schedule of the learning rate, by updates.
        parts: Number of batches of an update.
    """
    if parts == 1:
        return {"learning_rate": rate}
    schedule = PerUpdate(rate, parts)
    return {"learning_rate": schedule, "gradient_accumulation_steps": parts}


class PerUpdate(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule by updates; Keras calls a schedule with the number of batches."""

    def __init__(self, schedule, parts: int):
        self.schedule, self.parts = schedule, parts

    def __call__(self, step):
        return self.schedule(step // self.parts)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {"schedule": self.schedule, "parts": self.parts}


class WarmupLinear(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly to a peak and falls linearly.

    Args:
        peak: Highest rate, at step number `warmup_steps`.
        steps: Steps of the training.
        warmup_steps: Steps of the warm-up; 0: the first step has the peak.
        final: Rate from step number `steps` on, as a share of the peak.
        warmup_from: Rate of the first step, likewise.
    """

    def __init__(
        self,
        peak: float,
        *,
        steps: int,
        warmup_steps: int,
        final: float = 0.0,
        warmup_from: float = 0.0,
    ):
        self.config = {"peak": peak, "steps": steps, "warmup_steps": warmup_steps}
        self.config |= {"final": final, "warmup_from": warmup_from}

    def __call__(self, step):
        steps, warmup_steps = self.config["steps"], self.config["warmup_steps"]
        step = keras.ops.cast(step, "float32")
        falling = keras.ops.maximum((steps - step) / (steps - warmup_steps), 0.0)
        falling = self.config["final"] + (1 - self.config["final"]) * falling
        rising = _rising(step, warmup_steps, self.config["warmup_from"])
        return self.config["peak"] * keras.ops.minimum(rising, falling)

    def get_config(self):
        """Returns the constructor's arguments."""
        return dict(self.config)


class WarmupSteps(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly to a peak and then decreases in steps.

    Args:
        peak: Highest rate.
        at: Steps after which the rate is multiplied by `factor`: that of the step with
            this number is unchanged, as in google-research/big_transfer,
            bit_hyperrule.py, and in Keras's `PiecewiseConstantDecay`.
        factor: In (0, 1].
        warmup_steps, warmup_from: As for `WarmupLinear`.
    """

    def __init__(
        self,
        peak: float,
        *,
        at: list[int],
        factor: float,
        warmup_steps: int,
        warmup_from: float = 0.0,
    ):
        self.config = {"peak": peak, "at": at, "factor": factor}
        self.config |= {"warmup_steps": warmup_steps, "warmup_from": warmup_from}

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        at = keras.ops.convert_to_tensor(self.config["at"], "float32")
        passed = keras.ops.sum(keras.ops.cast(step > at, "float32"))
        share = keras.ops.power(self.config["factor"], passed)
        warmup_steps, first = self.config["warmup_steps"], self.config["warmup_from"]
        rising = keras.ops.minimum(_rising(step, warmup_steps, first), 1.0)
        return self.config["peak"] * rising * share

    def get_config(self):
        """Returns the constructor's arguments."""
        return dict(self.config)


def _rising(step, warmup_steps, first):
    return first + (1 - first) * (step / warmup_steps) if warmup_steps else 1.0
