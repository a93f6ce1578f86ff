"""Checks the names of models and data sets without importing Keras or TensorFlow.

These imports take seconds, after which a misspelt name would be refused.
"""

import ast
import difflib
import importlib.util
import os
from pathlib import Path

from built_in import SOURCES


def check_model(name: str, small=()) -> None:
    """Raises a `ValueError` for a model that does not exist.

    Args:
        name: Of the command.
        small: Names of the recipe's own models, which kerasvit does not have.
    """
    check_name("model", name, [*small, *models()])


def models() -> list[str]:
    """`kerasvit.list_models()`, read from the source of kerasvit.models."""
    package = importlib.util.find_spec("kerasvit")  # imports nothing
    source = Path(package.origin).parent / "models" / "__init__.py"
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "VARIANTS":
            return [variant.id for variant in statement.value.elts]
    raise LookupError(f"{source} assigns no VARIANTS.")


def check_dataset(name: str) -> None:
    """Raises a `ValueError` for a data set that does not exist.

    Args:
        name: Of `built_in.py`, of tensorflow-datasets, or of a data set that was
            prepared in its folder; with or without `/config` and `:version`.
    """
    if name in SOURCES:
        return
    import tensorflow_datasets  # a second: it imports TensorFlow when it needs it

    known = tensorflow_datasets.list_builders(with_community_datasets=False)
    root = Path(data_place()).expanduser()
    infos = [*root.glob("*/*/dataset_info.json"), *root.glob("*/*/*/dataset_info.json")]
    prepared = sorted({info.relative_to(root).parts[0] for info in infos})
    stem = name.split("/")[0].split(":")[0]
    check_name("dataset", stem, [*SOURCES, *prepared, *known])


def data_place() -> str:
    """Where tensorflow-datasets keeps what it has prepared: a folder or an address."""
    return os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def check_name(argument: str, name: str, known) -> None:
    """Raises a `ValueError` with close matches where `name` is not among the known."""
    if name not in known:
        # Without case, by hand: vitb16 is close to ViTB16.
        lower = {other.lower(): other for other in known}
        near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
        near = [lower[match] for match in near] or list(known)[:20]
        near = ", ".join(near)
        raise ValueError(f"`{argument}`: there is no {name!r}. Close: {near}.")
