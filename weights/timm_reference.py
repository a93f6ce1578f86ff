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
    """Saves timm's logits as timm-NAME.npy and adds failures to the certificate.

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
            np.save(work / f"timm-{name}.npy", logits)
        except Exception as error:  # any failure of timm is a failed check
            versions = {"timm": timm.__version__}
            check = Check(check_name(name), "timm", nan, nan, ALLOWED, versions)
            certificate.checks.append(check)
            message = " ".join(str(error).split())[:500]  # a line per tensor
            certificate.notes.append(
                f"timm on the {name}: {type(error).__name__} {message}"
            )


def timm_logits(
    folder: Path, images: np.ndarray, classes: int | None = None
) -> np.ndarray:
    """Returns timm's logits for the weights of a folder.

    Args:
        folder: Folder with timm's config.json and the tensors.
        images: Array (B, height, width, 3).
        classes: Number of classes; 0 returns features, None keeps the file's head.

    Returns:
        Array (B, classes), or (B, width) of features.
    """
    import torch

    timm = import_timm()
    options = {"pretrained": True, "num_classes": classes}
    model = timm.create_model(f"local-dir:{folder}", **options).eval()
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    with torch.no_grad():
        return model(torch.from_numpy(channels_first)).numpy()
