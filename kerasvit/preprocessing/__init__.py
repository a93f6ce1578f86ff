"""The evaluation transform: how an image becomes a model's input."""

from .transform import Preprocessing as Preprocessing
