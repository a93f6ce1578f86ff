"""Objects that Python's garbage collector knows."""

import gc
from collections.abc import Iterator
from typing import Any


def living(kind: type) -> list[Any]:
    """Returns all objects of a class and of those derived from it."""
    kinds = set(map(id, _derived(kind)))  # a class need not be hashable
    return [each for each in gc.get_objects() if id(type(each)) in kinds]


def _derived(kind: type) -> Iterator[type]:
    yield kind
    below: list[type] = type.__subclasses__(kind)
    for each in below:
        yield from _derived(each)
