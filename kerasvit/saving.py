"""Saving of models to folders and to the Hugging Face Hub."""

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from kerasvit.preprocessing import Preprocessing

from .adapters import base_weights, merged_weights
from .arguments import one_of
from .backend.threads import using
from .checkpoints import ADAPTERS
from .hub.card import Facts, write_card
from .hub.upload import check_target, prepare, upload
from .hub.writing import local_folder, page_of, write_model
from .loaded_card import card_of
from .lora import content_of_adapters
from .quantization import settings_of
from .records import found_record

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo


def save_pretrained(
    model: keras.Model,
    folder: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    label_names: list[str] | None = None,
    license: str | None = None,
    base_model: str | None = None,
    datasets: list[str] | None = None,
    metrics: dict[str, float | dict[str, Any]] | None = None,
    training: dict[str, Any] | None = None,
    card: str | None = None,
    name: str | None = None,
    keep_adapters: bool = False,
) -> Path:
    """Writes config.json, model.safetensors and README.md into a folder.

    The tensors have timm's names and layout if timm can express the model, so that timm
    also reads the folder. Otherwise, and for quantised models, the names are the
    variable paths.
    `from_pretrained(folder)` and variants, such as `ViTB16(folder)`, load the folder on
    any backend.

    A generated README.md is replaced if it is unchanged. The text of other README.md
    files is kept, and the arguments of this function are added to their metadata.

    A model that was loaded from a folder or from the Hub keeps its card, the README.md
    there, as `model.card`: the new card has its text and metadata, in which stated
    arguments replace what they are about. Where the weights, the image size or the
    transform have changed since, its results are left out, and its text is marked. A
    model with another head keeps the licence alone. Set `model.card` to None to begin
    anew.

    config.json contains the SHA-256 of model.safetensors. Loading raises an error if
    they do not match, because the folder is damaged or has files of two saves.

    All files are written under temporary names and renamed when they are complete. An
    interrupted save leaves the old model or the new one. Between the last two renamings
    it leaves the new config.json beside the old tensors, for which loading raises an
    error until the model is saved again. Weights are converted one tensor at a time, so
    that saving needs little memory.

    Args:
        model: `ImageModel`; for a trainer pass `trainer.model`.
        folder: Path of the folder, which is created if necessary.
        dtype: "float16" or "bfloat16" halves the file. None: that of the variables.
            Quantised kernels keep theirs.
        label_names: Names of the classes in the order of the head, or "imagenet1k".
            None: those of `model.record`.
        license: SPDX identifier for the card. None: that of the initial weights, if
            known.
        base_model: Repository of the initial weights. None: that of the record, if
            known.
        datasets: Names of the training datasets.
        metrics: Results on the first dataset, such as {"accuracy": 0.93}. A dict may
            replace the number: {"value": 0.93, "dataset": "my photos", "split": "test",
            "images": 413, "interval_95": (0.90, 0.95)}, of which only "value" is
            required.
        training: Settings of the training for a table in the card, such as
            {"method": "SAM, rho 0.1", "epochs": 30}.
        card: Text of the README.md, which replaces an existing one. Metadata at its
            start are kept.
        name: Name of the model in the card. None: the folder's name.
        keep_adapters: Whether to write the adapters of `add_lora` into a file of their
            own, adapters.safetensors, from which loading adds them again. timm cannot
            load this folder. Otherwise the kernels are written with their adapters, and
            the model in memory keeps both.

    Returns:
        The folder, a `pathlib.Path`.

    Raises:
        ValueError: The model has no record or weights that are not finite, or an
            argument is wrong; nothing is written.
    """
    folder = local_folder(folder)
    stated = license, base_model, datasets, metrics, training, card
    facts = Facts(*stated, keep_adapters, quantized=_modes(model))
    _check_text({"label_names": label_names, "name": name, **vars(facts)})
    record, transform = _ready(model, label_names)
    before = page_of(folder)
    # The card contains no path. The folder's name may contain bytes that are no text.
    name = name or folder.resolve().name.encode(errors="replace").decode()
    with using(model.variables):
        page = write_card(record, name, facts, before, card_of(model))
        return write_model(
            folder,
            record=record,
            pretrained_cfg=transform,
            dtype=dtype,
            page=page if page != before else None,
            **_content(model, keep_adapters),
        )


def push_to_hub(
    model: keras.Model,
    repo_id: str,
    *,
    token: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    endpoint: str | None = None,
    dtype: str | None = None,
    label_names: list[str] | None = None,
    license: str | None = None,
    base_model: str | None = None,
    datasets: list[str] | None = None,
    metrics: dict[str, float | dict[str, Any]] | None = None,
    training: dict[str, Any] | None = None,
    card: str | None = None,
    keep_adapters: bool = False,
    adapters_only: bool = False,
) -> "CommitInfo":
    """Uploads a model to the Hugging Face Hub in the format of `save_pretrained`.

    The upload is one commit, which deletes earlier weights and their certificate.json.
    The repository is created if necessary. The card of a loaded model goes with it, all
    text in its README.md.

    Args:
        model: `ImageModel`; for a trainer pass `trainer.model`.
        repo_id: "user/name".
        token: Token with write permission. None: that of `hf auth login`. It is not
            stored.
        private: Whether a new repository is private. None: the default of the user's
            account. If True, an existing repository must be private.
        revision: Branch, which is created if necessary. None: main.
        create_pr: Whether to open a pull request instead; not with `revision`.
        commit_message: Message of the commit. None: a default that names kerasvit.
        endpoint: Address of another Hub.
        dtype, label_names, license, base_model, datasets, metrics, training, card,
            keep_adapters: Arguments of `save_pretrained`.
        adapters_only: Whether to upload the file of `save_adapters` and the card alone,
            without the base weights, which `load_adapters(model, "hf://user/name")`
            adds to a model with these. The repository must not hold a model.

    Returns:
        `huggingface_hub.CommitInfo`, with `commit_url` and `pr_url`.

    Raises:
        ValueError: The model or an argument is wrong, and no request was sent; or the
            upload failed (`UploadError`).
    """
    access: dict[str, Any] = {
        "token": token,
        "private": private,
        "endpoint": endpoint,
        "revision": revision,
    }
    commit_options = {"create_pr": create_pr, "commit_message": commit_message}
    check_target(repo_id, **access, **commit_options)
    one_of("adapters_only", adapters_only, (True, False))
    if adapters_only and (dtype is not None or label_names is not None):
        raise ValueError(
            "`dtype` and `label_names` are for whole models: leave them out with "
            "`adapters_only`, or set model.record['label_names']."
        )
    stated = license, base_model, datasets, metrics, training, card
    facts = Facts(
        *stated,
        keep_adapters or adapters_only,
        alone=adapters_only,
        quantized=_modes(model),
    )
    _check_text({"label_names": label_names, **vars(facts)})
    record, transform = _ready(model, label_names)
    with tempfile.TemporaryDirectory() as folder:
        with using(model.variables):
            loaded, content = card_of(model), _content(model, facts.adapters)
            if adapters_only:
                Path(folder, ADAPTERS).write_bytes(content["adapters"])
            else:
                content |= {"record": record, "pretrained_cfg": transform}
                write_model(Path(folder), dtype=dtype, **content)
        client, before = prepare(repo_id, **access, with_model=not adapters_only)
        where = f"hf://{repo_id}" + (f"@{revision}" if revision else "")
        page = write_card(record, where, facts, before, loaded)
        if page != before:
            Path(folder, "README.md").write_bytes(page)
        return upload(
            client,
            folder,
            repo_id,
            revision=revision,
            create_pr=create_pr,
            message=commit_message,
        )


def record_of(model: Any) -> dict[str, Any]:
    """Returns the record of a model.

    Raises:
        ValueError: The model has no record.
    """
    record = found_record(model)
    if record is None:
        raise ValueError(
            f"The model must be one that kerasvit built. Received: {model!r}, without "
            "a record. A clone of keras.models.clone_model has a record if it computes "
            "the same function. A part of a model has none, such as that of "
            "kerasvit.features: pass the whole model, and call `features` again after "
            "loading it. For a trainer pass trainer.model."
        )
    return record


def _content(model: keras.Model, keep_adapters: bool) -> dict[str, Any]:
    """Returns the arguments `weights` and others of `write_model`."""
    quantization = settings_of(model)
    if keep_adapters:
        weights, adapters = base_weights(model), content_of_adapters(model)
        return {"weights": weights, "adapters": adapters, "quantization": quantization}
    return {"weights": merged_weights(model), "quantization": quantization}


def _modes(model: Any) -> str:
    """Returns the modes of the quantised layers, such as "int8"; "" for none."""
    if not isinstance(model, keras.Model):
        return ""  # an error follows
    return " and ".join(dict.fromkeys(group["mode"] for group in settings_of(model)))


def _check_text(arguments: dict[str, Any]) -> None:
    """Raises for text with a lone surrogate, which UTF-8 cannot encode."""
    for key, value in arguments.items():
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"`{key}` must be text that UTF-8 can encode. Received: {value!r:.200}."
            ) from error


def _ready(
    model: keras.Model, label_names: list[str] | str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (record of a model, preprocessing in timm's format), both checked."""
    record = dict(record_of(model))
    if label_names is not None:
        record["label_names"] = label_names
    names, classes = record["label_names"], record["kwargs"]["num_classes"]
    if isinstance(names, (list, tuple)) and len(names) == classes:
        record["label_names"] = names = list(names)
        fits = all(isinstance(name, str) for name in names)
    else:
        imagenet = isinstance(names, str) and names == "imagenet1k" and classes == 1000
        fits = names is None or imagenet
    if not fits:
        raise ValueError(
            f"`label_names`, or else those of the record, must name {classes} classes. "
            f"Received: {names!r:.200}."
        )
    _check_text({"label_names": names})
    if record["preprocessing"] is None:
        raise ValueError(
            "The model's record has no preprocessing: set model.preprocessing = "
            "kerasvit.Preprocessing(size, ...) before it is saved."
        )
    transform = Preprocessing.from_config(record["preprocessing"])
    return record, transform.to_timm()
