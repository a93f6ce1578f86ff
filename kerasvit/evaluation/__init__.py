"""Numbers of a classifier, from its outputs or features: functions of NumPy arrays."""

from .corruption import ALEXNET as ALEXNET
from .corruption import Reference as Reference
from .corruption import mean_accuracy as mean_accuracy
from .corruption import mean_corruption_error as mean_corruption_error
from .corruption import relative_mean_corruption_error as relative_mean_corruption_error
from .few_shot import few_shot_accuracy as few_shot_accuracy
from .few_shot import few_shot_hits as few_shot_hits
from .few_shot import least_squares as least_squares
from .few_shot import shots_of_classes as shots_of_classes
from .intervals import binomial_interval as binomial_interval
from .intervals import bootstrap_interval as bootstrap_interval
from .intervals import paired_difference as paired_difference
from .intervals import seeds_interval as seeds_interval
from .intervals import unpaired_difference as unpaired_difference
from .linear_probe import linear_probe as linear_probe
from .linear_probe import quarter as quarter
from .metrics import Estimate as Estimate
from .metrics import expected_calibration_error as expected_calibration_error
from .metrics import log_probabilities as log_probabilities
from .metrics import negative_log_likelihood as negative_log_likelihood
from .metrics import scores as scores
from .metrics import top_k_hits as top_k_hits
from .neighbors import neighbor_votes as neighbor_votes
