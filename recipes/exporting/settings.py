"""Settings of `export.py`.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Literal

import tyro
from command import limits, names
from exporting import folders, formats


@dataclasses.dataclass(frozen=True)
class Config:
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
    # pixels: 0 to 255, normalised in the graph. Images are resized before, in any case.
    inputs: Literal["pixels", "normalized"] = "pixels"
    outputs: Literal["probabilities", "logits"] = "probabilities"
    """With the softmax in the graph, or without it."""
    batch: int | None = None
    """Images of every call; None: any number."""
    # Pixels, height first; None: the model's.
    image_size: tuple[int, ...] | None = None
    # Values that a .keras model without a record expects.
    model_input: Literal["pixels", "unit", "tf", "torch"] | None = None
    dtype: Literal["float32", "mixed_bfloat16", "int8", "int4"] = "float32"
    """Keras policy, or int8 or int4: the dense layers quantised by Keras."""

    @property
    def folder(self) -> str:
        """Path of the folder of the export."""
        parts = [part for part in re.split(r"[/\\:]+", self.model) if part.strip(".~")]
        if parts[-1:] == ["model"] and len(parts) > 1:  # of a training
            parts.pop()
        is_path = Path(self.model).expanduser().exists()
        stem = "-".join(parts[-1:] if is_path else parts) or "model"
        return self.out or f"exported/{stem.removesuffix('.keras')}-{self.format}"

    def check(self, backend: str) -> None:
        """Raises a `ValueError` for settings that are wrong or do not fit together.

        Args:
            backend: Backend that writes the export.
        """
        limits.check(self)
        formats.check(self.format, self.dtype, backend)
        if self.dtype == "mixed_bfloat16" and self.model.endswith(".keras"):
            raise ValueError(
                "`dtype`: a .keras file has its own precision. Leave --dtype out, or "
                "give a folder of save_pretrained."
            )
        folders.check(self.folder, self.replace)
        names.check_model_or_path(self.model, "model")
