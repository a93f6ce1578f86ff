"""Models from folders and into folders, and at another resolution."""

import tempfile

import keras

from . import models
from .checkpoints import assign, resampling_kernel, variable_paths
from .hub.download import fetch_repository, parse_address
from .hub.repository import find_weights, write_folder
from .hub.upload import prepare, upload
from .layers import values_follow
from .layers.position_embedding import check_resampling
from .models import Variant
from .models.arguments import sides
from .preprocessing import Preprocessing


def save_pretrained(
    model,
    folder,
    *,
    dtype: str | None = None,
    license: str | None = None,
    base_model: str | None = None,
    datasets: list[str] | None = None,
    metrics: dict[str, float] | None = None,
    training: dict | None = None,
    card: str | None = None,
    name: str | None = None,
):
    """Writes config.json, model.safetensors and README.md into a folder.

    The tensors have timm's names and layout where timm can express the model, so that
    timm reads the folder too; else the variables' paths. The folder loads with
    `from_pretrained(folder)` or `ViTB16(folder)`, on any backend.

    Args:
        model: `ImageModel`. Of a trainer, give `trainer.model`.
        folder: Made where it does not exist. A README.md that is there is kept.
        dtype: "float16" or "bfloat16" halves the file; None: that of the variables.
        license: SPDX identifier, for the card; None: that of the weights it began
            with, where they have a name.
        base_model: Repository it was trained from; None: likewise.
        datasets: Names of what it was trained on.
        metrics: Results on the first of them, such as {"accuracy": 0.93}.
        training: How it was trained, for a table in the card, such as
            {"method": "SAM, rho 0.1", "epochs": 30}.
        card: Text of the README.md, in place of the one that is written.
        name: What the card calls the model; None: the folder.

    Returns:
        The folder, a `pathlib.Path`.

    Raises:
        ValueError: The model has no record, or an argument is wrong.
    """
    transform = _checked(model)
    return write_folder(
        model,
        folder,
        transform.to_timm(),
        dtype=dtype,
        license=license,
        base_model=base_model,
        datasets=datasets,
        metrics=metrics,
        training=training,
        card=card,
        name=name,
    )


def push_to_hub(
    model,
    repo_id: str,
    *,
    token: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    endpoint: str | None = None,
    **facts,
):
    """Puts a model on the Hugging Face Hub, as `save_pretrained` writes it.

    One commit; the repository is made where it does not exist, weights of before are
    deleted, and a README.md that is there is kept unless `card` is given.

    Args:
        model: `ImageModel`. Of a trainer, give `trainer.model`.
        repo_id: "user/name".
        token: With the right to write; None: that of `hf auth login`. Kept nowhere.
        private: Whether a new repository is private; None: as the user's settings say.
        revision: Branch, made where it does not exist; None: main.
        create_pr: Opens a pull request in place of writing.
        commit_message: None: one that names kerasvit.
        endpoint: Address of another Hub.
        **facts: `dtype`, `license`, `base_model`, `datasets`, `metrics`, `training` and
            `card`, as for `save_pretrained`.

    Returns:
        `huggingface_hub.CommitInfo`, with `commit_url` and `pr_url`.

    Raises:
        ValueError: The model has no record; or it could not be uploaded, and why
            (`UploadError`).
    """
    _checked(model)
    access = {"token": token, "private": private, "endpoint": endpoint}
    client, has_readme = prepare(repo_id, **access)
    with tempfile.TemporaryDirectory() as place:
        save_pretrained(model, place, name=f"hf://{repo_id}", **facts)
        return upload(
            client,
            place,
            repo_id,
            revision=revision,
            create_pr=create_pr,
            message=commit_message,
            readme="card" in facts or not has_readme,
        )


def _checked(model):
    """The evaluation transform of a model that can be saved."""
    record = _record_of(model)
    names, classes = record["label_names"], record["kwargs"]["num_classes"]
    listed = isinstance(names, (list, tuple)) and len(names) == classes
    if not listed and names not in (None, "imagenet1k"):
        raise ValueError(
            f"The record's `label_names` must name {classes} classes, or be None. "
            f"Received: {names!r:.200}."
        )
    return Preprocessing.from_config(record["preprocessing"])


def from_pretrained(
    weights,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir=None,
    endpoint: str | None = None,
    local_files_only: bool = False,
    **changes,
):
    """A model from a folder, or from a repository of the Hugging Face Hub.

    Args:
        weights: Path of a folder that `save_pretrained` wrote, or of a `.safetensors`
            or `.npz` file of a known code base; or "hf://user/repository[@revision]"
            of ours, timm's or transformers', of an architecture in this package.
        revision: Branch, tag or commit of the repository; None: the newest.
        token: Of the Hub; None: that of `hf auth login`. It is kept nowhere.
        cache_dir: Folder for downloads; None: the Hub's usual cache.
        endpoint: Address of another Hub; None: that of HF_ENDPOINT, or the usual one.
        local_files_only: Takes what is in the cache and asks nobody.
        **changes: As for a variant: `num_classes`, `image_size`, `kernel`, and any
            argument of the builder.

    Raises:
        ValueError: There is nothing, or it is damaged, or of no known architecture
            (`CheckpointError`); or a change is wrong.
    """
    if isinstance(weights, str) and weights.startswith("hf://"):
        repository, said = parse_address(weights)
        if revision and said and revision != said:
            raise ValueError(
                f"`revision` is given twice: {revision!r} and in {weights!r}."
            )
        weights = fetch_repository(
            repository,
            revision or said,
            token=token,
            cache_dir=cache_dir,
            endpoint=endpoint,
            local_files_only=local_files_only,
        )
    checkpoint = find_weights(weights, None)
    if checkpoint.record:
        return _variant(checkpoint.record)(weights, **changes)
    return fitting_variant(checkpoint)(weights, **changes)


def resize(model, image_size, kernel=None):
    """The same model for images of another size, its position table resampled.

    Args:
        model: `ImageModel`; it is left as it is.
        image_size: Height and width in pixels, multiples of the patch size; an int for
            a square.
        kernel: How to resample, one of `kerasvit.layers.resampling.KERNELS`; None: as
            the code base the weights come from does (Google: corner-aligned linear,
            timm: antialiased bicubic).

    Returns:
        A new `ImageModel` with its own variables, not compiled; fine-tune it for best
        accuracy.

    Raises:
        ValueError: The model has no record, or the size does not fit.
    """
    record = _record_of(model)
    check_resampling(kernel, None)
    kwargs = {**record["kwargs"], "image_size": sides(image_size), "name": model.name}
    policy = keras.config.dtype_policy()
    first = next(layer for layer in model.layers if layer.weights)
    keras.config.set_dtype_policy(first.dtype_policy)
    try:
        with values_follow():
            resized = _variant(record)(**kwargs)
    finally:
        keras.config.set_dtype_policy(policy)
    assign(
        resized,
        _Live(model),
        variable_paths.key_map(kwargs),
        source_grids=_grids(model),
        kernel=kernel or resampling_kernel(record["origin"], record["builder"]),
    )
    transform = Preprocessing.from_config(record["preprocessing"])
    transform = transform.with_size(resized.record["kwargs"]["image_size"])
    resized.record = {
        **record,
        "kwargs": resized.record["kwargs"],
        "preprocessing": transform.to_config(),
    }
    for layer, old in zip(resized.layers, model.layers, strict=True):
        layer.trainable = old.trainable
    for variable, old in zip(resized.weights, model.weights, strict=True):
        variable.trainable = old.trainable  # of layers inside layers
    if not model.trainable:
        resized.trainable = False
    return resized


class _Live:
    """A model's variables, read like a checkpoint."""

    path = "the model"

    def __init__(self, model):
        self._variables = {v.path: v for v in model.weights}
        self.shapes = {path: tuple(v.shape) for path, v in self._variables.items()}

    def __getitem__(self, path):
        return keras.ops.convert_to_numpy(self._variables[path])


def _grids(model):
    """{layer: (height, width)} of those that can resample."""
    return {layer.name: layer.grid for layer in model.layers if hasattr(layer, "grid")}


def _variant(record):
    builder = models.BUILDERS.get(record["builder"])
    if builder is None:
        raise ValueError(
            f"This version has no builder {record['builder']!r}. It has "
            f"{', '.join(models.BUILDERS)}. Upgrade: pip install -U kerasvit."
        )
    return Variant(record.get("variant"), builder)


def fitting_variant(checkpoint):
    """The row of the zoo that a checkpoint without a record is of, or a new one."""
    builder = models.BUILDERS[checkpoint.builders[0]]
    said = {**checkpoint.builder_changes, **checkpoint.sizes}
    rows = [
        row
        for row in vars(models).values()
        if isinstance(row, Variant) and row.builder is builder and row.fits(said)
    ]
    # DeiT's models are ViTs by all numbers; timm's configuration tells them apart.
    deit = str(checkpoint.config.get("architecture", "")).startswith("deit")
    rows = [row for row in rows if row.name.startswith("DeiT") == deit] or rows
    return rows[0] if rows else Variant(None, builder, **checkpoint.sizes)


def _record_of(model):
    """A model's record.

    Raises:
        ValueError: It has none.
    """
    record = getattr(model, "record", None)
    if not isinstance(record, dict):
        raise ValueError(
            f"The model must be one that kerasvit built. Received: {model!r}, without "
            "a record. keras.models.clone_model drops it; of a trainer give "
            "trainer.model; other models have none."
        )
    return record
