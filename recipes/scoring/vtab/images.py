"""Images and labels of the tasks of VTAB-1k, from tensorflow-datasets.

    found = images.find(catalogue.TASKS["vtab/clevr_count"])
    found.train, found.validation, found.test      # 800, 200 and 15,000 images

The label maps are those of clevr.py, kitti.py and dsprites.py in task_adaptation/data
of google-research/task_adaptation.
"""

import dataclasses
import functools
import re

import tensorflow as tf
from command.names import data_location

from kerasvit.data import StreamedImages, tfds_builder

from ..sets import records
from .catalogue import DSPRITES, FIRST, VtabTask

CLEVR_EDGES = (8.0, 8.5, 9.0, 9.5, 10.0)
KITTI_EDGES = (8.0, 20.0, 999.0)  # metres; beyond the last one: there is no vehicle
VEHICLES = 3  # car, van and truck are the first types of KITTI


@dataclasses.dataclass(frozen=True)
class Images:
    """The images of a task.

    Attributes:
        task: The task.
        train, validation, test: `StreamedImages`, with the class indices of the task.
        label_names: Names of the classes.
        version: Name and version of the data set.
    """

    task: VtabTask
    train: StreamedImages
    validation: StreamedImages
    test: StreamedImages
    label_names: list[str]
    version: str

    @functools.cached_property
    def learned(self) -> StreamedImages:
        """Training images, then validation images."""
        stored = self.train.stored.concatenate(self.validation.stored)
        return StreamedImages(stored, self.train.decode)


def find(task: VtabTask) -> Images:
    """Opens the images of a task, which are downloaded and prepared if needed.

    Raises:
        ValueError: The data set cannot be prepared, or has too few images.
    """
    builder = tfds_builder(task.source.tfds)
    names = [str(i) for i in range(task.classes)]
    if task.label in builder.info.features:
        names = list(builder.info.features[task.label].names)
    splits = FIRST, task.source.validation, task.source.test
    _check(builder, task, splits)
    parts = [_streamed(builder, split, task) for split in splits]
    return Images(task, *parts, names, builder.info.full_name)


def _check(builder, task, splits):
    """Raises a `ValueError` if a prepared data set has too few images for splits."""
    counts = {name: each.num_examples for name, each in builder.info.splits.items()}
    needed = {split: re.findall(r"\d+(?![\d%])", split) for split in splits}
    few = [
        split
        for split, ends in needed.items()
        if counts.get(split.split("[")[0], 0) < max(map(int, ends), default=1)
    ]
    if counts and few:  # `mock_data` knows no counts
        raise ValueError(
            f"`on`: {task.set} needs {' and '.join(few)} of {builder.info.full_name}, "
            f"which has {counts}. Delete its folder in {data_location()}: it is then "
            "prepared again."
        )


def _streamed(builder, split, task):
    """Returns the images of a split, with the labels of a task."""
    wanted, label = LABELS.get(task.label) or ({task.label: True}, _feature(task.label))
    stored = records(builder, split, wanted)
    stored = stored.map(lambda example: (example["image"], label(example)))
    decoded = builder.info.features["image"].decode_example
    return StreamedImages(
        stored, visible(decoded) if task.source is DSPRITES else decoded
    )


def visible(decoded):
    """Returns a decoder of images of 0 and 1 that makes them 0 and 255."""
    return lambda image: 255 * tf.cast(decoded(image) > 0, tf.uint8)


def _feature(name, classes=1, groups=1):
    """Returns a function that joins the `classes` neighbouring labels of a feature."""
    return lambda example: example[name] * groups // classes


def _count(example):
    """Returns the number of objects in a scene of CLEVR, from 3 to 10, less 3."""
    return tf.shape(example["objects"]["size"])[0] - 3


def _distance(example):
    """Returns how many of `CLEVR_EDGES` the nearest object is beyond."""
    return _beyond(CLEVR_EDGES, example["objects"]["pixel_coords"][:, 2])


def _vehicle(example):
    """Returns how many of `KITTI_EDGES` the nearest vehicle is beyond."""
    objects = example["objects"]
    is_vehicle = objects["type"] < VEHICLES
    return _beyond(KITTI_EDGES, objects["location"][:, 2][is_vehicle])


def _beyond(edges, distances):
    nearest = tf.reduce_min(distances)  # of nothing: infinity
    return tf.reduce_sum(tf.cast(nearest > tf.constant(edges), tf.int64))


LABELS = {  # {label of a task: (features that are read, function of an example)}
    "count": ({"objects": {"size": True}}, _count),
    "distance": ({"objects": {"pixel_coords": True}}, _distance),
    "vehicle": ({"objects": {"type": True, "location": True}}, _vehicle),
    "location": (
        {"label_x_position": True},
        _feature("label_x_position", classes=32, groups=16),
    ),
    "orientation": (
        {"label_orientation": True},
        _feature("label_orientation", classes=40, groups=16),
    ),
}
