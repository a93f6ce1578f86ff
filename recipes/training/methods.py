"""Trainers of the SAM family, for `--method`."""

from training.settings import METHODS

import kerasvit

CLASSES = {
    "sam": kerasvit.SAM,
    "asam": kerasvit.ASAM,
    "gsam": kerasvit.GSAM,
    "looksam": kerasvit.LookSAM,
    "msam": kerasvit.MSAM,
    "samon": kerasvit.SAMON,
}


def trainer(model, config, rho: float, **options) -> kerasvit.SAM:
    """Returns the trainer of the method, not compiled.

    Args:
        model: `keras.Model` to train, or a trainer that allows another around it.
        config: Dataclass of the settings.
        rho: Radius; 0 is plain training, whatever the method.
        options: `perturbation` and `micro_batches` of `kerasvit.SAM`.
    """
    if not rho:
        return kerasvit.SAM(model, 0.0, **options)
    arguments = METHODS[config.method].items()
    given = {argument: getattr(config, setting) for setting, argument in arguments}
    if config.method == "gsam":
        options["lr_max"] = config.learning_rate
        options["lr_min"] = config.learning_rate * (
            config.decay_factor ** len(config.decay_at)
            if config.schedule == "steps"
            else config.final_rate
        )
        if config.rho_min is None:
            given["rho_min"] = rho / 6  # 0.1 for 0.6 in the authors' code
    given = {name: value for name, value in given.items() if value is not None}
    return CLASSES[config.method](model, rho, **given, **options)
