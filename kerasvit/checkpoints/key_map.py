"""`KeyMap`: the map between tensor names of a file and variable paths of a model."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Transform:
    """A reversible layout change between one array of a file and arrays of a model."""

    read: Callable
    write: Callable


def _one(read: Callable, write: Callable) -> Transform:
    return Transform(lambda a: [read(a)], lambda arrays: write(*arrays))


# Torch kernels: dense layers (out, in), convolutions (out, in, height, width).
SAME = _one(lambda a: a, lambda a: a)
TRANSPOSE = _one(np.transpose, np.transpose)
CONVOLUTION = _one(lambda a: a.transpose(2, 3, 1, 0), lambda a: a.transpose(3, 2, 0, 1))

# 1 × 1 convolutions that are dense layers in kerasvit. Kernels: torch (out, in, 1, 1),
# flax (1, 1, in, out).
TORCH_POINTWISE = _one(lambda a: a[:, :, 0, 0].T, lambda a: a.T[:, :, None, None])
FLAX_POINTWISE = _one(lambda a: a[0, 0], lambda a: a[None, None])


def reshaped(shape: tuple[int, ...]) -> Transform:
    """Returns the transform of a tensor that the file stores in another shape.

    Args:
        shape: Shape in the file. A tensor that is read becomes 1-dimensional.
    """
    return _one(lambda a: a.reshape(-1), lambda a: a.reshape(shape))


def stacked(count: int) -> Transform:
    """Returns the transform of kernels or biases that torch stores in one tensor."""
    return Transform(
        lambda a: [part.T for part in np.split(a, count)],
        lambda arrays: np.concatenate([a.T for a in arrays]),
    )


def split_heads(num_heads: int, axis: int) -> Transform:
    """Returns the transform of an axis that Flax stores as (heads, D / heads)."""

    def read(a: np.ndarray) -> np.ndarray:
        joined = a.shape[axis] * a.shape[axis + 1]
        return a.reshape(*a.shape[:axis], joined, *a.shape[axis + 2 :])

    def write(a: np.ndarray) -> np.ndarray:
        size = a.shape[axis] // num_heads
        return a.reshape(*a.shape[:axis], num_heads, size, *a.shape[axis + 1 :])

    return _one(read, write)


def torch_dense(name: str, path: str) -> tuple[tuple, ...]:
    """Returns the rules of a torch dense layer."""
    return (
        (f"{name}.weight", f"{path}/kernel", TRANSPOSE),
        (f"{name}.bias", f"{path}/bias"),
    )


def torch_stacked(name: str, *paths: str) -> tuple[tuple, ...]:
    """Returns the rules of dense layers whose kernels torch stores in one tensor."""
    return tuple(
        (f"{name}.{what}", tuple(f"{path}/{part}" for path in paths), together)
        for together in [stacked(len(paths))]
        for what, part in (("weight", "kernel"), ("bias", "bias"))
    )


def torch_norm(name: str, path: str) -> tuple[tuple, ...]:
    """Returns the rules of a torch layer or group normalisation."""
    return (f"{name}.weight", f"{path}/gamma"), (f"{name}.bias", f"{path}/beta")


def torch_batch_norm(name: str, path: str) -> tuple[tuple, ...]:
    """Returns the rules of a torch batch normalisation.

    Its `num_batches_tracked` has no variable here: the source's `dropped` names it.
    """
    return (
        *torch_norm(name, path),
        (f"{name}.running_mean", f"{path}/moving_mean"),
        (f"{name}.running_var", f"{path}/moving_variance"),
    )


def _pattern(text: str) -> re.Pattern[str]:
    text = re.sub(r"\\{([ijk])\\}", r"(?P<\1>\\d+)", re.escape(text))
    return re.compile(text.replace(r"\{path\}", r"(?P<path>.+)"))


def _match(pattern: re.Pattern[str], text: str) -> dict[str, str] | None:
    """Returns {placeholder: matched text}, or None."""
    match = pattern.fullmatch(text)
    return match and match.groupdict()


class KeyMap:
    """A list of rules that map tensor names to variable paths.

    Args:
        *rules: Tuples (name in the file, variable path or tuple of paths, optional
            `Transform` of the layout). The placeholders `{i}`, `{j}` and `{k}` match
            numbers and `{path}` matches any text. A placeholder has the same value in
            the name and in the paths.

    Attributes:
        rules: The arguments.
    """

    def __init__(self, *rules: tuple) -> None:
        self.rules, self._rules = rules, []
        for name, paths, *transform in rules:
            paths = (paths,) if isinstance(paths, str) else paths
            patterns = [_pattern(path) for path in paths]
            self._rules.append(
                (name, _pattern(name), paths, patterns, *(transform or [SAME]))
            )

    def find(self, name: str) -> tuple[list[str], Transform] | None:
        """Returns (variable paths, transform) for a name in the file, or None."""
        for _, pattern, paths, _, transform in self._rules:
            if (values := _match(pattern, name)) is not None:
                return [path.format(**values) for path in paths], transform
        return None

    def name(self, path: str) -> str | None:
        """Returns the name in the file for a variable path, or None."""
        for name, _, _, patterns, _ in self._rules:
            for pattern in patterns:
                if (values := _match(pattern, path)) is not None:
                    return name.format(**values)
        return None

    def write(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Converts {variable path: array} to {name in the file: array}.

        Raises:
            ValueError: No rule matches one of the paths.
        """
        names: dict[str, Any] = {path: self.name(path) for path in arrays}
        if unknown := [path for path, name in names.items() if name is None]:
            raise ValueError(f"The key map has no rule for {unknown}.")
        tensors = {}
        for name in dict.fromkeys(names.values()):
            paths, transform = self.find(name)  # type: ignore[misc]  # it is known
            tensors[name] = transform.write([arrays[path] for path in paths])
        return tensors
