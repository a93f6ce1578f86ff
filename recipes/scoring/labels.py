"""Matches the classes of a data set with those of a model."""

import dataclasses
import re
from collections import Counter

import numpy as np

from kerasvit import imagenet_names
from kerasvit.data import tfds

IMAGENET = 1000  # classes of a model without names are those of ImageNet if so many
SHOWN = 5  # names in a message


class NoCommonClass(ValueError):
    """A model has none of the classes of a set."""


@dataclasses.dataclass(frozen=True)
class Match:
    """Classes of a model for the images of a set.

    Attributes:
        labels: For each image an array of classes of the model, empty if the model has
            none of them.
        restricted: Sorted classes of the model that occur in the set; None: all.
        unmatched: Names of the set's classes that the model does not have.
    """

    labels: list[np.ndarray]
    restricted: np.ndarray | None
    unmatched: list[str]


def match(image_set, candidate, setting: str = "on") -> Match:
    """Matches by name, WordNet id or index.

    Case, and "_" for a space, make no difference. A class of ImageNet has its WordNet
    id, its line of names and each of these names. A name of two classes matches none.
    Classes match by index if neither the set nor the model has names.

    Args:
        image_set: `sets.ImageSet`.
        candidate: `candidates.Candidate`.
        setting: Option that gave the set, for messages.

    Raises:
        NoCommonClass: The model has none of the classes of the set.
    """
    places = _places(candidate)
    names = image_set.label_names
    same = names == candidate.label_names
    if same or (not places and len(names) == candidate.classes):
        classes = np.arange(len(names))
    else:
        classes = np.array([places.get(_normal(name), -1) for name in names])
    if not places and all(re.fullmatch(r"\d+", name) for name in names):
        numbers = np.array([int(name) for name in names])
        classes = np.where(numbers < candidate.classes, numbers, -1)
    if (classes < 0).all():
        raise NoCommonClass(
            f"`{setting}`: {candidate.name} has none of the classes of "
            f"{image_set.name}: {_listed(names)}. Its {candidate.classes} classes: "
            f"{_listed(candidate.label_names or ['no names'])}. Give a model of these "
            "classes, or rename the folders."
        )
    labels = [found[found >= 0] for found in (classes[x] for x in image_set.labels)]
    if not any(map(len, labels)):
        raise NoCommonClass(
            f"`{setting}`: no image of {image_set.name} is of a class of "
            f"{candidate.name}."
        )
    unmatched = [name for name, i in zip(names, classes, strict=True) if i < 0]
    occurring = image_set.restricted or range(len(names))
    restricted = np.unique([classes[i] for i in occurring if classes[i] >= 0])
    if len(restricted) == candidate.classes:
        restricted = None
    return Match(labels, restricted, unmatched)


def _places(candidate):
    """Returns {normal name: class}; {} for a model without names."""
    names = candidate.label_names
    if names is None and candidate.classes == IMAGENET:
        names = list(imagenet_names())
    if names is None:
        return {}
    known = [{_normal(name)} for name in names]
    if tuple(names) == imagenet_names():
        ids = tfds.class_names("imagenet2012")
        for found, name, own_id in zip(known, names, ids, strict=True):
            found |= {own_id, *map(_normal, name.split(","))}
    shared = Counter(each for found in known for each in found)
    return {
        each: i
        for i, found in enumerate(known)
        for each in found
        if shared[each] == 1  # "crane" is a bird and a machine
    }


def _normal(name):
    return name.replace("_", " ").casefold().strip()


def _listed(names):
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
