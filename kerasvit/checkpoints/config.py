"""`Config`: the content of a config.json with type-checked access."""

import re
from typing import Any

from .reader import CheckpointError


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
        return None if value is None else int(value)

    def image_size(self, key: str) -> tuple[int, int] | None:
        """Returns (height, width) from one or two integers, or None."""
        value = self.get(key)
        sides = [value] * 2 if isinstance(value, int) else value
        if value is None or sides == []:
            return None
        if (
            not isinstance(sides, (list, tuple))
            or len(sides) != 2
            or not all(isinstance(side, int) and side > 0 for side in sides)
        ):
            raise self._wrong(key, "one or two positive integers")
        return int(sides[0]), int(sides[1])

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
