"""Settings of `export.py`, and its folder, which appears when it is complete.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import tyro
from command import folder_lock, limits, names
from command.weights import Weights
from exporting import formats


@dataclasses.dataclass(frozen=True)
class Config(Weights):
    """Exports a model to the format of another runtime."""

    model: Annotated[str, tyro.conf.Positional]
    """Folder of a training or of save_pretrained, file of weights, model.keras,
    hf://user/name, or ViTB16/sam for public weights."""
    format: Literal["savedmodel", "litert", "onnx", "openvino", "torch"]
    """savedmodel: TensorFlow; litert: LiteRT (TFLite); onnx: ONNX Runtime and others;
    openvino: OpenVINO; torch: torch.export (.pt2)."""
    out: str | None = None
    """Folder of the export; None: exported/MODEL-FORMAT."""
    replace: bool = False
    """Replace an export that exists."""
    inputs: Literal["photo", "pixels", "normalized"] = "pixels"
    """photo: of any size, uint8, resized and cropped in the graph; pixels: 0 to 255, of
    the model's size, normalised in the graph; normalized: neither."""
    outputs: Literal["probabilities", "logits"] = "probabilities"
    """With the softmax in the graph, or without it."""
    batch: int | None = None
    """Images of every call; None: any number."""
    # Pixels, height first; None: the model's.
    image_size: tuple[int, ...] | None = None
    # Values that a .keras model without a record expects.
    model_input: Literal["pixels", "unit", "tf", "torch"] | None = None
    dtype: Literal["float32", "mixed_bfloat16", "int8", "int4"] = "float32"
    """Keras policy, or int8 or int4: products of whole numbers. For onnx, openvino and
    litert the quantiser of the runtime makes int8; else Keras quantises."""
    calibrate: str | None = None
    """Images, a folder or table, whose values give the ranges of int8; None: each batch
    has its own ranges."""

    @property
    def folder(self) -> str:
        """Path of the folder of the export."""
        parts = [part for part in re.split(r"[/\\:]+", self.model) if part.strip(".~")]
        if parts[-1:] == ["model"] and len(parts) > 1:  # of a training
            parts.pop()
        is_path = Path(os.path.expanduser(self.model)).exists()
        stem = "-".join(parts[-1:] if is_path else parts) or "model"
        return self.out or f"exported/{stem.removesuffix('.keras')}-{self.format}"

    def check(self, backend: str) -> None:
        """Raises a `ValueError` for settings that are wrong or do not fit together.

        Args:
            backend: Backend that writes the export.
        """
        limits.check(self)
        formats.check(self.format, self.dtype, backend)
        if self.calibrate and not formats.by_runtime(self.format, self.dtype):
            raise ValueError(
                f"`calibrate` is for --dtype int8 of {formats.calibrated()}. Received: "
                f"--format {self.format} --dtype {self.dtype}. Leave it out."
            )
        if self.calibrate and not Path(os.path.expanduser(self.calibrate)).exists():
            raise ValueError(
                f"`calibrate`: there is no folder or table {self.calibrate}."
            )
        if self.inputs == "photo" and formats.by_runtime(self.format, self.dtype):
            raise ValueError(
                "`inputs`: the quantiser of int8 takes images of one size. Leave "
                "--inputs photo out, or take another --dtype."
            )
        if self.dtype == "mixed_bfloat16" and self.model.endswith(".keras"):
            raise ValueError(
                "`dtype`: a .keras file has its own precision. Leave --dtype out, or "
                "give a folder of save_pretrained."
            )
        check_folder(self.folder, self.replace)
        names.check_model_or_path(self.model, "model")


def check_folder(folder: str, replace: bool) -> Path:
    """Returns the path of a folder that may be written.

    Raises:
        ValueError: It exists and is not to be replaced, or is no folder of an export.
    """
    path = Path(os.path.abspath(Path(os.path.expanduser(folder))))  # "." has no name
    if not path.exists() and not path.is_symlink():
        parent = next(each for each in path.parents if each.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise ValueError(
                f"`out`: {path} cannot be written, because {parent} is no folder in "
                "which you may write. Give another --out."
            )
        return path
    if not replace:
        raise ValueError(
            f"`out`: {path} exists. Give another --out, or --replace to replace it."
        )
    if not (path / "export.json").is_file():
        raise ValueError(
            f"`replace`: {path} is not replaced, for it has no export.json and is no "
            "export. Give another --out."
        )
    return path


@contextlib.contextmanager
def complete_folder(path: Path, replace: bool) -> Iterator[Path]:
    """Yields an empty folder, which becomes `path` if the block succeeds.

    Raises:
        ValueError: As `check_folder`; or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise ValueError(f"`out`: {path} cannot be written: {error}.") from error
    written = Path(temporary) / path.name
    try:
        disk = folder_lock.explained_disk(Path(temporary))
        with disk, removed_at_sigterm(temporary):
            written.mkdir()
            yield written
        # Another process may have written it.
        if check_folder(str(path), replace).exists():
            path.rename(Path(temporary) / "replaced")
        written.rename(path)
    finally:
        shutil.rmtree(temporary)


@contextlib.contextmanager
def removed_at_sigterm(folder: str) -> Iterator[None]:
    """Removes a folder and ends the process if it gets SIGTERM in the block."""

    def end(number, frame):
        # An exception is lost if a callback runs, such as JAX's of the collector.
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
