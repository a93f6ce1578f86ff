"""Numbers of a classifier on images, from its outputs: functions of NumPy arrays."""

from .intervals import binomial_interval as binomial_interval
from .intervals import bootstrap_interval as bootstrap_interval
from .intervals import paired_difference as paired_difference
from .metrics import expected_calibration_error as expected_calibration_error
from .metrics import negative_log_likelihood as negative_log_likelihood
from .metrics import top_k_hits as top_k_hits
from .scores import Estimate as Estimate
from .scores import scores as scores
