"""Scores and pictures of a segmentation."""

from pathlib import Path

import keras
import numpy as np
from rich.table import Table
from segmenting.labelled_masks import IGNORED
from training.curves import save_figure
from training.progress import console, counted

from kerasvit.inspection import as_rgb

SHOWN = 6  # images in the picture


def scores(model: keras.Model, batches: list, class_names: list[str]) -> dict:
    """Returns mean IoU, IoU by class and the share of correct pixels, all in [0, 1].

    The mean is that of the classes that occur in masks or predictions; the IoU of the
    others is None.

    Args:
        model: Segmentation model.
        batches: Pairs of images and masks.
        class_names: Names of its classes.
    """
    classes = len(class_names)
    metric = keras.metrics.MeanIoU(classes, ignore_class=IGNORED, sparse_y_pred=False)
    for x, y in batches:
        metric.update_state(y, model.predict_on_batch(x))
    counts = keras.ops.convert_to_numpy(metric.total_cm).astype(float)
    correct = np.diag(counts)
    union = counts.sum(0) + counts.sum(1) - correct
    by_class = {
        name: float(c / u) if u else None
        for name, c, u in zip(class_names, correct, union, strict=True)
    }
    return {
        "mean_iou": float(metric.result()),
        "iou": by_class,
        "pixel_accuracy": float(correct.sum() / counts.sum()),
    }


def report(result: dict) -> None:
    """Prints the IoU of each class, and how to use the model."""
    table = Table(title=f"Validation: {counted(result['images']['validation'])}")
    table.add_column("class")
    table.add_column("IoU", justify="right")
    for name, value in result["iou"].items():
        table.add_row(name, "-" if value is None else f"{value:.2%}")
    table.add_section()
    table.add_row("mean", f"{result['mean_iou']:.2%}")
    console.print(table)
    folder = result["folder"]
    console.print(
        f"Predictions: {folder}/predictions.png. The model, to use as\n"
        "    import keras, kerasvit\n"
        f'    model = keras.saving.load_model("{folder}/model.keras")\n'
        "    model.predict(pixels).argmax(-1)    # float32 from 0 to 255",
        highlight=False,
        soft_wrap=True,
    )


def draw(
    model: keras.Model, x: np.ndarray, y: np.ndarray, path: Path, bands=None
) -> None:
    """Draws images, of others than RGB the `bands`, with masks and predictions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    x, y = x[:SHOWN], y[:SHOWN]
    found = model.predict_on_batch(x).argmax(-1)
    classes = model.output_shape[-1]
    colors = pyplot.get_cmap("tab20" if classes > 10 else "tab10")
    figure, axes = pyplot.subplots(
        3, len(x), figsize=(2 * len(x), 6.4), layout="constrained", squeeze=False
    )
    titles = ("image", "mask", "prediction")
    for row, title, masks in zip(axes, titles, (None, y, found), strict=True):
        row[0].set_ylabel(title)
        for i, axis in enumerate(row):
            axis.set(xticks=[], yticks=[])
            is_rgb = x.shape[-1] == 3
            axis.imshow(x[i].astype("uint8") if is_rgb else as_rgb(x[i], bands))
            if masks is not None:
                hidden = (masks[i] == 0) | (masks[i] == IGNORED)
                shown = np.ma.masked_array(masks[i] % colors.N, hidden)
                axis.imshow(
                    shown,
                    cmap=colors,
                    vmin=-0.5,
                    vmax=colors.N - 0.5,
                    alpha=0.6,
                    interpolation="nearest",
                )
    save_figure(figure, path)
