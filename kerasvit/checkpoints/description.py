"""`Description`: the model that a checkpoint describes."""

from dataclasses import dataclass, field
from typing import Any

from kerasvit.arguments import Size
from kerasvit.types import PatchSize

from .reader import CheckpointError


@dataclass(frozen=True)
class TokenGrid:
    """A tensor whose size depends on the number of patches.

    Attributes:
        tensor: Name in the file.
        rows: Number of rows: one per patch and, in some tables, one per class or
            register token.
        stride: Distance between neighbouring patches in pixels, or (height, width).
        prefix: Number of class and register tokens. They have rows unless the model's
            `positions` argument is "patches".
    """

    tensor: str
    rows: int
    stride: PatchSize
    prefix: int = 0

    def cells(self, positions: str = "tokens") -> int:
        """Returns the number of patches, given the builder's `positions`."""
        return self.rows - (self.prefix if positions == "tokens" else 0)


@dataclass(frozen=True)
class Statement:
    """The evaluation transform as files or the catalogue state it.

    Attributes:
        form: Whose settings these are: "kerasvit", "timm", "keras_hub" or
            "transformers".
        settings: Settings in this form, from a file and not checked.
        path: Path of the file that states them, for messages.
        model_type: transformers' name of the model, which determines defaults.
        sized: Whether the weights were trained for images of the transform's size.
        error: Why the file cannot be read, or None.
    """

    form: str
    settings: Any
    path: str = ""
    model_type: Any = None
    sized: bool = False
    error: CheckpointError | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Description:
    """The model that the tensors and the configuration of a checkpoint describe.

    A source sets the fields of the network and of saved folders; `Checkpoint` adds what
    does not depend on the source: `path`, `problem_type`, `preprocessing`, `base`.

    Attributes:
        code_base: Name of the code base whose conventions the weights follow, such as
            "timm"; None for kerasvit.
        builder: Name of the function that builds the model.
        numbers: Arguments of the builder that identify the architecture, such as
            `width` and `depth`, as far as the tensors determine them.
        arguments: Other arguments of the builder that the weights were trained with;
            `image_size` is a `Size`.
        kernel: Kernel with which the code base resamples position tables.
        grid: The tensor whose size depends on the number of patches, or None.
        stride: Distance between neighbouring patches in pixels, if `grid` is None.
        image_size: (height, width) in pixels that the configuration states, or None.
        label_names: Names of the classes, "imagenet1k", or None. The value comes from
            a file and is not checked.
        problem_type: What the outputs mean, in transformers' words:
            "single_label_classification", "multi_label_classification", "regression";
            None: not stated.
        open_arguments: Arguments of the builder that no file states; their values are
            assumptions.
        assumptions: Other assumptions, as text.
        architecture: Name of the model in the configuration, or "".
        saved: Whether `save_pretrained` wrote the files, so that `arguments` is
            complete.
        variant: Name of the saved model's variant, or None.
        base: {"source", "license"} of the repository of the weights, or None.
        quantization: Quantised layers, as `kerasvit.quantization.settings_of` returns.
        preprocessing: The evaluation transform that is stated, or None.
        transform: Fields of `Preprocessing` in which the code base's transform of this
            model differs from its default, for files that state none.
        path: Path of the tensor file, for messages.
    """

    code_base: str | None
    builder: str
    numbers: dict[str, Any]
    arguments: dict[str, Any]
    kernel: str
    grid: TokenGrid | None = None
    stride: PatchSize = 1
    image_size: Size | None = None
    label_names: Any = None
    problem_type: str | None = None
    calibration: dict[str, Any] | None = None
    open_arguments: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    architecture: str = ""
    saved: bool = False
    variant: str | None = None
    base: dict[str, str | None] | None = None
    quantization: tuple[dict[str, Any], ...] = ()
    preprocessing: Statement | None = None
    transform: dict[str, Any] = field(default_factory=dict)
    path: str = ""
