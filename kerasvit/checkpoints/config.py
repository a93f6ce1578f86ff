"""`Config` and `Shapes`: the content of config.json and of a header, type-checked."""

import io
import json
import os
import re
from pathlib import Path
from typing import Any, NoReturn

from kerasvit.arguments import MAX_SIDE, ArgumentError, Size
from kerasvit.types import PatchSize

from .reader import CheckpointError, printable

MAX_JSON = 16_000_000  # bytes

# Limit on the number of commas in a configuration. A configuration of 21,843 classes
# contains each name twice, with up to ten commas each. The limit bounds the memory: an
# empty list takes 3 bytes in the file and 64 bytes in memory.
MAX_VALUES = 500_000


class Config(dict[str, Any]):
    """The content of a config.json, or a part of it.

    A configuration is untrusted input. A source that computes with a value reads it
    with one of these methods. The builder checks values that are only passed on.

    Raises:
        CheckpointError: Raised by the methods if a value has another type.
    """

    def text(self, key: str) -> str:
        """Returns a string; "" if the key is missing."""
        return self._typed(key, str, "a string") or ""

    def part(self, key: str) -> "Config":
        """Returns an object; an empty one if the key is missing."""
        return Config(self._typed(key, dict, "an object") or {})

    def integer(self, key: str) -> int | None:
        """Returns an integer, or None."""
        value = self._typed(key, int, "an integer")
        if isinstance(value, bool):
            raise self._wrong(key, "an integer")
        return value

    def image_size(self, key: str, *, any_size: bool = False) -> Size | None:
        """Returns (height, width) from one or two integers, or None.

        Args:
            key: Key of the size.
            any_size: Whether (None, None) is allowed.
        """
        value = self.get(key)
        if value is None or value == []:
            return None
        try:
            return Size.of(value, any_size=any_size)
        except ArgumentError as error:
            expected = f"one or two integers in [1, {MAX_SIDE}]"
            raise self._wrong(key, expected) from error

    def names(self, key: str) -> Any:
        """Returns a list of names, also from an object {number: name}."""
        names = self.get(key)
        if not isinstance(names, dict):
            return names
        if not all(re.fullmatch("[0-9]{1,9}", number) for number in names):
            raise self._wrong(key, "an object with numbers as keys")
        return [names[number] for number in sorted(names, key=int)]

    def _typed(self, key: str, kind: type, expected: str) -> Any:
        value = self.get(key)
        if value is not None and not isinstance(value, kind):
            raise self._wrong(key, expected)
        return value

    def _wrong(self, key: str, expected: str) -> CheckpointError:
        return CheckpointError(
            f"its config.json must have {expected} as `{key}`. Received: "
            f"{self[key]!r:.200}. Use the complete files, or correct that value."
        )


class Shapes(dict[str, tuple[int, ...]]):
    """{name: shape} of tensors, with checked access.

    A checkpoint is untrusted input, so sources read tensor shapes with these methods.

    Raises:
        CheckpointError: Raised by `shapes[name]` and the methods if a tensor is missing
            or has another rank.
    """

    def __missing__(self, name: str) -> NoReturn:
        raise CheckpointError(
            f"it is not a complete model: the tensor {name} is missing. Use the "
            "complete file."
        )

    def of(self, name: str, rank: int) -> tuple[int, ...]:
        """Returns a shape of the given rank without empty axes."""
        shape = self[name]
        if len(shape) != rank or 0 in shape:
            raise CheckpointError(
                f"it is not a complete model: {printable(name)} must have {rank} axes, "
                f"none of size 0. Received: the shape {tuple(shape)}. Use the complete "
                "file."
            )
        return shape

    def patch_size(self, name: str, first: int = 2) -> PatchSize:
        """Returns P of a kernel of patches, or [height, width] of rectangular ones.

        Args:
            name: Name of the tensor, of four axes.
            first: Axis of the height, before that of the width.
        """
        height, width = self.of(name, 4)[first : first + 2]
        return height if height == width else [height, width]

    def square_patch(self, name: str, first: int = 2) -> int:
        """Returns P of a kernel of patches, as `patch_size`, for models of squares."""
        height, width = self.of(name, 4)[first : first + 2]
        if height != width:
            raise CheckpointError(
                f"its patches have {height} × {width} pixels; of this architecture "
                "kerasvit builds models with square ones."
            )
        return height

    def side(self, name: str, axis: int, rank: int, default: int | None = None) -> Any:
        """Returns the size of an axis of a tensor; `default` if it is missing."""
        return self.of(name, rank)[axis] if name in self else default


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Reads the object in a JSON file; {} if the file does not exist.

    Raises:
        CheckpointError: The file does not contain a JSON object.
    """
    try:
        content = _parsed(path, _short(Path(path)).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"{path} holds text that is not Unicode: {error}. Remove it there."
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object.")
    return content


def _parsed(path: str | os.PathLike, text: str) -> Any:
    """Parses JSON with a limited number of values."""
    if (count := text.count(",")) > MAX_VALUES:
        raise CheckpointError(
            f"{path} holds {count:,} values; configurations have at most "
            f"{MAX_VALUES:,}."
        )
    content = json.loads(text)
    if "\\u" in text:
        # JSON can escape a lone surrogate, which UTF-8 cannot encode.
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    return content


def _short(path: Path) -> bytes:
    """Reads a file with a size limit."""
    if not path.is_file():
        if os.path.lexists(path):
            raise CheckpointError(f"{path} must be a file: it is of another kind.")
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        content = file.read(MAX_JSON + 1)
        if len(content) > MAX_JSON:
            length = file.seek(0, io.SEEK_END)
            raise CheckpointError(
                f"{path} has {length:,} bytes; configurations have at most "
                f"{MAX_JSON:,}."
            )
    return content
