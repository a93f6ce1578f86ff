"""Options of the methods of the SAM family, and their checks.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

METHODS = {  # {--method: {setting: argument of its trainer}}
    "sam": {"sam_every": "every"},
    "asam": {"sam_every": "every", "sam_eta": "eta"},
    "gsam": {"sam_every": "every", "sam_alpha": "alpha", "rho_min": "rho_min"},
    "looksam": {"sam_every": "k", "sam_alpha": "alpha"},
    "msam": {},
    "samon": {"sam_every": "every"},
}
SETTINGS = sorted({setting for options in METHODS.values() for setting in options})
OWN_RADII = ("asam", "msam", "samon")  # the defaults of rho are SAM's


def check(config) -> None:
    """Raises a `ValueError` for options that do not belong to the method."""
    given = [name for name in SETTINGS if getattr(config, name) is not None]
    for name in given:
        if name not in METHODS[config.method]:
            methods = [m for m, options in METHODS.items() if name in options]
            raise ValueError(
                f"`{name}` is an option of --method {' or '.join(methods)}. Received: "
                f"--method {config.method}."
            )
    if config.rho == 0 and (config.method != "sam" or given):
        name = "method" if config.method != "sam" else given[0]
        raise ValueError(f"`{name}`: rho is 0, which is no SAM. Give a radius, --rho.")
    if config.rho is None and config.method in OWN_RADII:
        raise ValueError(
            f"`rho`: the default is for SAM, and {config.method} needs another radius: "
            "see kerasvit/training/README.md. Give --rho."
        )
    if None not in (config.rho, config.rho_min) and config.rho_min > config.rho:
        raise ValueError(
            f"`rho_min` must be at most rho, {config.rho}. Received: {config.rho_min}."
        )
