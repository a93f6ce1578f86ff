"""Our own format: variable paths, for models that timm cannot express."""

from ..description import Description
from ..key_map import KeyMap
from .source import Source


class VariablePaths(Source):
    """Tensors under the paths of the model's variables.

    Nothing but the config.json of `save_pretrained` says what they are of, so
    `SavedFolder` describes them.
    """

    code_base = "kerasvit"
    builder = ""
    kernel = "bicubic_antialias"

    def recognises(self, names):
        return False

    def describe(self, shapes, config):
        return Description(self.code_base, "", {}, {}, self.kernel)

    def key_map(self, kwargs, shapes=None):
        return KeyMap(("{path}", "{path}"))
