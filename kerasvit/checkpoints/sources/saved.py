"""Source for folders that `save_pretrained` wrote."""

import re
from collections.abc import Iterable, Set
from typing import Any

from kerasvit.arguments import Size
from kerasvit.types import PatchSize

from ..config import Config, Shapes
from ..description import Description, Statement
from ..key_map import KeyMap
from ..reader import CheckpointError
from .known import CODE_BASES, SOURCES, VARIABLE_PATHS, resampling_kernel
from .source import Source

# Newest supported format of the key `kerasvit` in config.json. A folder with adapters
# has format 2, because earlier versions would load the base weights alone, and so has
# one with quantised kernels.
FORMAT = 2

# Kernels of position tables that a file may have.
_KERNELS = (None, "bilinear_antialias", *(source.kernel for source in SOURCES))
_TYPES: dict[str, Any] = {
    "builder": str, "kwargs": dict, "preprocessing": dict, "format_version": int,
    "variant": (str, type(None)), "weights_sha256": (str, type(None)),
    "adapters_sha256": (str, type(None)), "problem_type": (str, type(None)),
    "calibration": (dict, type(None)),
}  # fmt: skip


class SavedFolder(Source):
    """A folder whose config.json contains the record of the model.

    Args:
        names: Names of the tensors in the file.
        config: Content of config.json.

    Raises:
        CheckpointError: The record is damaged or has a newer format.
    """

    def __init__(self, names: Iterable[str], config: Config) -> None:
        record = config.get("kerasvit")
        self._record = _checked(record if isinstance(record, dict) else {})
        self._naming = _naming(self._record, names)
        self.code_base = self._naming.code_base
        self.builder = self._record["builder"]
        own = resampling_kernel(self._record.get("origin"), self.builder)
        self.kernel = self._record.get("kernel") or own

    def recognises(self, names: Set[str]) -> bool:
        return True

    def describe(self, shapes: Shapes, config: Config) -> Description:
        record = self._record
        own, trained = _sizes(record)
        arguments = {**record["kwargs"], **({"image_size": own} if own else {})}
        return Description(
            code_base=record.get("origin"),
            builder=self.builder,
            numbers={},
            arguments=arguments,
            kernel=self.kernel,
            stride=_stride(Config(record["kwargs"])),
            image_size=trained,
            label_names=record.get("label_names") or config.get("label_names"),
            problem_type=config.text("problem_type") or record.get("problem_type"),
            calibration=record.get("calibration"),
            saved=True,
            variant=record.get("variant"),
            base=_base(record.get("base")),
            preprocessing=Statement("kerasvit", record["preprocessing"]),
            quantization=_quantization(record.get("quantization", [])),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return self._naming.key_map(kwargs, shapes)

    def short_name(self, name: str) -> str:
        return self._naming.short_name(name)

    def dropped(self, name: str, names: Set[str]) -> str | None:
        return self._naming.dropped(name, names)


def _naming(record: dict[str, Any], names: Iterable[str]) -> Source:
    """Returns the source that matches the tensor names."""
    if record.get("weights_format") == VARIABLE_PATHS.code_base:
        return VARIABLE_PATHS
    for source in SOURCES:
        if source.recognises({source.short_name(name) for name in names}):
            return source
    return VARIABLE_PATHS


def _stride(kwargs: Config) -> PatchSize:
    """Returns the stride of the patches in pixels, with that of a hybrid's ResNet."""
    stages = kwargs.get("resnet_depths")
    resnet = 4 * 2 ** max(len(stages) - 1, 0) if isinstance(stages, list) else 1
    height, width = kwargs.image_size("patch_size") or (1, 1)  # one side, or both
    return height * resnet, width * resnet


def _sizes(record: dict[str, Any]) -> tuple[Size | None, Size | None]:
    """Returns the image sizes of the model and of its weights.

    For a model for images of any size, that of the weights is that of the position
    table, and without one that of the transform.
    """
    kwargs = Config(record["kwargs"])
    size = kwargs.image_size("image_size", any_size=True)
    if size is None or not size.is_any:
        return size, size
    table = kwargs.part("resampling").image_size("image_size")
    return size, table or Config(record["preprocessing"]).image_size("size")


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the record after checking the types of its fields."""
    written = record.get("format_version")
    if isinstance(written, int) and written > FORMAT:
        raise CheckpointError(
            f"it was written by a newer kerasvit (format {written}; this one reads up "
            f"to {FORMAT}). Upgrade: pip install -U kerasvit."
        )
    wrong = [k for k, kind in _TYPES.items() if not isinstance(record.get(k), kind)]
    for name in ("weights_sha256", "adapters_sha256"):
        sha256 = record.get(name)
        if isinstance(sha256, str) and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
            wrong.append(name)
    if record.get("origin") not in (None, *CODE_BASES):
        wrong.append("origin")
    if record.get("kernel") not in _KERNELS:
        wrong.append("kernel")
    if not str(record.get("variant")).isprintable():
        wrong.append("variant")
    if wrong:
        raise CheckpointError(
            "its config.json is damaged: the object `kerasvit` has missing or wrong "
            f"values of {', '.join(wrong)}. Save the model again."
        )
    return record


def _quantization(groups: Any) -> tuple[dict[str, Any], ...]:
    """Returns the quantised layers that the record states, checked."""
    for group in groups if isinstance(groups, list) else [None]:
        stated: dict[str, Any] = group if isinstance(group, dict) else {}
        size, layers = stated.get("block_size"), stated.get("layers")
        known = (
            stated.get("mode") in ("int8", "int4", "float8")
            and isinstance(stated.get("inputs"), bool)
            and isinstance(layers, list)
            and all(isinstance(path, str) for path in layers)
            and (size in (None, -1) or isinstance(size, int) and size > 0)
        )
        if not known:
            raise CheckpointError(
                "its config.json is damaged: `quantization` must list quantised layers "
                f"as save_pretrained writes them. Received: {group!r:.200}. Save the "
                "model again."
            )
    return tuple({"block_size": None, **group} for group in groups)


def _base(base: Any) -> dict[str, str | None] | None:
    """Returns {"source", "license"} of the weights that training started from."""
    if base is None:
        return None
    known = isinstance(base, dict) and isinstance(base.get("source"), str)
    if not known or not isinstance(base.get("license"), (str, type(None))):
        raise CheckpointError(
            "its config.json is damaged: `base` must have `source` and `license`. "
            f"Received: {base!r:.200}. Save the model again."
        )
    return base
