"""Writes the page of the published sets.

python -m recipes.scoring.page > recipes/scoring/SETS.md
"""

from .catalogue import ALIASES, SETS
from .published import RESULTS, SOURCE

HEAD = f"""# Published data sets

`python recipes/evaluate.py MODEL --on SET` scores a model on them; tensorflow-datasets
downloads and prepares them. **None has been downloaded here: those of ImageNet were
tried with nine images in files of the published form**
(`tests/recipes/test_imagenet_sets.py`), the others with random images. The last column
is the published top-1 of ViT-B/16 with SAM ({SOURCE}), `ViTB16/sam`.

| set | images | download | command | protocol | ViT-B/16-SAM |
|---|---:|---|---|---|---:|"""


def page() -> str:
    """Returns the page as Markdown."""
    short = {name: alias for alias, name in reversed(ALIASES.items())}
    lines = [HEAD]
    for name, each in SETS.items():
        number = RESULTS["ViTB16/sam"].get(name, "–")
        command = f"`--on {short.get(name, name)}`"
        row = name, f"{each.images:,}", each.download, command, each.protocol, number
        lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())
