"""Means of probabilities: over views of an image, and over several models.

candidate = averages.with_views(candidate, "flip")
candidate = averages.ensemble([first, second])
"""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import keras
import numpy as np

from kerasvit.evaluation import log_probabilities

from .candidates import Candidate
from .outputs import as_logits

# Parts of a crop's sides: the whole width of a view is this share of the image.
SIDE = 7 / 8
VIEWS = {"flip": 2, "crops": 10}  # {name: number of views}


def mean_logits(parts: Sequence[np.ndarray], several: bool = False) -> np.ndarray:
    """Returns the logits of the mean of probabilities, float32 (count, classes).

    Args:
        parts: Outputs (count, classes): logits, or probabilities of one label.
        several: Whether they are logits of several labels per image.
    """
    if several:
        ones = np.stack([-np.logaddexp(0, -part.astype("float64")) for part in parts])
        zeros = np.stack([-np.logaddexp(0, part.astype("float64")) for part in parts])
        found = np.logaddexp.reduce(ones) - np.logaddexp.reduce(zeros)
    else:
        logs = np.stack([log_probabilities(as_logits(part)) for part in parts])
        found = np.logaddexp.reduce(logs) - np.log(len(parts))
    return found.astype("float32")


@dataclasses.dataclass(frozen=True)
class Viewed(Candidate):
    """A model whose answer is the mean over views of an image.

    Attributes:
        views: "flip": the image and its mirror image; "crops": also four corners and
            the centre, of 7/8 of the sides, with their mirror images.
    """

    views: str = "flip"

    def outputs(self, predict, images) -> np.ndarray:
        """Returns the logits of the means for images."""
        found = predict(self._of_views, images, self.transform, self.normalize)
        parts = np.split(found, VIEWS[self.views], axis=1)
        return mean_logits(parts, self.task == "multilabel")

    @functools.cached_property
    def _of_views(self):
        """The model of all views: image → outputs one after the other."""
        image = keras.Input(self.model.inputs[0].shape[1:])
        found = [image] if self.views == "flip" else self._crops(image)
        found += [keras.ops.flip(each, axis=2) for each in found]
        return keras.Model(image, keras.layers.concatenate([*map(self.model, found)]))

    def _crops(self, image):
        height, width = self.transform.size
        rows, columns = round(SIDE * height), round(SIDE * width)
        down, right = height - rows, width - columns
        corners = [(0, 0), (0, right), (down, 0), (down, right)]
        return [
            keras.ops.image.resize(
                image[:, y : y + rows, x : x + columns], (height, width)
            )
            for y, x in [*corners, (down // 2, right // 2)]
        ]

    @property
    def passes(self) -> int:
        """Number of views."""
        return VIEWS[self.views]

    @property
    def calibration(self):
        """None: that of the model is of other outputs."""

    def how(self) -> dict:
        """Returns what `Candidate.how` does, with the views."""
        return {**super().how(), "views": self.views}


@dataclasses.dataclass(frozen=True)
class Ensemble(Candidate):
    """Several models whose answer is the mean of their probabilities.

    The other attributes are those of the first of them.

    Attributes:
        members: The models.
    """

    members: tuple[Candidate, ...] = ()

    def outputs(self, predict, images) -> np.ndarray:
        """Returns the logits of the means for images."""
        parts = [each.outputs(predict, images) for each in self.members]
        return mean_logits(parts, self.task == "multilabel")

    @property
    def calibration(self):
        """None: those of the models are of other outputs."""

    def how(self) -> dict:
        """Returns what `Candidate.how` does, for each model."""
        return {**super().how(), "members": [each.how() for each in self.members]}


def with_views(candidate: Candidate, views: str) -> Viewed:
    """Returns a model whose answer is the mean over views: see `Viewed`."""
    return Viewed(**vars(candidate), views=views)


def ensemble(members: Sequence[Candidate]) -> Ensemble:
    """Returns the mean of models.

    Raises:
        ValueError: There is one, or they have other classes.
    """
    first, *others = members
    if not others:
        raise ValueError("`ensemble`: give two models or more.")
    for each in members:
        known = (each.has_head, each.label_names, each.model.output_shape)
        if known != (True, first.label_names, first.model.output_shape):
            raise ValueError(
                "`ensemble`: the models must have the same classes in the same order. "
                f"Those of {each.name} and {first.name} differ."
            )
    weights = hashlib.sha256("".join(each.weights for each in members).encode())
    fields = {field.name for field in dataclasses.fields(Candidate)}
    known = {name: getattr(first, name) for name in fields}
    known |= {"name": f"mean of {len(members)}", "weights": weights.hexdigest()}
    return Ensemble(**known, members=tuple(members))
