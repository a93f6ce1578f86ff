"""LoRA: training of low-rank adapters in a frozen model."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras

from .adapters import (
    adapted_layers,
    attach,
    base_weights,
    dense_layers,
    detach,
    rank_and_alpha,
    trained_weights,
)
from .arguments import ArgumentError, integer, number, one_of
from .backend.keras_private import layers_in
from .checkpoints import (
    ADAPTERS,
    PEFT_CONFIG,
    PEFT_FILES,
    AdapterFile,
    CheckpointError,
    PeftFolder,
    adapter_bytes,
    new_files,
    peft_files,
    replace_file,
)
from .hub.access import check_for_hub, on_hub
from .hub.download import fetch_adapters
from .hub.writing import local_folder
from .loading.load import load_file
from .loading.resolve import HEADS
from .models import ImageModel

QUERY_AND_VALUE = "attention/(query|value)"


def add_lora(
    model: keras.Model,
    rank: int = 8,
    layers: str = QUERY_AND_VALUE,
    *,
    alpha: float | None = None,
    train_norms: bool = False,
) -> None:
    """Adds a low-rank adapter to dense layers of a model and freezes its other weights.

    The kernel W of such a layer becomes W + alpha / rank · A B, with A of He's uniform
    distribution and B zero, so that the outputs do not change at first. Only A, B and
    the heads are trained. Like `enable_lora` of Keras's layers, which it calls, it
    changes the model in place. Call it before `compile` and before building a trainer:
    an optimizer trains the weights that it was built with.

        kerasvit.fit_head(model, (x, y))
        kerasvit.add_lora(model, rank=8)
        model.compile(keras.optimizers.AdamW(2e-3), loss)
        model.fit(x, y, epochs=4)
        kerasvit.merge_lora(model)                  # optional: `save_pretrained` merges

    `.keras` files, weights files of Keras and clones keep adapters; functional models
    of a part of the layers are saved with merged kernels.

    Args:
        model: `ImageModel`; for a trainer pass `trainer.model`.
        rank: Number of columns of A, from 1 to the shorter side of the smallest kernel.
        layers: Regular expression, searched in the paths of the dense layers, such as
            "encoder_block_0/attention/query". The default are the query and value
            projections, the paper's choice (section 4.2), of all families with
            attention. Mixers need another one, such as "channel_mixing". Heads never
            have an adapter.
        alpha: Scale of the adapters, > 0. None: `rank`, as in Keras, for a factor of 1.
        train_norms: Whether normalisation layers are trained, too. Otherwise batch
            normalisation also keeps its moving statistics.

    Raises:
        ValueError: The model is not an `ImageModel`, has adapters or quantised kernels;
            `layers` matches none of its layers; or a number is out of range.

    Reference: Hu et al. 2021, arXiv 2106.09685, equation 3.
    """
    image_model = _image_model(model)
    if adapted_layers(image_model):
        raise ValueError(
            f"{image_model.name} has adapters already. Call kerasvit.merge_lora(model) "
            "before adding others."
        )
    rank = integer("rank", rank, 1, meaning="of the adapters")
    alpha = float(rank) if alpha is None else number("alpha", alpha, positive=True)
    chosen = _matching(image_model, layers)
    for path, layer in chosen.items():
        if layer.quantization_mode is not None:
            raise ValueError(
                "Adapters need kernels of floating point: train and merge them before "
                f"`quantize`. Received: {path}, quantised as {layer.quantization_mode}."
            )
        if rank > (side := min(layer.kernel.shape)):
            raise ArgumentError(
                f"`rank` must be at most {side}, the shorter side of the kernel of "
                f"{path}. Received: rank={rank}.",
                "rank",
            )
    settings = {
        "rank": rank,
        "alpha": alpha,
        "layers": list(chosen),
        "trained": _trained_layers(image_model, train_norms),
    }
    attach(image_model, settings)


def merge_lora(model: keras.Model) -> None:
    """Adds the adapters of a model to its kernels, in place, and removes them.

    Then the model has the variables of one that never had adapters, and those that were
    trainable before `add_lora` are trainable again. Compile it again to train it. It
    waits for `classify` and `inspection` in other threads; not for Keras's own calls.

    Args:
        model: `ImageModel` with adapters.

    Raises:
        ValueError: The model has no adapters, or its kernels are quantised.
    """
    detach(_adapted(model), merge=True)


def save_adapters(
    model: keras.Model, path: str | os.PathLike[str], *, format: str = "kerasvit"
) -> Path:
    """Writes the adapters of a model and its other trained weights.

    The model's base weights with them are the trained model: see `load_adapters`.
    They are the adapters, the heads, the norms if they are trained, and what else the
    caller has unfrozen; and rank, alpha and the layers' names.

    Folders of PEFT have the names of the library that the base weights come from, which
    the model remembers: those of transformers 5, for ViT, DeiT and DINOv2 with the
    heads that they have there; or of timm. Models with other weights have transformers'
    names if it has such a model, else timm's. Query, key and value are one module in
    timm: their adapters become one, of the sum of their ranks.

        kerasvit.save_adapters(model, "lora", format="peft")
        # elsewhere, with transformers and peft
        base = ViTForImageClassification.from_pretrained(folder, num_labels=10)
        model = PeftModel.from_pretrained(base, "lora")

    Args:
        model: `ImageModel` with adapters.
        path: Path of a `.safetensors` file, such as "adapters.safetensors"; for PEFT of
            a folder, which is created if necessary. Existing files are replaced when
            the new ones are complete.
        format: "kerasvit" for one file, or "peft" for adapter_config.json and
            adapter_model.safetensors.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        ValueError: The model has no adapters, quantised kernels or weights that are not
            finite; the path has another extension or no folder; or PEFT cannot express
            what is trained.
    """
    if one_of("format", format, ("kerasvit", "peft")) == "peft":
        files, folder = _peft_files(model), local_folder(path)
        folder.mkdir(parents=True, exist_ok=True)
        with new_files(folder) as new:
            for name, text in files.items():
                new.write(name, text)
            new.put()
        return folder
    content = content_of_adapters(model)
    file = Path()
    if isinstance(path, (str, os.PathLike)):
        file = Path(os.path.expanduser(path))
    if file.suffix != ".safetensors" or not file.parent.is_dir() or file.is_dir():
        raise ValueError(
            "`path` must be a .safetensors file in an existing folder. Received: "
            f"{path!r:.200}."
        )
    replace_file(file, content)
    return file


def load_adapters(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    local_files_only: bool = False,
) -> None:
    """Adds the adapters of a file to a model and loads the other trained weights.

    The model then is as after `add_lora` and the training, with the names of the
    classes; `merge_lora` merges.

    In folders of PEFT, the names of the modules may be those of timm or of transformers
    4 or 5, for any weights of the same architecture: give the model those with which
    the training began, which the folder does not identify. `rank_pattern`,
    `alpha_pattern`, `use_rslora`, `bias` and `modules_to_save` are applied; dropout of
    adapters, for training only, is not. Of a module for query, key and value, each of
    the three layers here gets adapters with the same first factor.

    Args:
        model: `ImageModel` with the base weights and the number of classes with which
            the training began. It is unchanged if an error is raised.
        path: Path of a file that `save_adapters` wrote, or of a folder with an
            adapters.safetensors; or of a folder of PEFT with an adapter_config.json,
            and an adapter_model.safetensors or adapter_model.bin; or
            "hf://user/repository[@revision]" with such files.
        token, cache_dir, endpoint, local_files_only: As for `from_pretrained`.

    Raises:
        ValueError: The files cannot be read or downloaded, or the adapters belong to
            another architecture, other shapes or classes, or other base weights
            (`CheckpointError`); or PEFT's adapters are of another method than LoRA; or
            the model has adapters.
    """
    image_model = _image_model(model)
    if adapted_layers(image_model):
        raise ValueError(
            f"{image_model.name} has adapters already. Call "
            "kerasvit.merge_lora(model), or load the base weights again."
        )
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"`path` must be the path of a file. Received: {path!r:.200}.")
    access: dict[str, Any] = {"token": token, "cache_dir": cache_dir}
    access |= {"endpoint": endpoint, "local_files_only": local_files_only}
    check_for_hub(path, access)
    where = Path(os.path.expanduser(path))
    if on_hub(path):
        where = fetch_adapters(path, access)
    if where.name in PEFT_FILES:
        _load_from_peft(image_model, where.parent)
    elif (where / PEFT_CONFIG).is_file():
        _load_from_peft(image_model, where)
    else:
        file = where / ADAPTERS if where.is_dir() else where
        _load_own(image_model, AdapterFile(file))


def _load_own(model: Any, file: AdapterFile) -> None:
    builder = model.record["builder"]
    if file.builder != builder:
        raise CheckpointError(
            f"{file.path} belongs to a {file.builder}. Received: the {builder} "
            f"{model.name}."
        )
    names = file.label_names
    if names is not None:
        _check_classes(model, file.path, len(names))
    file.check_base(model)
    load_file(model, file)
    if names is not None:
        model.record["label_names"] = names


def _load_from_peft(model: Any, folder: Path) -> None:
    variables = [variable.path for variable in model.weights]
    dense = dense_layers(model).keys() - set(HEADS)
    file = PeftFolder(folder, model.record, variables, dense)
    if file.num_classes is not None:
        _check_classes(model, file.path, file.num_classes)
    load_file(model, file)


def _check_classes(model: Any, path: Path, classes: int) -> None:
    """Raises a `CheckpointError` for a model with another number of classes."""
    if classes != (own := model.record["kwargs"]["num_classes"]):
        raise CheckpointError(
            f"{path} belongs to a model of {classes} classes. Build it with "
            f"num_classes={classes}. Received: {model.name} of {own}."
        )


def content_of_adapters(model: keras.Model) -> bytes:
    """Returns the content of the file that `save_adapters` writes."""
    image_model = _adapted(model)
    settings = {k: v for k, v in image_model.adapters.items() if k != "frozen"}
    settings["builder"] = image_model.record["builder"]
    if isinstance(names := image_model.record["label_names"], list):
        settings["label_names"] = names
    return adapter_bytes(image_model, trained_weights(image_model), settings)


def _peft_files(model: keras.Model) -> dict[str, bytes]:
    image_model = _adapted(model)
    settings, scales = image_model.adapters, {}
    for path in settings["layers"]:
        rank, alpha = rank_and_alpha(settings, path)
        scales[path] = alpha / rank
    variables = {v.path: tuple(v.shape) for v in base_weights(image_model)}
    weights = trained_weights(image_model)
    return peft_files(image_model.record, variables, weights, scales)


def _image_model(model: Any) -> Any:
    if isinstance(model, ImageModel) and model.record:
        return model
    raise ValueError(
        "`model` must be an ImageModel, which kerasvit's variants and builders return; "
        f"for a trainer pass trainer.model. Received: {model!r:.200}."
    )


def _adapted(model: Any) -> Any:
    if _image_model(model).adapters is None:
        raise ValueError(
            f"{model.name} has no adapters. Call kerasvit.add_lora(model) before the "
            "training."
        )
    for path, layer in adapted_layers(model).items():
        if layer.quantization_mode is not None:
            raise ValueError(
                f"The adapters of {model.name} cannot be merged or saved, because the "
                "kernels are quantised. Do it before `quantize`. Received: "
                f"{path}, quantised as {layer.quantization_mode}."
            )
    return model


def _matching(model: ImageModel, pattern: Any) -> dict[str, Any]:
    """Returns {path: layer} of the dense layers with an adapter."""
    try:
        expression = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ArgumentError(
            f'`layers` must be a regular expression, such as "{QUERY_AND_VALUE}". '
            f"Received: {pattern!r:.200}, {error}.",
            "layers",
        ) from error
    dense = {p: each for p, each in dense_layers(model).items() if p not in HEADS}
    chosen = {path: each for path, each in dense.items() if expression.search(path)}
    if not chosen:
        kinds = dict.fromkeys("/".join(path.split("/")[-2:]) for path in sorted(dense))
        exist = f"Its dense layers are: {', '.join(kinds)}" if kinds else "It has none"
        raise ArgumentError(
            f"`layers` must match dense layers of {model.name}, which is a "
            f"{(model.record or {}).get('builder')}. {exist}. Received: "
            f"layers={pattern!r}.",
            "layers",
        )
    return chosen


def _trained_layers(model: ImageModel, train_norms: bool) -> list[str]:
    """Returns the paths of the heads, and of the norms if they are trained."""
    layers: Iterable[Any] = layers_in(model, include_self=False)
    return [
        layer.path
        for layer in layers
        if layer.path in HEADS
        or (train_norms and layer.weights and "norm" in layer.name.split("_"))
    ]
