"""`Variant`: a named model, given by a builder and its arguments."""

import inspect
import logging
from collections.abc import Callable
from typing import Any

from kerasvit.arguments import sides
from kerasvit.hub.manifest import published
from kerasvit.loading.catalogue import catalogue_entry
from kerasvit.loading.find import GivenWeights, find
from kerasvit.loading.labels import read_labels
from kerasvit.loading.load import build_fresh, load
from kerasvit.loading.request import Request
from kerasvit.loading.resolve import resolve
from kerasvit.loading.saved_meanwhile import retried
from kerasvit.loading.transforms import transform_of
from kerasvit.preprocessing import Preprocessing

from .image_model import ImageModel
from .other_names import check_names

log = logging.getLogger("kerasvit")


class Variant:
    """A named model; a call builds it and loads `weights`.

    Args:
        name: As it is exported; None for a model that is no row of the zoo.
        builder: Function of keyword arguments that returns an `ImageModel`.
        parameters: How many trainable ones it has with all its defaults.
        multiply_adds: In units of 10⁹, of an image at the default size.
        evaluation: Fields of `Preprocessing` in which fresh weights, and timm's files
            that say nothing of it, differ from timm's ViTs.
        **numbers: The builder's arguments that make this variant. Those that have a
            default in the builder only take its place: a checkpoint may say otherwise.
    """

    def __init__(
        self,
        name: str | None,
        builder: Callable,
        *,
        parameters: int | None = None,
        multiply_adds: float | None = None,
        evaluation: dict | None = None,
        **numbers: Any,
    ) -> None:
        self.name: Any = name  # str in every row of the zoo
        self.builder = builder
        self.parameters = parameters
        self.multiply_adds = multiply_adds
        self.evaluation = evaluation or {}
        signature = inspect.signature(builder).parameters.values()
        made = {p.name: p.default for p in signature if p.default is not p.empty}
        made.pop("dtype", None)  # of the layers, and of no row or file
        self.numbers = {k: v for k, v in numbers.items() if k not in made}
        self.defaults = {**made, **{k: v for k, v in numbers.items() if k in made}}
        self._shown = numbers
        self.__doc__ = f"{self!r}; all arguments: help(kerasvit.{builder.__name__})."

    def __repr__(self) -> str:
        numbers = ", ".join(f"{key}={value}" for key, value in self._shown.items())
        call = f"{self.label}({numbers})"
        if self.parameters is None:
            return call
        height, width = sides(self.defaults["image_size"])
        tags = ", ".join(published(self.name))
        weights = f"; weights: {tags}" if tags else ""
        return (
            f"{call}: {self.parameters:,} parameters, {self.multiply_adds:g} G "
            f"multiply-adds at {height} × {width}{weights}"
        )

    def __call__(
        self,
        weights: GivenWeights | None = None,
        *,
        num_classes: int | None = None,
        image_size: int | tuple[int, int] | None = None,
        include_preprocessing: bool | None = None,
        source_grid: tuple[int, int] | None = None,
        kernel: str | None = None,
        preprocessing: Preprocessing | dict | None = None,
        label_names: list[str] | str | None = None,
        dtype: Any = None,
        **changes: Any,
    ) -> ImageModel:
        """Builds the model.

        Args:
            weights: None for fresh ones; the tag of public ones, such as "sam", which
                are downloaded, or one of `kerasvit.list_weights`; a `.npz` or
                `.safetensors` file; a folder that `save_pretrained` wrote; or
                "hf://user/repository[@revision]".
            num_classes: Size of the head. None: as the weights have it, else 1000.
                Another number than theirs makes a fresh head; 0 leaves it off.
            image_size: Height and width in pixels, an int for a square. None: what the
                weights were made for. At another size the position table is resampled.
            include_preprocessing: True puts the normalisation into the model, which
                then takes pixels from 0 to 255; False takes it out of a model that was
                saved with it. None: as the weights have it, else False.
            source_grid: (height, width) in patches that the file's position table was
                made for, where a bare file leaves it open.
            kernel: How to resample the position table, one of
                `kerasvit.layers.resampling.KERNELS`; None: as the weights' origin does.
            preprocessing: How images are prepared, a `Preprocessing` or a dict of its
                fields, `size` left out or that of the model. None: as the weights say,
                or else as their origin does.
            label_names: Names of the classes, in the order of the head: a list, or the
                path of a text file with one name a line. None: as the weights say.
            dtype: Of the layers, as in any Keras layer: "mixed_bfloat16", "float16", a
                `keras.DTypePolicy`; None: Keras's global policy. Weights are cast.
            **changes: Other arguments of the builder; they win over what the weights
                say.

        Returns:
            `ImageModel`, (batch, H, W, 3) → (batch, num_classes) logits.

        Raises:
            ValueError: An argument is wrong, or the weights do not fit
                (`CheckpointError`).
        """
        changes = dict(changes)
        if num_classes is not None:
            changes["num_classes"] = num_classes
        if image_size is not None:
            changes["image_size"] = sides(image_size)
        if dtype is not None:
            changes["dtype"] = dtype
        self.check_names(changes)
        request = Request(
            changes,
            preprocessing=preprocessing,
            include_preprocessing=include_preprocessing,
            source_grid=source_grid,
            kernel=kernel,
            label_names=read_labels(label_names),
        )
        if weights is None:
            return build_fresh(self, request)
        return retried(weights, lambda: load(weights, self, request))

    def preprocessing(self, weights: GivenWeights | None = None) -> Preprocessing:
        """The evaluation transform that weights expect, without building the model.

        Args:
            weights: As for a call.

        Raises:
            ValueError: The weights cannot be read, or are of another model
                (`CheckpointError`).
        """
        if weights is None:
            return Preprocessing(self.defaults["image_size"], **self.evaluation)
        if entry := catalogue_entry(weights, self):
            return transform_of(entry)
        checkpoint = find(weights, self.label)
        plan = resolve(checkpoint.description, self, Request())
        if plan.transform_note:
            log.warning("%s", plan.transform_note)
        return Preprocessing.from_config(plan.record["preprocessing"])

    @property
    def label(self) -> str:
        """Name for messages."""
        return self.name or self.builder.__name__

    @property
    def required(self) -> set[str]:
        """Arguments of the builder without a value here."""
        known = set(inspect.signature(self.builder).parameters) - {"dtype"}
        return known - set(self.defaults)

    def check_names(self, changes: dict[str, Any], before: str = "") -> None:
        """Raises a `ValueError` for arguments that the builder does not have."""
        known = set(inspect.signature(self.builder).parameters)
        if before:  # of a file, which does not say in what precision it is used
            known.discard("dtype")
        else:
            call = inspect.signature(Variant.__call__).parameters
            known.update(call.keys() - {"self", "changes"})
        check_names(self.label, changes, known, before)

    def mismatch(self, values: dict[str, Any], changes: dict[str, Any]) -> str | None:
        """Explains where a file has other numbers than this variant, or None."""
        wanted = {**self.numbers, **changes}
        # A file says lists.
        wanted = {k: list(n) if isinstance(n, tuple) else n for k, n in wanted.items()}
        wrong = [
            key for key in self.numbers if key in values and values[key] != wanted[key]
        ]
        if not wrong:
            return None
        from . import VARIANTS  # which imports this module

        fitting = [
            row.name
            for row in VARIANTS
            if row.builder is self.builder and row.fits(values)
        ]
        numbers = ", ".join(f"{key} {values[key]}, not {wanted[key]}" for key in wrong)
        build = f" Build {' or '.join(fitting)} with it." if fitting else ""
        return f"does not hold weights of {self!r}: {numbers}.{build}"

    def fits(self, values: dict[str, Any]) -> bool:
        """Whether a file may be of this variant, by its numbers and layers."""
        return all(values.get(key, n) == n for key, n in self.numbers.items()) and all(
            values.get(key) == n if isinstance(n, list) else values.get(key) is not None
            for key, n in self.parts.items()
        )

    @property
    def parts(self) -> dict[str, Any]:
        """Values of this variant for arguments with a default in the builder."""
        return {k: n for k, n in self._shown.items() if k not in self.numbers}


def rows_of(builder: Callable, **common: Any) -> Callable[..., Variant]:
    """Returns a function that makes the variants of a family, one line each.

    Args:
        builder: Function that returns an `ImageModel`.
        **common: Arguments of `Variant` that all of them have.

    Returns:
        Function of a name, the number of parameters, the multiply-adds in units of 10⁹,
        and dictionaries and keyword arguments of the builder.
    """

    def row(
        name: str,
        parameters: int,
        multiply_adds: float,
        *numbers: dict[str, Any],
        **changes: Any,
    ) -> Variant:
        merged = {**common, **changes}
        for each in numbers:
            merged |= each
        counts: dict[str, Any] = {
            "parameters": parameters,
            "multiply_adds": multiply_adds,
        }
        return Variant(name, builder, **counts, **merged)

    return row
