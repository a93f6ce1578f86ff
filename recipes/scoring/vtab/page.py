"""Writes the page of VTAB-1k.

python -m recipes.scoring.vtab.page > recipes/scoring/VTAB.md
"""

from .catalogue import FIRST, GROUPS, SUPERVISED, TASKS

LABELS = {  # {task: what is predicted}; others: the class
    "clevr_count": "number of objects, from 3 to 10",
    "clevr_distance": "distance of the nearest object: up to 8, 8.5, 9, 9.5, 10, more",
    "dsprites_location": "horizontal position, its 32 values in 16 pairs",
    "dsprites_orientation": "orientation, its 40 values in 16 groups",
    "kitti": "distance of the nearest vehicle: up to 8 m, up to 20 m, more, none",
    "smallnorb_azimuth": "azimuth of the camera",
    "smallnorb_elevation": "elevation of the camera",
}
VIT = "arXiv 2010.11929, Table 2"
BIT = "README of google-research/big_transfer, re-runs"
RESULTS = (  # (model, all tasks, natural, specialized, structured, source)
    ("ViT-H/14, JFT-300M", "77.63", "–", "–", "–", VIT),
    ("ViT-L/16, JFT-300M", "76.28", "–", "–", "–", VIT),
    ("BiT-L R152x4, JFT-300M", "76.29", "–", "–", "–", VIT),
    ("ViT-L/16, ImageNet-21k", "72.72", "–", "–", "–", VIT),
    ("BiT-M R152x4, ImageNet-21k", "73.51", "80.77", "85.67", "61.08", BIT),
    ("BiT-M R101x3, ImageNet-21k", "72.65", "80.29", "85.75", "59.40", BIT),
)
HEAD = f"""# VTAB-1k

`python recipes/evaluate.py MODEL --on vtab` scores a model on the 19 tasks, `--on
vtab/natural` on those of a group, and `--on vtab/dtd vtab/kitti` on single ones. Each
has 800 images for training (`{FIRST}`), 200 for validation, and test images, of which
`--images 1000` takes so many, always the same. Splits, label maps and numbers are those
of the paper's code (Zhai et al. 2019, arXiv 1910.04867; `task_adaptation/data/` of
google-research/task_adaptation). As there, images are resized to a square by
`tf.image.resize`, and not cropped; their size and their range are those of the model.

- `--vtab probe` (default) fits a linear classifier to frozen features. Its L2 penalty
  is chosen on the 200 images, then it is fitted to all 1,000.
- `--vtab hyperrule` fine-tunes all weights on the 1,000 images with BiT-HyperRule: 500
  steps with 512 images, of 128 or 480 pixels, or of `--image-size`. A step computes
  parts of `--batch-size` images. These are 256,000 images for each task: take a GPU.
  The fine-tuned models stay in `scores/MODEL/`, where an interrupted training
  continues.

A data set that must be downloaded by hand, whose server does not answer, or for which a
package is missing is named before anything is computed, with the command for the
others. The score is the mean of top-1; the tables state of how many tasks.

**None of the data sets has been prepared here**: they were tried with random images of
the same form (`tfds.testing.mock_data`), and KITTI with records that were made for it.
tensorflow-datasets 4.9.10 has the published versions but for `oxford_iiit_pet` (4.0.0,
with corrupt images repaired) and `kitti` (3.3.0, with another devkit). The last column
is the published top-1 of
{SUPERVISED}
("Sup-100%" in `docs/data/results.csv`).
"""
COLUMNS = (
    *("command", "data set", "published version", "validation, test"),
    *("label", "classes", "test images", "download", "ResNet-50"),
)
MEANS = """
## Published means

All weights were fine-tuned on the 1,000 images.

| model | VTAB | natural | specialized | structured | source |
|---|---:|---:|---:|---:|---|"""


def page() -> str:
    """Returns the page as Markdown."""
    lines = [HEAD, _line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for names in GROUPS.values():
        lines += [_row(TASKS[name]) for name in names]
    lines.append(MEANS)
    lines += map(_line, RESULTS)
    return "\n".join(lines)


def _row(task):
    source = task.source
    cells = (
        f"`--on {task.set}`",
        source.tfds,
        f"`{source.published}`",
        f"`{source.validation}`, `{source.test}`",
        LABELS.get(task.name, "class"),
        task.classes,
        f"{source.images:,}",
        source.download,
        task.supervised,
    )
    return _line(cells)


def _line(cells):
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    print(page())
