"""Measure of attention beside masks of the objects."""

import numpy as np

from kerasvit import inspection

from .attention import chosen_images, pixels, thinned
from .figures import lines, maps
from .measure import Measure, Passes, without_attention
from .tables import Table

OUTSIDE = 0.25  # brightness of what is not the object, in the pictures


def _segmentation(subject):
    numbers, masks = subject.masks.numbers, subject.masks.masks
    images = subject.x[numbers]
    options = {"batch_size": min(8, subject.batch_size), "keep_weights": False}
    found = inspection.attention_maps(subject.model, images, **options)
    scores = {
        path: inspection.segmentation_score(each.heat, masks)
        for path, each in found.layers.items()
    }
    *_, last = scores.values()
    rollout = found.rollout
    shown = chosen_images(len(images))
    return {
        "images": len(images),
        "heads": {path: each.mean(0).tolist() for path, each in scores.items()},
        "mean_of_heads": _mean(found.heat, masks),
        "best_head": float(last.max(1).mean()),
        "rollout": None if rollout is None else _mean(rollout, masks),
        "whole_image": float(masks.mean()),
        "image_size": list(found.image_size),
        "numbers": (1 + numbers[shown]).tolist(),
        "shown": [
            _dimmed(*pair) for pair in zip(images[shown], masks[shown], strict=True)
        ],
        "heat": (100 * found.heat[shown]).tolist(),
    }


def _mean(heat, masks):
    return float(inspection.segmentation_score(heat, masks).mean())


def _dimmed(image, mask):
    """Returns the pixels of an image that is dark outside of the object."""
    shown = pixels(image)
    dark = (OUTSIDE * shown).astype(int)
    return np.where(thinned(mask)[..., None], shown, dark).tolist()


def _show(results):
    first = next(iter(results.values()))
    height, width = first["image_size"]
    heads = {
        name: [
            ([depth] * len(values), values)
            for depth, values in enumerate(r["heads"].values(), 1)
        ]
        for name, r in results.items()
    }
    rows = {"objects": [np.array(each) / 255 for each in first["shown"]]}
    rows |= {name: [*map(np.array, r["heat"])] for name, r in results.items()}
    return [
        Table(
            "IoU of the object and the hottest patches",
            ["", "mean of heads", "best head", "rollout", "whole image", "images"],
            [
                [name, r["mean_of_heads"], r["best_head"], r["rollout"]]
                + [r["whole_image"], r["images"]]
                for name, r in results.items()
            ],
        ),
        lines(
            "IoU of each head", heads, "attention layer", "IoU", zero=True, points=True
        ),
        maps(
            "Objects, and the heat of the last attention layer",
            rows,
            "% of the attention",
            titles=[f"image {i}" for i in first["numbers"]],
            extent=(0, width, height, 0),
        ),
    ]


def _without_masks(subject):
    """Tells whether there are no masks, or no attention."""
    return without_attention(subject) if subject.masks else "No masks were given."


MEASURES = {
    "segmentation": Measure(
        _segmentation,
        _show,
        lambda subject: Passes(2),
        _without_masks,
        lambda subject: {"masks": subject.masks.digest},
    ),
}
