"""`Checkpoint`: a file of tensors and the configuration that describes it."""

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .config import Config, Shapes, read_json
from .description import Description, Statement
from .key_map import KeyMap
from .model_files import open_pair, weights_in
from .reader import CheckpointError, printable
from .sources import (
    VARIABLE_PATHS,
    Source,
    normalized,
    source_of,
    timm_source,
)
from .sources.timm_names import refuse_unlike
from .sources.transformers import refuse_type
from .states import model_names


def format_of(record: dict[str, Any]) -> tuple[Source, dict[str, Any] | None]:
    """Returns the format in which a model is saved.

    Args:
        record: Record of the model, with `builder` and `kwargs`.

    Returns:
        (source, timm's `config.json` for the model); (`VARIABLE_PATHS`, None) if timm
        has no such model.
    """
    source = timm_source(record["builder"])
    if source and (config := source.config(record)):
        return source, config
    return VARIABLE_PATHS, None


def why_not_timm(record: dict[str, Any]) -> str | None:
    """Returns why timm cannot read a model with this record; None if it can."""
    source = timm_source(record["builder"])
    return source.differs(record) if source else f"it has no {record['builder']}"


class Checkpoint:
    """The tensors of a file by name, and the description of their model.

    Args:
        path: A `.safetensors`, `.npz` or `.h5` file or one of `torch.save`, or a folder
            with `model.safetensors`, `pytorch_model.bin`, `tf_model.h5` or an index of
            shards. A `config.json` beside a file other than `.npz` is read too.
        known_hash: SHA-256 of the file at the time of an earlier check, or None.
        repository: Name of the repository on the Hub that the file is from, or None.
        state: Which of several models in the file, as for `model_names`; or None.
        **known: Fields of the description that the catalogue states. They replace those
            of the files; `arguments` are added to theirs.

    Attributes:
        path: Path of the file of tensors.
        known_hash: The argument `known_hash`.
        config: Content of `config.json`; {} without one.
        shapes: {short name: shape} of all tensors that the source does not drop.
        description: `Description` of the model.

    Raises:
        CheckpointError: The file cannot be read, its tensor names belong to no known
            code base, or kerasvit cannot build its model.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        known_hash: str | None = None,
        *,
        repository: str | None = None,
        state: str | None = None,
        **known: Any,
    ) -> None:
        path, self.known_hash = Path(os.path.expanduser(path)), known_hash
        if path.is_dir():
            path = weights_in(path)
        self.path = path
        config, self._reader = open_pair(path)
        with self._path_in_errors():
            self.config = normalized(Config(config))
            refuse_type(self.config)
            inner = model_names(
                self._reader, state, lambda names: bool(source_of(names, self.config))
            )
            self._source = self._recognised(inner.values())
            self._names = _kept_names(self._source, inner)
            self.shapes = Shapes(
                {name: self._reader.shapes[full] for name, full in self._names.items()}
            )
            self.description = self._described(repository, known)

    def _described(self, repository: str | None, known: dict[str, Any]) -> Description:
        """Returns the description of the source, the other files and the catalogue."""
        description = self._source.describe(self.shapes, self.config)
        arguments = {**description.arguments, **known.get("arguments", {})}
        beside: dict[str, Any] = {"path": str(self.path)}
        if not description.saved:
            kind = self.config.text("problem_type") or None
            preprocessing = None if known else _statement(self.path, self.config)
            beside |= {"problem_type": kind, "preprocessing": preprocessing}
            if repository:
                timm = self.config.get("pretrained_cfg")
                license = timm.get("license") if isinstance(timm, dict) else None
                license = license if isinstance(license, str) else None
                beside["base"] = {"source": repository, "license": license}
        return replace(description, **{**beside, **known, "arguments": arguments})

    def _recognised(self, names: Iterable[str]) -> Source:
        source = source_of(names, self.config)
        if source:
            return source
        if "." in (name := self.config.text("architecture")) or "_" in name:
            refuse_unlike(name.partition(".")[0])
        names = [*self._reader.shapes]
        some = ", ".join(f"{printable(name):.200}" for name in names[:5])
        if name := self.config.text("class_name"):
            raise CheckpointError(
                f"it holds a {name:.200}. Of keras-hub, kerasvit opens ViTBackbone, "
                "DeiTBackbone and DINOV3Backbone. Open it with keras-hub: "
                f"keras_hub.models.Backbone.from_preset({str(self.path.parent)!r})."
            )
        if self.path.suffix == ".h5":
            raise CheckpointError(
                f"the names of its arrays belong to no known code base: {some}, … If "
                "model.save_weights of Keras wrote it, build the same model and call "
                "model.load_weights(path). Otherwise give the .safetensors, .npz or "
                ".pth file of the same weights."
            )
        raise CheckpointError(
            f"the tensor names belong to no known code base: {some}, … The known code "
            "bases are timm, google-research/vision_transformer and big_vision, "
            "big_transfer, how-do-vits-work, torchvision's ViT, Swin and ResNeXt, "
            "keras-hub's ViT, DeiT and DINOv3, and transformers' ViT, DeiT, Swin, BiT, "
            "BEiT, data2vec, MAE, DINOv2, DINOv3, CLIP and SigLIP. A file that "
            "save_pretrained wrote needs the config.json beside it: copy the whole "
            "folder."
        )

    @contextmanager
    def _path_in_errors(self) -> Iterator[None]:
        try:
            yield
        except CheckpointError as error:
            raise CheckpointError(f"{self.path}: {error}") from error

    def __getitem__(self, name: str) -> np.ndarray:
        return self._reader[self._names[name]]

    def sha256(self) -> str:
        """Returns the SHA-256 of the tensor file in hex."""
        return self._reader.sha256()

    @property
    def stated_sha256(self) -> str:
        """The SHA-256 of the tensors that config.json states, or ""."""
        return self.config.part("kerasvit").text("weights_sha256").lower()

    @property
    def weight_count(self) -> int:
        """Total number of weights in all tensors."""
        return sum(map(math.prod, self.shapes.values()))

    def key_map(self, kwargs: dict[str, Any]) -> KeyMap:
        """Returns the map from names to the paths of a model built with `kwargs`.

        Raises:
            CheckpointError: The tensors do not belong to a model with these arguments,
                or the code base computes something else at this image size.
        """
        with self._path_in_errors():
            self._source.check_size(kwargs, self.shapes)
            return self._source.key_map(kwargs, self.shapes)


def _statement(path: Path, config: Config) -> Statement | None:
    """Returns the transform that the files beside tensors state, or None.

    transformers 5 writes processor_config.json, which then comes first:
    transformers/image_processing_base.py `get_image_processor_dict`.
    """
    beside = path.with_name("config.json")
    if timm := config.get("pretrained_cfg"):
        sized = isinstance(timm, dict) and bool(timm.get("input_size"))
        return Statement("timm", timm, str(beside), sized=sized)
    if converter := config.get("image_converter"):
        beside = path.with_name("image_converter.json")
        return Statement("keras_hub", converter, str(beside), sized=True)
    kind = config.get("model_type")
    for name in ("processor_config.json", "preprocessor_config.json") if config else ():
        beside = path.with_name(name)
        try:
            settings: Any = read_json(beside)
        except CheckpointError as error:  # raised unless the caller states a transform
            return Statement("transformers", {}, str(beside), error=error)
        if name == "processor_config.json":
            settings = settings.get("image_processor")
        if settings:
            return Statement("transformers", settings, str(beside), kind, sized=True)
    return None


def _kept_names(source: Source, names: dict[str, str]) -> dict[str, str]:
    """Returns {short name: name in the file} of the tensors that are not dropped.

    Args:
        source: Source of the file.
        names: {name in the file: name without the prefixes of wrappers}.

    Raises:
        CheckpointError: Two names have the same short name.
    """
    short: dict[str, str] = {}
    twice = []
    for name, inner in names.items():
        first = short.setdefault(source.short_name(inner), name)
        if first != name:
            twice.append(f"  {printable(first)} and {printable(name)}")
    if twice:
        pairs = "\n".join(twice)
        raise CheckpointError(
            "the file holds two tensors for one part of the model. Their names "
            f"differ only by a prefix or a number ({len(twice)}):\n{pairs}\nThey may "
            "belong to two models, such as a model and its moving average. Save the "
            "file again with one tensor of each pair."
        )
    return {
        name: full
        for name, full in short.items()
        if not source.dropped(name, short.keys())
    }
