"""The evaluation transform, and reading images."""

from .transform import Preprocessing as Preprocessing
