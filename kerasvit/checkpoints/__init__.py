"""Readers and writers of checkpoint files for the variables of a `keras.Model`."""

from .adapter_file import ADAPTERS as ADAPTERS
from .adapter_file import AdapterFile as AdapterFile
from .adapter_file import adapter_bytes as adapter_bytes
from .assign import assign as assign
from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import format_of as format_of
from .checkpoint import why_not_timm as why_not_timm
from .description import Description as Description
from .description import TokenGrid as TokenGrid
from .folder import former_save as former_save
from .folder import names_in as names_in
from .folder import new_files as new_files
from .folder import put_files as put_files
from .folder import replace_file as replace_file
from .json_files import read_json as read_json
from .key_map import KeyMap as KeyMap
from .opened import stamp as stamp
from .quoting import printable as printable
from .reader import REFUSED as REFUSED
from .reader import CheckpointError as CheckpointError
from .sources import CODE_BASES as CODE_BASES
from .sources import FORMAT as FORMAT
from .sources import SOURCES as SOURCES
from .sources import VARIABLE_PATHS as VARIABLE_PATHS
from .sources import resampling_kernel as resampling_kernel
from .writer import write_tensors as write_tensors
