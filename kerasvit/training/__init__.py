"""Training for any `keras.Model`: sharpness-aware minimisation and schedules."""

from .sam import SAM as SAM
from .schedules import warmup_cosine as warmup_cosine
