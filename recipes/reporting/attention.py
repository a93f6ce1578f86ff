"""Measures of attention, of the object in it, and of patches and positions."""

import numpy as np

from kerasvit import inspection
from kerasvit.inspection import patch_kernel, position_vectors

from .figures import in_columns, lines, maps
from .measure import Measure, Passes, without_attention
from .tables import Table

SHOWN = 4  # images
FILTERS = 14
POSITIONS = 3  # along each side
PIXELS = 64  # of the longer side of a shown image
OUTSIDE = 0.25  # brightness of what is not the object, in the pictures


def _attention(subject):
    options = {"batch_size": min(8, subject.batch_size), "keep_weights": False}
    found = inspection.attention_maps(subject.model, subject.x, **options)
    layers, rollout = found.layers.items(), found.rollout
    shown = chosen_images(len(subject.x))
    return {
        "distance": {
            path: each.distance.mean(0).tolist()
            for path, each in layers
            if each.distance is not None
        },
        "image_size": list(found.image_size),
        "numbers": (1 + shown).tolist(),
        "images": [pixels(each, subject.bands).tolist() for each in subject.x[shown]],
        "heat": (100 * found.heat[shown]).tolist(),
        "rollout": None if rollout is None else (100 * rollout[shown]).tolist(),
    }


def chosen_images(count):
    """Returns the numbers of at most `SHOWN` images."""
    return np.linspace(0, count - 1, min(count, SHOWN)).round().astype(int)


def pixels(image, bands):
    """Returns a small image with values from 0 to 255, stretched to this range."""
    return np.round(255 * inspection.as_rgb(thinned(image), bands)).astype(int)


def drawn_bands(subject):
    """Returns what pictures of images depend on besides them."""
    return {"bands": [*subject.bands]} if subject.bands else {}


def thinned(image):
    """Returns every n-th row and column, at most `PIXELS` of them."""
    step = max(1, -(-max(image.shape[:2]) // PIXELS))
    return image[::step, ::step]


def _show_attention(results):
    distances = {n: in_columns(r["distance"].values()) for n, r in results.items()}
    first = next(iter(results.values()))
    height, width = first["image_size"]
    options = {"extent": (0, width, height, 0)}
    options["titles"] = [f"image {i}" for i in first["numbers"]]
    pictures = [np.array(each) / 255 for each in first["images"]]
    found = []
    if any(distances.values()):  # none of layers that pool
        labels = ("attention layer", "distance (pixels)")
        caption = "Mean attention distance of each head"
        found.append(_distance_table(results))
        found.append(lines(caption, distances, *labels, zero=True, points=True))
    for key, caption in (
        ("heat", "Heat of the last attention layer"),
        ("rollout", "Attention rollout"),
    ):
        rows = {n: [*map(np.array, r[key])] for n, r in results.items() if r[key]}
        if rows:
            rows = {"images": pictures, **rows}
            found.append(maps(caption, rows, "% of the attention", **options))
    return found


def _distance_table(results):
    rows = []
    for name, r in results.items():
        if not r["distance"]:
            continue
        means = [float(np.mean(heads)) for heads in r["distance"].values()]
        every = np.concatenate(list(r["distance"].values()))
        rows.append([name, means[0], means[(len(means) - 1) // 2], means[-1]])
        rows[-1] += [float(every.min()), float(every.max())]
    head = ["", "first layer", "middle", "last", "nearest head", "farthest head"]
    return Table("Mean attention distance (pixels)", head, rows)


def _embeddings(subject):
    found = inspection.embeddings(subject.model, FILTERS)
    result = {"filters": None, "variance": None, "similarity": None}
    if found.filters is not None:
        shown = [
            inspection.as_rgb(each, subject.bands, stretch=False).tolist()
            for each in found.filters
        ]
        result["filters"] = shown
        result["variance"] = found.variance.tolist()
    if found.similarity is not None:
        height, width = found.similarity.shape[:2]
        rows, columns = (
            np.linspace(0, n - 1, min(n, POSITIONS)).round().astype(int)
            for n in (height, width)
        )
        similarity = found.similarity[np.ix_(rows, columns)]
        result["rows"], result["columns"] = rows.tolist(), columns.tolist()
        result["similarity"] = similarity.tolist()
    return result


def _show_embeddings(results):
    found = []
    for name, r in results.items():
        if r["filters"] is None:
            continue
        shown = [0.5 + f / (2 * np.abs(f).max()) for f in map(np.array, r["filters"])]
        rows = {"": shown[:7], " ": shown[7:]} if len(shown) > 7 else {"": shown}
        shares = [f"{100 * share:.0f} %" for share in r["variance"][:7]]
        caption = f"Principal filters of {name}, with the shares of the first"
        axes = ("pixels of a patch", "pixels")
        found.append(maps(caption, rows, "", titles=shares, axes=axes))
    for name, r in results.items():
        if r["similarity"] is None:
            continue
        rows = {
            f"row {row + 1}": [*map(np.array, cells)]
            for row, cells in zip(r["rows"], r["similarity"], strict=True)
        }
        titles = [f"column {column + 1}" for column in r["columns"]]
        caption = f"Similarity of the positions of {name}"
        height, width = np.shape(r["similarity"])[2:]
        options = {"axes": ("column of the patch", "row"), "span": (-1, 1)}
        options["extent"] = (0.5, width + 0.5, height + 0.5, 0.5)
        found.append(maps(caption, rows, "cosine", titles=titles, **options))
    return found


def without_embeddings(subject):
    """Tells whether a model embeds no patches and has no position embedding."""
    if patch_kernel(subject.model) is None and position_vectors(subject.model) is None:
        return f"{subject.name} embeds neither patches of the image nor positions."
    return ""


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
            _dimmed(*pair, subject.bands)
            for pair in zip(images[shown], masks[shown], strict=True)
        ],
        "heat": (100 * found.heat[shown]).tolist(),
    }


def _mean(heat, masks):
    return float(inspection.segmentation_score(heat, masks).mean())


def _dimmed(image, mask, bands):
    """Returns the pixels of an image that is dark outside of the object."""
    shown = pixels(image, bands)
    dark = (OUTSIDE * shown).astype(int)
    return np.where(thinned(mask)[..., None], shown, dark).tolist()


def _show_segmentation(results):
    first = next(iter(results.values()))
    height, width = first["image_size"]
    heads = {name: in_columns(r["heads"].values()) for name, r in results.items()}
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
    "attention": Measure(
        _attention,
        _show_attention,
        lambda s: Passes(2),
        without_attention,
        drawn_bands,
    ),
    "embeddings": Measure(
        _embeddings,
        _show_embeddings,
        lambda s: Passes(0, 0, 0),
        without_embeddings,
        drawn_bands,
    ),
    "segmentation": Measure(
        _segmentation,
        _show_segmentation,
        lambda subject: Passes(2),
        _without_masks,
        lambda subject: {"masks": subject.masks.digest} | drawn_bands(subject),
    ),
}
