"""Optimizer and loss of `finetune.py` and `pretrain.py`."""

import re

import keras
from training.schedules import accumulation, schedule
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


def loss_of(config):
    """Returns the loss of the settings, for labels of `training_data.fit_options`."""
    if getattr(config, "loss", "softmax") == "sigmoid":
        return sigmoid
    if not has_soft_labels(config):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=config.label_smoothing
    )


def accuracy_of(config) -> keras.metrics.Metric:
    """Returns the accuracy, for labels of `training_data.fit_options`."""
    metrics = keras.metrics
    if has_soft_labels(config):
        return metrics.CategoricalAccuracy(name="accuracy")
    return metrics.SparseCategoricalAccuracy(name="accuracy")


def sigmoid(labels, logits):
    """Returns the sum over classes of the binary cross-entropies, shape (batch,)."""
    each = keras.ops.binary_crossentropy(labels, logits, from_logits=True)
    return keras.ops.sum(each, axis=-1)
