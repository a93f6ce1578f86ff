"""Computes the logits of timm's implementation, a reference for `weights.parity`."""

from importlib.metadata import version
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasvit.checkpoints import format_of, read_json, why_not_timm
from kerasvit.hub.manifest import Entry
from recipes.benchmarks.import_timm import import_timm

from .certificate import ALLOWED, Certificate, Check

if TYPE_CHECKING:
    from torch import nn

INSTALL = "pip install --no-deps timm torchvision -c constraints.txt"
MISSING = "Not run, and timm has the model: the {} in timm; {}."


def check_name(name: str) -> str:
    """Returns the name of the comparison with timm's logits.

    Args:
        name: "original" or "folder", whose weights timm loads.
    """
    return f"logits, the {name} in timm"


def save_timm_logits(
    certificate: Certificate,
    entry: Entry,
    folders: dict[str, Path],
    record: dict[str, Any],
    images: np.ndarray,
    work: Path,
) -> None:
    """Saves `logits` and `allowed` in timm-NAME.npz; adds failures to the certificate.

    Args:
        certificate: Certificate to extend.
        entry: Entry of the original.
        folders: {name: folder}, with the names "original" and "folder".
        record: `ImageModel.record` of the folder.
        images: Array (B, height, width, 3).
        work: Folder for the files.
    """
    readable = {}
    for name, folder in folders.items():
        file = folder / entry.filename
        if name == "original" and not why_not_npz(file, record):
            readable[name] = file
        elif "architecture" in read_json(folder / "config.json"):
            readable[name] = folder
        elif name == "original" and entry.format == "timm":
            reason = "its config.json is not beside it"
            certificate.missing.append(MISSING.format(name, reason))
        else:
            note = f"Not run: the {name} in timm; its config.json is not timm's."
            certificate.notes.append(note)
    if not readable:
        return
    try:
        timm = import_timm()
    except Exception as error:  # also from its dependencies, such as torchvision
        reason = f"timm cannot be imported here ({error}); pip install timm"
        certificate.missing += [MISSING.format(name, reason) for name in readable]
        return
    certificate.notes.append(
        f"timm is {timm.__version__}, with torch {version('torch')}."
    )
    for name, source in readable.items():
        try:
            logits = timm_logits(source, images, record)
            allowed = allowed_error(logits, source, images, record)
            np.savez(work / f"timm-{name}.npz", logits=logits, allowed=allowed)
        except Exception as error:  # any failure of timm is a failed check
            versions = {"timm": timm.__version__}
            check = Check(check_name(name), "timm", nan, nan, ALLOWED, versions)
            certificate.checks.append(check)
            message = " ".join(str(error).split())[:500]  # a line per tensor
            certificate.notes.append(
                f"timm on the {name}: {type(error).__name__} {message}"
            )


def timm_can_be_imported() -> bool:
    """Returns whether timm and what it needs can be imported."""
    try:
        import_timm()
    except Exception:  # also from its dependencies, such as torchvision
        return False
    return True


def why_not_npz(file: Path, record: dict[str, Any]) -> str | None:
    """Returns why timm does not compute the same from an original file; None if it can.

    timm reads `.npz` files of google-research/vision_transformer and big_transfer with
    its own code, `load_pretrained` of its models.

    Args:
        file: Path of the file.
        record: `ImageModel.record` of its model.
    """
    if file.suffix != ".npz" or record["builder"] == "MLPMixer":
        return "timm does not read this file"
    why = why_not_timm(_with_epsilon_of_timm(record))
    return f"timm computes it differently: {why}" if why else None


def _with_epsilon_of_timm(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the record with the epsilon of timm's BiT, which `_load_npz` replaces."""
    if record["builder"] != "BigTransfer":
        return record
    return {**record, "kwargs": {**record["kwargs"], "conv_epsilon": 1e-8}}


def _load_npz(file: Path, record: dict[str, Any]) -> "nn.Module":
    """Returns timm's model with the weights of a `.npz` file, which timm reads."""
    timm = import_timm()
    _, config = format_of(_with_epsilon_of_timm(record))
    assert config is not None  # see `why_not_npz`
    kwargs = record["kwargs"]
    model = timm.create_model(
        config["architecture"],
        num_classes=kwargs["num_classes"],
        **config["model_args"],
    )
    model.load_pretrained(str(file))
    for module in model.modules():
        if isinstance(module, timm.layers.StdConv2d):
            module.eps = kwargs["conv_epsilon"]
    return model


def timm_logits(
    source: Path,
    images: np.ndarray,
    record: dict[str, Any],
    double: bool = False,
) -> np.ndarray:
    """Returns timm's logits for the weights of a folder or of a `.npz` file.

    Args:
        source: Folder with timm's config.json and the tensors, or path of a `.npz` file
            for which `why_not_npz` returns None.
        images: Array (B, height, width, 3).
        record: `ImageModel.record` of the model; with 0 classes, features are returned.
        double: Whether to compute in float64 instead of float32.

    Returns:
        Array (B, classes), or (B, width) of features.
    """
    import torch

    if source.suffix == ".npz":
        model = _load_npz(source, record)
    else:
        kwargs = record["kwargs"]
        options = {"pretrained": True, "num_classes": kwargs["num_classes"]}
        if kwargs.get("activation") == "quick_gelu":  # its config.json may state GELU
            options["act_layer"] = "quick_gelu"
        model = import_timm().create_model(f"local-dir:{source}", **options)
    dtype = torch.float64 if double else torch.float32
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    with torch.no_grad():
        model = model.eval().to(dtype)
        return model(torch.from_numpy(channels_first).to(dtype)).numpy()


def allowed_error(
    logits: np.ndarray, source: Path, images: np.ndarray, record: dict[str, Any]
) -> float:
    """Returns the largest error, relative to the largest logit, that may be rounding.

    Float32 in another order changes most models by 1e-6. In the deepest BiT models
    timm's own float32 is 1.5e-5 from its float64, for random weights: four times this
    difference is allowed, as for the small models in `tests.golden`.

    Args:
        logits: Logits in float32.
        source, images, record: As for `timm_logits`.
    """
    exact = timm_logits(source, images, record, double=True)
    rounding = np.abs(logits - exact).max() / np.abs(exact).max()
    return max(ALLOWED, 4 * float(rounding))
