"""Checks the names of models and datasets without importing Keras or TensorFlow.

These imports take seconds; a misspelt name gives an error before them.
"""

import ast
import difflib
import importlib.util
import os
from pathlib import Path

# Names of `kerasvit.data.built_in`, whose import takes seconds.
BUILT_IN = ("digits", "mnist_subset", "debian_fashion_mnist")


def check_model(name: str, small=()) -> None:
    """Raises a `ValueError` for a model that does not exist.

    Args:
        name: Name of a model.
        small: Names of the models that the recipe defines.
    """
    check_name("model", name, [*small, *models()])


def check_model_or_path(name: str, setting: str) -> None:
    """Raises a `ValueError` for what is no path and no name of a model."""
    path = Path(name).expanduser()
    if "://" in name or path.exists():
        return
    variant, _, tag = name.partition("/")
    of_kerasvit = tag and variant in models()
    of_keras = name.isidentifier() and name[0].isupper()  # such as ResNet50
    if not of_kerasvit and not of_keras:
        raise ValueError(
            f"`{setting}`: there is no file or folder {name} (working directory: "
            f"{Path.cwd()}). Public weights are named as ViTB16/sam."
        )


def models() -> list[str]:
    """Returns `kerasvit.list_models()`, read from the families' source.

    A line of each defines a variant: `ViTB16 = _vit("ViTB16", …)`.
    """
    package = importlib.util.find_spec("kerasvit")  # imports nothing
    names = []
    for source in sorted((Path(package.origin).parent / "models").glob("*.py")):
        for statement in ast.parse(source.read_text(encoding="utf-8")).body:
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(args=[ast.Constant(value=given), _, *_]),
                ) if name == given:
                    names.append(name)
    return names


def check_dataset(name: str, setting: str = "dataset", others=()) -> None:
    """Raises a `ValueError` for a dataset that does not exist.

    Args:
        name: Name of a dataset of `BUILT_IN`, of tensorflow-datasets, or prepared in
            its folder; with or without `/config` and `:version`.
    """
    if name in BUILT_IN:
        return
    import tensorflow_datasets  # takes a second; imports TensorFlow later

    known = tensorflow_datasets.list_builders(with_community_datasets=False)
    root = Path(data_location()).expanduser()
    infos = [*root.glob("*/*/dataset_info.json"), *root.glob("*/*/*/dataset_info.json")]
    prepared = sorted({info.relative_to(root).parts[0] for info in infos})
    stem = name.split("/")[0].split(":")[0]
    check_name(setting, stem, [*others, *BUILT_IN, *prepared, *known])


def data_location() -> str:
    """Returns the folder or URL of the prepared datasets of tensorflow-datasets."""
    return os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def located(text: str) -> str:
    """Returns a text with this folder in place of the default one."""
    return text.replace("~/tensorflow_datasets", data_location())


def check_name(argument: str, name: str, known) -> None:
    """Raises a `ValueError` with close matches if `name` is not in `known`."""
    if name not in known:
        # Matches without case, so that vitb16 is close to ViTB16.
        lower = {other.lower(): other for other in known}
        near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
        near = [lower[match] for match in near] or list(known)[:20]
        near = ", ".join(near)
        raise ValueError(f"`{argument}`: there is no {name!r}. Close: {near}.")
