"""{name: tensor} → the variables of a model: all of them, or one complete error."""

import math

from .reader import CheckpointError


def assign(model, checkpoint, key_map, *, without=(), source_grids=None, kernel=None):
    """Gives a model the weights of a checkpoint.

    Everything is read and compared before the first variable is written.

    Args:
        model: Built `keras.Model`.
        checkpoint: `Checkpoint`: names, shapes and arrays.
        key_map: `KeyMap` from its names to the model's variable paths.
        without: Layers, by name, that keep their fresh values and whose tensors, if the
            file has some, are left out.
        source_grids: {layer: (h, w)}: the grids that its tables were made for; or None.
        kernel: Resampling kernel for a table of another grid.

    Raises:
        CheckpointError: Something is missing, unexpected or of another shape; the
            message lists all of it by the file's names.
    """
    variables = {
        variable.path: variable
        for variable in model.weights
        if not variable.path.startswith(tuple(f"{name}/" for name in without))
    }
    values, unexpected, misshaped = {}, [], []
    owners = {
        variable.path: layer
        for layer in model.layers
        if hasattr(layer, "resample")
        for variable in layer.weights
    }
    for name, shape in checkpoint.shapes.items():
        paths, transform = key_map.find(name) or ([], None)
        if paths and all(path.split("/")[0] in without for path in paths):
            continue
        if not paths or any(path not in variables for path in paths):
            unexpected.append(f"{name} {tuple(shape)}")
            continue
        try:
            # What cannot fit is not read: it may be a bomb.
            fits = owners.keys() & set(paths) or math.prod(shape) == sum(
                math.prod(variables[path].shape) for path in paths
            )
            arrays = transform.read(checkpoint[name]) if fits else [None] * len(paths)
        except CheckpointError:
            raise
        except (ValueError, IndexError):
            # A layout that the transform cannot take apart has another rank or size.
            arrays = [None] * len(paths)
        for path, array in zip(paths, arrays, strict=True):
            if path in owners and array is not None:
                owner = owners[path]
                grid = (source_grids or {}).get(owner.name)
                array = owner.resample(
                    array, path=path, source_grid=grid, kernel=kernel
                )
            wanted = tuple(variables[path].shape)
            if array is None or array.shape != wanted:
                misshaped.append(
                    f"{name} {tuple(shape)}: the model's {path} is {wanted}"
                )
            values[path] = array
    missing = [
        f"{key_map.name(path) or path} for {path} {tuple(variables[path].shape)}"
        for path in variables
        if path not in values
    ]
    if missing or unexpected or misshaped:
        raise CheckpointError(_complaint(checkpoint, missing, unexpected, misshaped))
    for path, array in values.items():
        variables[path].assign(array)


def _complaint(checkpoint, missing, unexpected, misshaped):
    blocks = [
        ("missing in the file", missing),
        ("unexpected: the model has no place for it", unexpected),
        ("mis-shaped", misshaped),
    ]
    lines = [f"{checkpoint.path} does not fit the model; nothing was loaded."]
    for title, names in blocks:
        if names:
            lines += [f"{title} ({len(names)}):"] + [f"  {name}" for name in names]
    return "\n".join(lines)
