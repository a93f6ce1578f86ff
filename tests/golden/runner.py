"""Runs the cases of a folder with a `manifest.json`."""

import json
from pathlib import Path

from . import (
    alternet,
    alternet_tables,
    bit,
    curvature,
    deit,
    hybrid,
    images,
    masked,
    mixer,
    pit,
    position_tables,
    resnext,
    swin,
    trajectories,
    vit,
)

FAMILIES = {
    **alternet.FAMILIES,
    **bit.FAMILIES,
    **deit.FAMILIES,
    **hybrid.FAMILIES,
    **mixer.FAMILIES,
    **pit.FAMILIES,
    **resnext.FAMILIES,
    **swin.FAMILIES,
    **vit.FAMILIES,
}
KINDS = {
    **{kind: family.check for kind, family in FAMILIES.items()},
    "alternet_param_counts": alternet_tables.check,
    "analysis": curvature.check,
    "hf_mae_pretraining": masked.check,
    "posemb": position_tables.check,
    "preprocess": images.check,
    "sam_trajectories": trajectories.check,
}


def read_manifest(root):
    """{name: case}.

    Raises:
        ValueError: The directory has no manifest.
    """
    path = Path(root) / "manifest.json"
    if not path.is_file():
        raise ValueError(f"{root} must hold a manifest.json that describes its cases.")
    return json.loads(path.read_text())["cases"]


def check_case(root, name, case):
    """Yields (name, outcome): a `Result`, or a sentence for a kind not built yet."""
    check = KINDS.get(case["kind"])
    if check is None:
        yield name, f"kind {case['kind']} is not built yet"
        return
    yield from check(Path(root), name, case)
