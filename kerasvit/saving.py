"""Saves models to folders and to the Hugging Face Hub."""

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from kerasvit.preprocessing import Preprocessing

from .hub.card import Facts, write_card
from .hub.upload import check_target, prepare, upload
from .hub.writing import local_folder, page_of, write_model
from .records import found_record

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo


def save_pretrained(
    model: keras.Model,
    folder: str | os.PathLike,
    *,
    dtype: str | None = None,
    label_names: list[str] | None = None,
    license: str | None = None,
    base_model: str | None = None,
    datasets: list[str] | None = None,
    metrics: dict[str, float | dict] | None = None,
    training: dict | None = None,
    card: str | None = None,
    name: str | None = None,
) -> Path:
    """Writes config.json, model.safetensors and README.md into a folder.

    The tensors have timm's names and layout where timm can express the model, so that
    timm reads the folder too; else the variables' paths. The folder loads with
    `from_pretrained(folder)` or `ViTB16(folder)`, on any backend.

    A README.md that is there is replaced if it is as this wrote it. The text of another
    is kept, and what is given here goes into its metadata.

    config.json holds the SHA-256 of model.safetensors. A folder in which they do not
    agree is refused: it is damaged, or of two saves.

    A save that is stopped leaves the old model or the new one, or, for a moment at its
    end, config.json of the new one beside the old tensors: that is refused when it is
    loaded, until the model is saved again. The files come under their names when all
    are complete. Weights are converted one tensor after another, so that saving takes
    little memory.

    Args:
        model: `ImageModel`. Of a trainer, give `trainer.model`.
        folder: Made where it does not exist.
        dtype: "float16" or "bfloat16" halves the file; None: that of the variables.
        label_names: Names of the classes, in the order of the head, or "imagenet1k";
            None: those of `model.record`.
        license: SPDX identifier, for the card; None: that of the weights it began
            with, where it is known.
        base_model: Repository it was trained from; None: likewise.
        datasets: Names of what it was trained on.
        metrics: Results on the first of them, such as {"accuracy": 0.93}; or, in
            place of the number, {"value": 0.93, "dataset": "my photos", "split":
            "test", "images": 413}, of which only "value" must be there.
        training: How it was trained, for a table in the card, such as
            {"method": "SAM, rho 0.1", "epochs": 30}.
        card: Text of the README.md, in place of any other; metadata at its head are
            kept.
        name: What the card calls the model; None: the folder's name.

    Returns:
        The folder, a `pathlib.Path`.

    Raises:
        ValueError: The model has no record, or weights that are not finite numbers, or
            an argument is wrong; nothing is written.
    """
    folder = local_folder(folder)
    facts = Facts(license, base_model, datasets, metrics, training, card)
    _check_text({"label_names": label_names, "name": name, **vars(facts)})
    record, transform = _ready(model, label_names)
    before = page_of(folder)
    # No path of the user's; a folder's name may be of bytes that are no text.
    name = name or folder.resolve().name.encode(errors="replace").decode()
    page = write_card(record, name, facts, before)
    changed = page if page != before else None
    return write_model(folder, model, record, transform, dtype=dtype, page=changed)


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
    metrics: dict[str, float | dict] | None = None,
    training: dict | None = None,
    card: str | None = None,
) -> "CommitInfo":
    """Uploads a model to the Hugging Face Hub, as `save_pretrained` writes it.

    One commit; the repository is made where it does not exist, and weights of before
    are deleted.

    Args:
        model: `ImageModel`. Of a trainer, give `trainer.model`.
        repo_id: "user/name".
        token: With the right to write; None: that of `hf auth login`. Kept nowhere.
        private: Whether a new repository is private; None: as the user's settings say.
            A public one is refused if True.
        revision: Branch, made where it does not exist; None: main.
        create_pr: Opens a pull request in place of writing; not with `revision`.
        commit_message: None: one that names kerasvit.
        endpoint: Address of another Hub.
        dtype, label_names, license, base_model, datasets, metrics, training, card: As
            for `save_pretrained`.

    Returns:
        `huggingface_hub.CommitInfo`, with `commit_url` and `pr_url`.

    Raises:
        ValueError: The model or an argument is wrong, and nothing was asked of the Hub;
            or it could not be uploaded, and why (`UploadError`).
    """
    access: dict[str, Any] = {
        "token": token,
        "private": private,
        "endpoint": endpoint,
        "revision": revision,
    }
    commit_options = {"create_pr": create_pr, "commit_message": commit_message}
    check_target(repo_id, **access, **commit_options)
    facts = Facts(license, base_model, datasets, metrics, training, card)
    _check_text({"label_names": label_names, **vars(facts)})
    record, transform = _ready(model, label_names)
    with tempfile.TemporaryDirectory() as place:
        write_model(Path(place), model, record, transform, dtype=dtype)
        client, before = prepare(repo_id, **access)
        branch = f"@{revision}" if revision else ""
        page = write_card(record, f"hf://{repo_id}{branch}", facts, before)
        if page != before:
            Path(place, "README.md").write_bytes(page)
        return upload(
            client,
            place,
            repo_id,
            revision=revision,
            create_pr=create_pr,
            message=commit_message,
        )


def record_of(model: Any) -> dict:
    """Returns the record of a model.

    Raises:
        ValueError: It has none.
    """
    record = found_record(model)
    if record is None:
        raise ValueError(
            f"The model must be one that kerasvit built. Received: {model!r}, without "
            "a record. What keras.models.clone_model makes has one where it computes "
            "the same as the model, a part of a model has none; of a trainer give "
            "trainer.model."
        )
    return record


def _check_text(arguments: dict[str, Any]) -> None:
    """Raises for text with a lone surrogate, which no file can hold."""
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
    """Checks a model; returns its record and timm's preprocessing."""
    record = dict(record_of(model))
    if label_names is not None:
        record["label_names"] = label_names
    names, classes = record["label_names"], record["kwargs"]["num_classes"]
    if isinstance(names, (list, tuple)) and len(names) == classes:
        record["label_names"] = names = list(names)
        fits = all(isinstance(name, str) for name in names)
    else:
        word = isinstance(names, str) and names == "imagenet1k" and classes == 1000
        fits = names is None or word
    if not fits:
        raise ValueError(
            f"`label_names`, or else those of the record, must name {classes} classes. "
            f"Received: {names!r:.200}."
        )
    _check_text({"label_names": names})
    transform = Preprocessing.from_config(record["preprocessing"])
    return record, transform.to_timm()
