"""`Variant`: a named model, defined by a builder and its arguments."""

import inspect
import logging
from collections.abc import Callable
from typing import Any

from kerasvit.arguments import Size
from kerasvit.hub.manifest import published
from kerasvit.loading.find import GivenWeights, catalogue_entry, find
from kerasvit.loading.load import build_fresh, load, retried
from kerasvit.loading.request import Builder, Request, read_labels
from kerasvit.loading.resolve import resolve
from kerasvit.loading.transforms import transform_of
from kerasvit.preprocessing import Preprocessing

from .checks import check_names
from .documentation import OfInstances, documentation_of, signature_of
from .image_model import ImageModel

log = logging.getLogger("kerasvit")


class Variant:
    """A named model; a call builds it and loads `weights`.

    Args:
        name: Exported name; None for a model that is not exported.
        builder: Function with the decorator `builder`, which returns an `ImageModel`.
        parameters: Number of trainable parameters with all defaults.
        multiply_adds: Multiply-adds in units of 10⁹ for one image of the default size.
        architecture: Beginning of the architecture's name in config.json, such as
            "deit", for a variant that may have the numbers of another one.
        evaluation: Fields of `Preprocessing` that differ from those of timm's ViTs, for
            fresh weights and for timm's files that state no preprocessing.
        paper: Docstring of the family's module, of which `help` shows all but the first
            line.
        **arguments: Arguments of the builder that define this variant. Arguments with a
            default in the builder replace the default; a checkpoint can override them.
    """

    # A variant has a docstring and a signature of its own, with all its arguments.
    __doc__ = OfInstances(
        __doc__, lambda self: documentation_of(self, published(self.name))
    )
    __signature__ = OfInstances(None, signature_of)

    def __init__(
        self,
        name: str | None,
        builder: Builder,
        *,
        parameters: int | None = None,
        multiply_adds: float | None = None,
        architecture: str = "",
        evaluation: dict[str, Any] | None = None,
        paper: str | None = None,
        **arguments: Any,
    ) -> None:
        self.name = name
        self.builder = builder
        self.parameters = parameters
        self.multiply_adds = multiply_adds
        self.architecture = architecture
        self.evaluation = evaluation or {}
        self.paper = paper or ""
        signature = inspect.signature(builder).parameters.values()
        defaults = {p.name: p.default for p in signature if p.default is not p.empty}
        defaults.pop("dtype", None)  # neither variants nor files state it
        self.arguments = arguments
        self.numbers = {k: v for k, v in arguments.items() if k not in defaults}
        replaced = {k: v for k, v in arguments.items() if k in defaults}
        self.defaults = {**defaults, **replaced}
        self.size = Size.of(self.defaults["image_size"])

    def __repr__(self) -> str:
        tags = ", ".join(published(self.name))
        return self._summary() + (f"; weights: {tags}" if tags else "")

    def _summary(self) -> str:
        text = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        call = f"{self.label}({text})"
        if self.parameters is None:
            return call
        height, width = self.size
        return (
            f"{call}: {self.parameters:,} parameters, {self.multiply_adds:g} G "
            f"multiply-adds at {height} × {width}"
        )

    def __call__(
        self,
        weights: GivenWeights | None = None,
        *,
        num_classes: int | None = None,
        image_size: int | tuple[int, int] | tuple[None, None] | None = None,
        include_preprocessing: bool | None = None,
        source_grid: tuple[int, int] | None = None,
        kernel: str | None = None,
        preprocessing: Preprocessing | dict[str, Any] | None = None,
        label_names: list[str] | str | None = None,
        dtype: Any = None,
        **changes: Any,
    ) -> ImageModel:
        """Builds the model.

        Args:
            weights: None for fresh weights; the tag of public weights, such as "sam",
                which are downloaded; an entry of `kerasvit.list_weights`; the path of a
                `.npz` or `.safetensors` file, or of a folder that `save_pretrained`
                wrote; or "hf://user/repository[@revision]".
            num_classes: Number of classes of the head. None: that of the weights. A
                number that differs from it gives a fresh head; 0 builds the model
                without a head.
            image_size: Height and width in pixels; an int for a square. None: the size
                for which the weights were trained. For other sizes the position table
                is resampled. (None, None): the model takes images of any size, of
                which its patches are a part; it resamples the table in each call. Not
                for models with windows or MLPs across tokens.
            include_preprocessing: True adds the normalisation to the model, which then
                takes pixels from 0 to 255. False removes it from a model that was saved
                with it. None: as in the saved model, else False.
            source_grid: (height, width) in patches of the file's position table, for
                files that do not determine it.
            kernel: Kernel to resample the position table, one of
                `kerasvit.layers.resampling.KERNELS`. None: as the code base of the
                weights does.
            preprocessing: Transform of the images, a `Preprocessing` or a dict of its
                fields; `size` is optional and must be that of the model. None: that of
                the weights, or else the default of their code base.
            label_names: Names of the classes in the order of the head: a list, or the
                path of a text file with one name per line. None: those of the weights.
            dtype: Dtype or policy of the layers, as in any Keras layer:
                "mixed_bfloat16", "float16" or a `keras.DTypePolicy`. None: Keras's
                global policy. Weights are cast.
            **changes: Other arguments of the builder, which override those of the
                weights.

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
            changes["image_size"] = image_size
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
        """Returns the evaluation transform of weights, without building the model.

        Args:
            weights: Argument `weights` of a call.

        Raises:
            ValueError: The weights cannot be read or belong to another model
                (`CheckpointError`).
        """
        if weights is None:
            return Preprocessing(self.size, **self.evaluation)
        if entry := catalogue_entry(weights, self):
            return transform_of(entry)
        checkpoint = find(weights, self.label)
        plan = resolve(checkpoint.description, self, Request())
        if plan.transform_note:
            log.warning("%s", plan.transform_note)
        return Preprocessing.from_config(plan.record["preprocessing"])

    @property
    def label(self) -> str:
        """Name of the variant for messages."""
        return self.name or self.builder.__name__

    @property
    def required(self) -> set[str]:
        """Arguments of the builder that have no default."""
        known = set(inspect.signature(self.builder).parameters) - {"dtype"}
        return known - set(self.defaults)

    @property
    def siblings(self) -> list["Variant"]:
        """Exported variants with the same builder."""
        from . import VARIANTS  # that module imports the families, and they this one

        return [each for each in VARIANTS if each.builder is self.builder]

    def check_names(self, changes: dict[str, Any], before: str = "") -> None:
        """Raises a `ValueError` for arguments that the builder does not have."""
        known = set(inspect.signature(self.builder).parameters)
        if before:  # arguments of a file, which cannot state the dtype
            known.discard("dtype")
        else:
            call = inspect.signature(Variant.__call__).parameters
            known.update(call.keys() - {"self", "changes"})
        check_names(self.label, changes, known, before)


def rows_of(builder: Builder, **common: Any) -> Callable[..., Variant]:
    """Returns a function that defines the variants of a family, one line each.

    Args:
        builder: Builder of the family.
        **common: Arguments of `Variant` that all variants share.

    Returns:
        Function of the name, the number of parameters, the multiply-adds in units of
        10⁹, and dictionaries and keyword arguments of `Variant`.
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
