"""The evaluation transform, and reading images."""

from .bands import read_bands as read_bands
from .images import ChannelsError as ChannelsError
from .images import input_problem as input_problem
from .images import read_image as read_image
from .transform import Preprocessing as Preprocessing
