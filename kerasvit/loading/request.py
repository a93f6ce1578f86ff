"""`Request`: the arguments that the caller of a variant states."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from kerasvit.arguments import is_any, sides_or_any
from kerasvit.layers.position_embedding import check_resampling
from kerasvit.preprocessing import Preprocessing


@dataclass(frozen=True)
class Request:
    """Arguments of the caller, which override those of the weights.

    Attributes:
        arguments: Arguments of the builder.
        preprocessing: Transform of the images, a `Preprocessing` or a dict of its
            fields. None: that of the weights.
        include_preprocessing: Whether the model normalises images itself. None: as in
            the model of the weights.
        source_grid: (height, width) in patches of the file's position table, or None.
        kernel: Kernel to resample the position table. None: as the code base of the
            weights does.
        label_names: Names of the classes. None: those of the weights.

    Raises:
        ValueError: An argument is wrong for any weights.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    preprocessing: Preprocessing | dict | None = None
    include_preprocessing: bool | None = None
    source_grid: tuple[int, int] | None = None
    kernel: str | None = None
    label_names: Any = None

    def __post_init__(self) -> None:
        check_resampling(self.kernel, self.source_grid)
        self._check_one_normalization()
        self.transform(self.arguments.get("image_size"))

    def transform(self, image_size: Any, trained: Any = 1) -> Preprocessing | None:
        """Returns the transform that the caller states, or None.

        Args:
            image_size: Image size of the model, an int or (height, width); None if it
                is not known yet; (None, None) for images of any size.
            trained: Image size of the weights, for a dict without `size` if the model
                takes images of any size.

        Raises:
            ValueError: The type or a field is wrong, or the size is not the model's, or
                `image_size` is not a size.
        """
        known = None if image_size is None else sides_or_any(image_size)
        size = None if known is None or is_any(known) else tuple(known)
        stated = self.preprocessing
        if stated is None:
            return None
        if isinstance(stated, dict):
            fields = {field.name for field in dataclasses.fields(Preprocessing)}
            if not set(stated) <= fields:
                raise ValueError(
                    "`preprocessing` must be a kerasvit.Preprocessing or a dict of its "
                    f"fields, {', '.join(sorted(fields))}. Received: {stated!r:.300}."
                )
            stated_size = stated.get("size", size or trained)
            stated = Preprocessing(**{**stated, "size": stated_size})
        if not isinstance(stated, Preprocessing):
            raise ValueError(
                "`preprocessing` must be a kerasvit.Preprocessing or a dict of its "
                f"fields. Received: {stated!r:.300}."
            )
        if size and stated.size != size:
            raise ValueError(
                f"`preprocessing` makes images of {stated.size[0]} × {stated.size[1]}, "
                f"and the model takes {size[0]} × {size[1]}. Pass the same "
                "`image_size`, or a dict without `size`."
            )
        return stated

    def _check_one_normalization(self) -> None:
        """Raises a `ValueError` if arguments contradict each other."""
        include = self.include_preprocessing
        normalization = self.arguments.get("normalization")
        if include is not None and not isinstance(include, bool):
            raise ValueError(
                "`include_preprocessing` must be True, False, or None for the setting "
                f"of the weights. Received: {include!r}."
            )
        if normalization and include is False:
            raise ValueError(
                "`include_preprocessing=False` removes the normalisation from the "
                "model, and `normalization` adds one: pass only one of them."
            )
        if normalization and self.preprocessing is not None:
            raise ValueError(
                "`normalization` and `preprocessing` both state a mean and a standard "
                "deviation: pass only `preprocessing`, with include_preprocessing=True."
            )
