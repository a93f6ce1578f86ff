"""Settings of `serve.py`.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import tyro
from command import limits, names, startup
from command.weights import Weights


@dataclasses.dataclass(frozen=True)
class Config(Weights):
    """Answers HTTP requests with the classes of a photograph."""

    model: Annotated[str, tyro.conf.Positional]
    """Folder of a training, of save_pretrained or of an export, file of weights,
    hf://user/name, or ViTB16/sam for public weights."""
    host: str = "127.0.0.1"
    """Address that is listened to; 0.0.0.0: all of this machine."""
    port: int = 8000
    """Port; 0: any that is free."""
    top: int = 5
    """Number of classes in an answer."""
    batch_size: int = 8
    """Most images of one call of the model: those that came while it ran."""
    queue: int = 64
    """Images that may wait; the server refuses more with the status 503."""
    timeout: float = 10.0
    """Seconds for a client to send its photograph, and for the model to answer."""
    megabytes: float = 20.0
    """Largest photograph, in 10⁶ bytes."""
    megapixels: float = 50.0
    """Largest photograph, in 10⁶ pixels."""

    @property
    def is_export(self) -> bool:
        """Whether the model is the folder of an export."""
        return (Path(os.path.expanduser(self.model)) / "export.json").is_file()

    def check(self) -> None:
        """Raises a `ValueError` for settings that are wrong."""
        limits.check(self)
        if self.is_export:
            return
        startup.check_backend()
        names.check_model_or_path(self.model, "model")
