"""A checkpoint file and the configuration that describes it."""

import operator
import re
from pathlib import Path

from .model_files import open_pair, weights_in
from .quoting import printable
from .reader import CheckpointError
from .sources import (
    big_transfer,
    google_hybrid,
    google_mixer,
    google_vit,
    how_do_vits_work_alternet,
    how_do_vits_work_preact,
    timm_bit,
    timm_deit,
    timm_hybrid,
    timm_mixer,
    timm_swin,
    timm_vit,
    transformers,
    transformers_bit,
    transformers_deit,
    transformers_swin,
    variable_paths,
)

FORMAT = 1  # of the part `kerasvit` of config.json; the newest that is read


# Who wrote the names: a code base and one of its architectures. The first that knows a
# file's names reads it.
SOURCES = (
    timm_vit,
    timm_deit,
    timm_hybrid,
    timm_mixer,
    timm_bit,
    timm_swin,
    google_vit,
    google_hybrid,
    google_mixer,
    big_transfer,
    how_do_vits_work_alternet,
    how_do_vits_work_preact,
    transformers_swin,  # before the ViT, whose patches have the same names
    transformers_bit,
    transformers,
    transformers_deit,
    variable_paths,
)
ORIGINS = {source.ORIGIN for source in SOURCES}


def resampling_kernel(origin, builder):
    """Returns how a code base resamples position tables; None stands for our own."""
    fitting = [source for source in SOURCES if builder in source.BUILDERS]
    named = [source for source in fitting if source.ORIGIN == origin]
    return (named or fitting or [variable_paths])[0].KERNEL


def format_of(record):
    """Chooses the format to save a model in.

    Args:
        record: Of the model, with `builder` and `kwargs`.

    Returns:
        (source, timm's `config.json` for the model); our own variable paths and None
        where timm has no such model.
    """
    source = _timm_source(record)
    config = source and source.config(record)
    return (source, config) if config else (variable_paths, None)


def why_not_timm(record):
    """Explains why timm cannot read a model with this record; None where it can."""
    source = _timm_source(record)
    return source.differs(record) if source else f"it has no {record['builder']}"


def _timm_source(record):
    for source in SOURCES:
        if source.ORIGIN == "timm" and record["builder"] in source.BUILDERS:
            return source
    return None


class Checkpoint:
    """The tensors of a file by name, and what the file says of the model.

    Args:
        path: A `.npz` or `.safetensors` file, or a folder with `model.safetensors`. A
            `config.json` beside a `.safetensors` file belongs to it.
        checked: SHA-256 that the file had when it was checked, or None.

    Attributes:
        path: Of the file of tensors.
        checked: As given.
        origin: The code base, one of `ORIGINS`.
        shapes: {name: shape}, without what is left out on purpose.
        record: What `save_pretrained` wrote of the model, or {}.
        config: The whole `config.json`, or {}.

    Raises:
        CheckpointError: The file cannot be read, or has names of no known code base.
    """

    def __init__(self, path, checked=None):
        path, self.checked = Path(path).expanduser(), checked
        if path.is_dir():
            path = weights_in(path)
        self.path = path
        self.config, self._reader = open_pair(path)
        self.record = self.config.get("kerasvit") or {}
        if self.record:
            self._check_record()
        self._source = source = self._recognise()
        self.origin = source.ORIGIN
        own = self._own_names(source)
        self._names = {
            name: full for name, full in own.items() if not source.dropped(name, own)
        }
        self.shapes = {
            name: self._reader.shapes[full] for name, full in self._names.items()
        }

    def _check_record(self):
        record = self.record if isinstance(self.record, dict) else {}
        written = record.get("format_version")
        if isinstance(written, int) and written > FORMAT:
            raise CheckpointError(
                f"{self.path} was written by a newer kerasvit (format {written}; "
                f"this one reads up to {FORMAT}). Upgrade: pip install -U kerasvit."
            )
        kinds = {
            "builder": str, "kwargs": dict, "preprocessing": dict,
            "format_version": int, "variant": (str, type(None)),
            "weights_sha256": (str, type(None)),
        }  # fmt: skip
        wrong = [k for k, kind in kinds.items() if not isinstance(record.get(k), kind)]
        sha256 = record.get("weights_sha256")
        if isinstance(sha256, str) and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
            wrong.append("weights_sha256")
        if record.get("origin") not in (None, *ORIGINS):
            wrong.append("origin")
        if not str(record.get("variant")).isprintable():
            wrong.append("variant")
        if wrong:
            raise CheckpointError(
                f"{self.path.parent / 'config.json'} is damaged: its part `kerasvit` "
                f"has no right {', '.join(wrong)}. Save the model again."
            )

    def _recognise(self):
        for source in SOURCES:
            if source.recognises({source.own_name(n) for n in self._reader.shapes}):
                if source is variable_paths and not self.record:
                    raise CheckpointError(
                        f"{self.path} was written by kerasvit and needs the "
                        "config.json that was beside it. Copy the whole folder."
                    )
                return source
        some = ", ".join(printable(n) for n in list(self._reader.shapes)[:5])
        raise CheckpointError(
            f"{self.path} has names of no known code base: {some}, … Known are timm, "
            "google-research/vision_transformer and big_vision, big_transfer, "
            "how-do-vits-work, transformers' ViT, DeiT, Swin and BiT, and folders of "
            "save_pretrained, of the architectures in this package."
        )

    def _own_names(self, source):
        """Returns {name without prefixes: name in the file}; names must not collide."""
        own, twice = {}, []
        for name in self._reader.shapes:
            first = own.setdefault(source.own_name(name), name)
            if first != name:
                twice.append(f"  {printable(first)} and {printable(name)}")
        if twice:
            pairs = "\n".join(twice)
            raise CheckpointError(
                f"{self.path} holds two tensors for one part of the model, under names "
                f"that differ by a prefix or a number only ({len(twice)}):\n{pairs}\n"
                "They may be of two models, such as one and its average. Save the file "
                "again with one of each."
            )
        return own

    def __getitem__(self, name):
        return self._reader[self._names[name]]

    def sha256(self) -> str:
        """Returns the SHA-256 of the tensors' file in hex."""
        return self._reader.sha256()

    @property
    def made_by(self):
        """The code base whose conventions the weights have; None: our own."""
        return self.record.get("origin") if self.record else self.origin

    @property
    def kernel(self):
        """The resampling kernel of the code base the weights come from."""
        return resampling_kernel(self.made_by, self.builders[0])

    @property
    def builders(self):
        """Names of the builders whose models the tensors are."""
        return (self.record["builder"],) if self.record else self._source.BUILDERS

    @property
    def sizes(self):
        """The architecture's numbers that the tensors tell."""
        return self._ask(self._source.sizes, self.shapes, self.config)

    @property
    def builder_changes(self):
        """What the weights were made with, as arguments of the builder."""
        if self.record:
            return dict(self.record["kwargs"])
        return self._ask(self._source.builder_changes, self.shapes, self.config)

    @property
    def left_open(self):
        """What no file tells of the model, and has to be assumed.

        Returns:
            (arguments of the builder, what else is assumed, in words).
        """
        if self.record or not hasattr(self._source, "left_open"):
            return (), ()
        return self._ask(self._source.left_open, self.shapes, self.config)

    @property
    def image_size(self):
        """(height, width) in pixels that the weights were made for, or None."""

        def pair():
            if not self.record:
                size = self._source.image_size(self.config)
            else:
                size = self.record["kwargs"]["image_size"]
            return size and tuple(operator.index(side) for side in size)

        return self._ask(pair)

    def cells(self, kwargs):
        """What the tensors tell of the image size that they were made for.

        Args:
            kwargs: Of the builder.

        Returns:
            (name of a tensor, cells of the grid that it covers, pixels a cell), or
            None where no tensor depends on the image size.
        """
        return self._ask(self._source.cells, self.shapes, kwargs)

    @property
    def label_names(self):
        """Names of the classes, or None."""
        if self.record:
            return self.record.get("label_names") or self.config.get("label_names")
        return self._ask(self._source.label_names, self.config)

    def key_map(self, kwargs):
        """The `KeyMap` to a model built with `kwargs`."""
        return self._source.key_map(kwargs, self.shapes)

    def _ask(self, question, *given):
        try:
            return question(*given)
        except CheckpointError as error:
            raise CheckpointError(f"{self.path}: {error}") from error
        except (
            LookupError,
            AttributeError,
            ValueError,
            TypeError,
            ArithmeticError,
        ) as error:
            raise CheckpointError(
                f"{self.path} has names of {self.origin}, but is not a whole model of "
                f"it, or its config.json is damaged: {type(error).__name__} {error}. "
                "Take the complete files."
            ) from error
