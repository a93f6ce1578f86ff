"""Computes the logits of timm's implementation, a reference for `weights.parity`."""

from importlib.metadata import version
from math import nan
from pathlib import Path

import numpy as np

from kerasvit.checkpoints import read_json
from kerasvit.hub.manifest import Entry
from recipes.benchmarks.import_timm import import_timm

from .certificate import ALLOWED, Certificate, Check
from .originals import classes

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
    images: np.ndarray,
    work: Path,
) -> None:
    """Saves `logits` and `allowed` in timm-NAME.npz; adds failures to the certificate.

    Args:
        certificate: Certificate to extend.
        entry: Entry of the original.
        folders: {name: folder}, with the names "original" and "folder".
        images: Array (B, height, width, 3).
        work: Folder for the files.
    """
    readable = {}
    for name, folder in folders.items():
        if "architecture" in read_json(folder / "config.json"):
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
    for name, folder in readable.items():
        try:
            logits = timm_logits(folder, images, classes(entry))
            allowed = allowed_error(folder, images, logits, classes(entry))
            np.savez(work / f"timm-{name}.npz", logits=logits, allowed=allowed)
        except Exception as error:  # any failure of timm is a failed check
            versions = {"timm": timm.__version__}
            check = Check(check_name(name), "timm", nan, nan, ALLOWED, versions)
            certificate.checks.append(check)
            message = " ".join(str(error).split())[:500]  # a line per tensor
            certificate.notes.append(
                f"timm on the {name}: {type(error).__name__} {message}"
            )


def timm_logits(
    folder: Path,
    images: np.ndarray,
    classes: int | None = None,
    double: bool = False,
) -> np.ndarray:
    """Returns timm's logits for the weights of a folder.

    Args:
        folder: Folder with timm's config.json and the tensors.
        images: Array (B, height, width, 3).
        classes: Number of classes; 0 returns features, None keeps the file's head.
        double: Whether to compute in float64 instead of float32.

    Returns:
        Array (B, classes), or (B, width) of features.
    """
    import torch

    timm = import_timm()
    options = {"pretrained": True, "num_classes": classes}
    model = timm.create_model(f"local-dir:{folder}", **options).eval()
    dtype = torch.float64 if double else torch.float32
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    with torch.no_grad():
        return model.to(dtype)(torch.from_numpy(channels_first).to(dtype)).numpy()


def allowed_error(
    folder: Path, images: np.ndarray, logits: np.ndarray, classes: int | None = None
) -> float:
    """Returns the largest error, relative to the largest logit, that may be rounding.

    Float32 in another order changes most models by 1e-6. In the deepest BiT models
    timm's own float32 is 1.5e-5 from its float64, for random weights: four times this
    difference is allowed, as for the small models in `tests.golden`.

    Args:
        folder, images, classes: As for `timm_logits`.
        logits: Logits in float32.
    """
    exact = timm_logits(folder, images, classes, double=True)
    rounding = np.abs(logits - exact).max() / np.abs(exact).max()
    return max(ALLOWED, 4 * float(rounding))
