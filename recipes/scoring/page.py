"""Writes the page of the published sets.

python -m recipes.scoring.page > recipes/scoring/SETS.md
"""

from .catalogue import ALIASES, CORRUPTED, OF_KINDS, SETS
from .published import RESULTS, SOURCE

HEAD = f"""# Published data sets

`python recipes/evaluate.py MODEL --on SET` scores a model on them; tensorflow-datasets
downloads and prepares them. **None has been downloaded here: those of ImageNet were
tried with nine images in files of the published form**
(`tests/recipes/test_imagenet_sets.py`), the others with random images. The last column
is the published top-1 of ViT-B/16 with SAM ({SOURCE}), `ViTB16/sam`.

A corrupted set has so many images of each kind and severity. `--corrupt all` also
scores the four kinds that do not belong to the papers' means. Other sets are corrupted
with `--corrupt` when they are read. CIFAR-100-C, like CIFAR-10-C, is a folder of
`labels.npy` and a file `KIND.npy` for each kind.

| set | images | download | command | protocol | ViT-B/16-SAM |
|---|---:|---|---|---|---:|"""

FOLDER = "2.9 GB: unpack CIFAR-100-C.tar of zenodo.org/records/3555552 by hand"


def page() -> str:
    """Returns the page as Markdown."""
    short = {name: alias for alias, name in reversed(ALIASES.items())}
    lines = [HEAD]
    for name, each in {**SETS, **CORRUPTED}.items():
        number = RESULTS["ViTB16/sam"].get(name, "–")
        command = f"`--on {short.get(name, name)}`"
        row = name, f"{each.images:,}", each.download, command, each.protocol, number
        lines.append(f"| {' | '.join(map(str, row))} |")
    row = "CIFAR-100-C", "10,000", FOLDER, "`--on CIFAR-100-C/`", OF_KINDS, "–"
    return "\n".join([*lines, f"| {' | '.join(row)} |"])


if __name__ == "__main__":
    print(page())
