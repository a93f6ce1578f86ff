"""Images of a training: finds them, checks them, and makes the batches of `fit`."""

import dataclasses

from devices import devices

from kerasvit.data import augmentations
from kerasvit.data import labelled_images as data
from kerasvit.data.batches import training_batches
from kerasvit.preprocessing import input_problem


def find_data(config, here: devices.Devices):
    """Returns the `data.Dataset`, which the first process prepares, if needed.

    Of files, each process reads its share to find damaged ones.

    Raises:
        ValueError: As for `data.find`, in the process that found it and in all others.
    """
    wanted = config.dataset, config.data, config.share, config.share_seed
    own = {"validation_share": config.validation_share}
    if not config.data:
        with here.first_goes_first():
            return data.find(*wanted, **own)
    failed = True
    try:
        dataset = data.find(*wanted, **own, shard=here.shard)
        failed = False
    finally:
        any_failed = here.any(failed)
    if any_failed:
        raise ValueError("`data`: another process cannot read it, and says why.")
    return dataset


def check_first_batch(config, model, dataset) -> None:
    """Checks the augmentation, and images after it.

    Raises:
        ValueError: The values are not in the model's input range; a batch holds one
            image only; the images are resized to less than the model's size.
    """
    augmentation = augmentations.of(config)
    if 1 < augmentation.repeats >= config.batch_size:
        raise ValueError(
            f"`repeats`: a batch of {config.batch_size} would be copies of one image. "
            "Give a larger --batch-size or a smaller --repeats. Received: "
            f"{augmentation.repeats}."
        )
    options = {**batch_options(config, model), "batch_size": 8}
    options["augmentation"] = dataclasses.replace(augmentation, repeats=1)
    classes = len(dataset.label_names)  # one-hot labels, which can be mixed
    options |= {"seed": config.seed, "classes": classes}
    images, _ = next(iter(training_batches(dataset.train, **options)))
    transform, built_in = options["transform"], not options["normalize"]
    problem = input_problem(images, transform.mean, transform.std, built_in=built_in)
    if problem:
        raise ValueError(problem)


def batch_options(config, model) -> dict:
    """Returns keyword arguments for the functions of `batches.py`."""
    return {
        "transform": model.preprocessing,
        "normalize": not model.record["kwargs"].get("normalization"),
        "batch_size": config.batch_size,
    }


def has_soft_labels(config) -> bool:
    """Whether labels are mixed or smoothed, for which they must be one-hot."""
    return bool(augmentations.of(config).mixing or config.label_smoothing)


def fit_batches(here, config, dataset, options: dict, start: int = 0):
    """Returns the batches of `fit` on the devices, beginning with those of a step.

    Args:
        here: `devices.Devices`.
        config: Dataclass of the settings.
        dataset: `data.Dataset`.
        options: Result of `batch_options`.
        start: Number of the first step.
    """
    batches = training_batches(
        dataset.train,
        seed=config.seed,
        start=start,
        augmentation=augmentations.of(config),
        shard=here.shard,
        **options,
    )
    return here.distributed(in_parts(batches, config.accumulate))


def in_parts(batches, parts: int):
    """Returns each batch as several of its parts, which `fit` sees one after the other.

    Args:
        batches: `tf.data.Dataset` of batches of the same size, a multiple of `parts`.
        parts: Number of parts.
    """
    if parts == 1:
        return batches
    rows = batches.element_spec[0].shape[0] // parts
    return batches.rebatch(rows, drop_remainder=True)
