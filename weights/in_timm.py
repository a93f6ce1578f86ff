"""timm's own logits of a model, for the backends to be compared with."""

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


def row_of(name: str) -> str:
    """Name of the comparison with what timm answers."""
    return f"logits, the {name} in timm"


def ask_timm(
    report: Certificate,
    entry: Entry,
    folders: dict[str, Path],
    images: np.ndarray,
    work: Path,
) -> None:
    """Saves timm's logits as timm-NAME.npy, and reports what it could not answer.

    Args:
        report: `Certificate`, which is added to.
        entry: Of the original.
        folders: {name: folder} of the "original" and of the converted one.
        images: (B, height, width, 3).
        work: Folder to save in.
    """
    asked = {}
    for name, folder in folders.items():
        if "architecture" in read_json(folder / "config.json"):
            asked[name] = folder
        elif name == "original" and entry.format == "timm":
            why = "its config.json is not beside it"
            report.missing.append(MISSING.format(name, why))
        else:
            note = f"Not run: the {name} in timm; its config.json is not timm's."
            report.notes.append(note)
    if not asked:
        return
    try:
        timm = import_timm()
    except Exception as error:  # its neighbours' too, such as torchvision's
        why = f"timm cannot be imported here ({error}); pip install timm"
        report.missing += [MISSING.format(name, why) for name in asked]
        return
    report.notes.append(f"timm is {timm.__version__}, with torch {version('torch')}.")
    for name, folder in asked.items():
        try:
            answer = timm_logits(folder, images, classes(entry))
            np.save(work / f"timm-{name}.npy", answer)
        except Exception as error:  # whatever: it is in the certificate then
            versions = {"timm": timm.__version__}
            row = Check(row_of(name), "timm", nan, nan, ALLOWED, versions)
            report.checks.append(row)
            message = " ".join(str(error).split())[:500]  # it has lines for each tensor
            report.notes.append(f"timm on the {name}: {type(error).__name__} {message}")


def timm_logits(
    folder: Path, images: np.ndarray, classes: int | None = None
) -> np.ndarray:
    """What timm answers with the weights of a folder; features for 0 classes."""
    import torch

    timm = import_timm()
    options = {"pretrained": True, "num_classes": classes}
    model = timm.create_model(f"local-dir:{folder}", **options).eval()
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    with torch.no_grad():
        return model(torch.from_numpy(channels_first)).numpy()
