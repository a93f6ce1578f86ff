"""`Description`: what a checkpoint says of the model that its tensors are of."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TokenGrid:
    """A tensor whose size depends on the number of patches.

    Attributes:
        tensor: Name in the file.
        rows: Number of rows: one for each patch and, in some tables, one for each
            class or register token.
        stride: Pixels from one patch to the next.
        prefix: Number of class and register tokens, which have rows unless the model's
            `positions` are those of the patches alone.
    """

    tensor: str
    rows: int
    stride: int
    prefix: int = 0

    def cells(self, positions: str = "tokens") -> int:
        """Returns the number of patches, given the builder's `positions`."""
        return self.rows - (self.prefix if positions == "tokens" else 0)


@dataclass(frozen=True)
class Description:
    """What the tensors and the configuration of a checkpoint say of the model.

    Attributes:
        code_base: The code base whose conventions the weights follow, such as "timm";
            None: this package's.
        builder: Name of the function that builds such models.
        numbers: Arguments of the builder that identify the architecture, such as
            `width` and `depth`, as far as the tensors tell them.
        arguments: Other arguments of the builder that the weights were trained with.
        kernel: How the code base resamples position tables.
        grid: The tensor that depends on the number of patches, or None.
        stride: Pixels from one patch to the next, where `grid` is None.
        image_size: (height, width) in pixels that the configuration states, or None.
        label_names: Names of the classes, "imagenet1k", or None. Unchecked: they come
            from a file.
        open_arguments: Arguments of the builder that no file states: their values here
            are assumptions.
        assumptions: Further assumptions, in words.
        architecture: The name by which the configuration calls the model, or "".
        saved: Whether `save_pretrained` wrote the files, so that `arguments` is
            complete.
        variant: The row of the zoo that a saved model is of, or None.
        base: {"source", "license"}: the repository that the weights come from, or None.
        transform: The evaluation transform that the files state, a
            `kerasvit.Preprocessing`, or None.
        transform_error: Why the stated transform cannot be made, or None.
        transform_size: (height, width) of the images that the files state a transform
            to, or None.
        path: The file of tensors, for messages.
    """

    code_base: str | None
    builder: str
    numbers: dict[str, Any]
    arguments: dict[str, Any]
    kernel: str
    grid: TokenGrid | None = None
    stride: int = 1
    image_size: tuple[int, int] | None = None
    label_names: Any = None
    open_arguments: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    architecture: str = ""
    saved: bool = False
    variant: str | None = None
    base: dict[str, str | None] | None = None
    transform: Any = None
    transform_error: ValueError | None = field(default=None, compare=False)
    transform_size: tuple[int, int] | None = None
    path: str = ""
