"""`Variant`: a named model, defined by a builder and its arguments, and its `help`."""

import inspect
import logging
import re
import textwrap
from collections.abc import Callable, Iterable
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
from .image_model import ImageModel

log = logging.getLogger("kerasvit")

WIDTH = 88  # of a docstring


class OfInstances:
    """An attribute that each instance computes when it is asked for.

    Args:
        of_class: Value of the class itself.
        compute: Function of an instance.
    """

    def __init__(self, of_class: Any, compute: Callable[[Any], Any]) -> None:
        self.of_class = of_class
        self.compute = compute

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.of_class if instance is None else self.compute(instance)


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
    __signature__ = OfInstances(None, lambda self: signature_of(self))

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
        state: str | None = None,
        dtype: Any = None,
        **changes: Any,
    ) -> ImageModel:
        """Builds the model.

        Args:
            weights: None for fresh weights; the tag of public weights, such as "sam",
                which are downloaded; an entry of `kerasvit.list_weights`; the path of a
                `.safetensors`, `.npz` or `.pth` file, or of a folder that
                `save_pretrained` wrote; or "hf://user/repository[@revision]".
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
            state: Which of several models in a file, such as "ema" in one with
                `model` and `model_ema`; or what the names of a part begin with, such
                as "teacher.backbone". None: the only one.
            dtype: Dtype or policy of the layers, as in any Keras layer:
                "mixed_bfloat16", "float16" or a `keras.DTypePolicy`. None: Keras's
                global policy. Weights are cast.
            **changes: Other arguments of the builder, which override those of the
                weights. The kernel of the patches is resampled to another `patch_size`,
                as in FlexiViT (arXiv 2212.08013).

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
            state=state,
        )
        if weights is None:
            return build_fresh(self, request)
        return retried(weights, lambda: load(weights, self, request))

    def preprocessing(
        self, weights: GivenWeights | None = None, *, state: str | None = None
    ) -> Preprocessing:
        """Returns the evaluation transform of weights, without building the model.

        Args:
            weights: Argument `weights` of a call.
            state: Argument `state` of a call.

        Raises:
            ValueError: The weights cannot be read or belong to another model
                (`CheckpointError`).
        """
        if weights is None:
            return Preprocessing(self.size, **self.evaluation)
        if entry := catalogue_entry(weights, self):
            return transform_of(entry)
        checkpoint = find(weights, self.label, state)
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


def signature_of(variant: Variant) -> inspect.Signature:
    """Returns the arguments of a variant's call, then those of its builder.

    Those of the builder have the defaults of the variant.
    """
    call = inspect.signature(type(variant).__call__)
    known = {k: p for k, p in call.parameters.items() if k not in ("self", "changes")}
    defaults = {**variant.defaults, **variant.numbers}
    for name, parameter in inspect.signature(variant.builder).parameters.items():
        default = defaults.get(name, parameter.default)
        known.setdefault(name, parameter.replace(default=default))
    return call.replace(parameters=[*known.values()])


def documentation_of(variant: Variant, tags: Iterable[str]) -> str:
    """Returns the docstring of a variant.

    Args:
        variant: Variant.
        tags: Names of its public weights.
    """
    call, builder = (_sections(f) for f in (type(variant).__call__, variant.builder))
    first, _, more = builder["text"].partition("\n")
    about = re.sub(r"^Builds an? (.*?): .*", r"\1", first) or variant.builder.__name__
    weights = ", ".join(f'"{tag}"' for tag in tags)
    what = "A call builds the model. Settings that weights state replace the defaults."
    counts, speed = _counts(variant)
    paragraphs = [
        f"{variant.label}: {about}{counts}.",
        speed,
        variant.paper.partition("\n")[2].strip(),
        more.strip(),
        textwrap.fill(f"Public weights: {weights}.", WIDTH) if weights else "",
        what,
        f"Args:\n{_arguments(variant, call['Args'], builder['Args'])}",
        f"Returns:\n{call['Returns']}",
        f"Raises:\n{call['Raises']}",
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _counts(variant: Variant) -> tuple[str, str]:
    """Returns (end of the first line, sentence) on the size; "" if it is not known."""
    if variant.parameters is None:
        return "", ""
    height, width = variant.size
    return (
        f", {variant.parameters:,} parameters, {height} × {width} pixels",
        f"{variant.multiply_adds:g} G multiply-adds for one image of this size.",
    )


def _sections(function: Callable[..., Any]) -> dict[str, str]:
    """Returns {"text" or heading of a section: its text} of a docstring."""
    sections = dict.fromkeys(("Args", "Returns", "Raises"), "")
    document = inspect.getdoc(function) or ""  # none under `python -OO`
    parts = re.split(rf"^({'|'.join(sections)}):\n", document, flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    return {**sections, "text": parts[0], **{k: v.rstrip() for k, v in found}}


def _arguments(variant: Variant, call: str, builder: str) -> str:
    """Returns the section of arguments, in the order of the signature."""
    entries = {**_entries(builder), **_entries(call)}
    common = inspect.signature(type(variant).__call__).parameters
    lines = []
    for name, parameter in inspect.signature(variant).parameters.items():
        entry = entries.get(name, f"    {name}:")
        if name not in common and parameter.default is not parameter.empty:
            entry = _with_sentence(entry, f"Default: {parameter.default!r}.")
        elif name in variant.defaults:  # stated by weights
            fresh = variant.defaults[name]
            entry = _with_sentence(entry, f"Fresh weights: {fresh!r}.")
        lines.append(entry)
    return "\n".join(lines)


def _entries(section: str) -> dict[str, str]:
    """Returns {argument: its entry} of a section of arguments."""
    found = re.split(r"^(?=    \S)", section, flags=re.MULTILINE)
    entries = [entry.rstrip() for entry in found if entry.strip()]
    return {entry.partition(":")[0].strip(): entry for entry in entries}


def _with_sentence(entry: str, sentence: str) -> str:
    """Returns the entry of an argument with one more sentence."""
    last = entry.rpartition("\n")[2]
    if len(last) + len(sentence) < WIDTH:
        return f"{entry} {sentence}"
    indent = " " * 8
    lines = textwrap.wrap(
        sentence, WIDTH, initial_indent=indent, subsequent_indent=indent
    )
    return "\n".join([entry, *lines])
