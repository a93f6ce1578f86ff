"""Before the fine-tuning of pretrained weights: a fitted head, and settings."""

from .averages import Interpolation as Interpolation
from .averages import average_weights as average_weights
from .averages import interpolate_weights as interpolate_weights
from .fit_head import HeadAccuracy as HeadAccuracy
from .fit_head import fit_head as fit_head
from .heads import HEADS as HEADS
from .heads import heads_of as heads_of
from .suggest import TrainingSuggestion as TrainingSuggestion
from .suggest import suggest_training as suggest_training
