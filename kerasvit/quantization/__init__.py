"""Few bits for weights and activations: stored by Keras's layers, or simulated."""

from . import ranges as ranges
from . import ranking as ranking
from .gptq import gptq as gptq
from .quantizers import Log2 as Log2
from .quantizers import TwinUniform as TwinUniform
from .quantizers import Uniform as Uniform
from .simulation import METHODS as METHODS
from .simulation import simulate as simulate
from .stored import CONFIGS as CONFIGS
from .stored import QuantizableModel as QuantizableModel
from .stored import WeightFormat as WeightFormat
from .stored import quantize as quantize
from .stored import restore as restore
from .stored import settings_of as settings_of
from .stored import weight_formats as weight_formats
