"""The list of all sources, and kerasvit's own format."""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import KeyMap
from .big_transfer import BigTransferFile
from .google_hybrid import GoogleHybrid
from .google_mixer import GoogleMixer
from .google_vit import GoogleViT
from .how_do_vits_work import AuthorsAlterNet, AuthorsPreActResNet, AuthorsResNeXt
from .keras_hub import KerasHubDeiT, KerasHubDINOv3, KerasHubViT
from .source import Source
from .timm import TimmSource
from .timm_beit import TimmBEiT
from .timm_bit import TimmBiT
from .timm_deit import TimmDeiT
from .timm_eva import TimmEva
from .timm_hybrid import TimmHybrid
from .timm_mixer import TimmMixer
from .timm_pit import TimmPiT
from .timm_resnext import TimmResNeXt
from .timm_swin import TimmSwin
from .timm_vit import TimmViT
from .torchvision import TorchvisionSwin, TorchvisionViT
from .transformers import TransformersViT
from .transformers_beit import TransformersBEiT
from .transformers_bit import TransformersBiT
from .transformers_clip import TransformersCLIP
from .transformers_deit import TransformersDeiT
from .transformers_dinov2 import TransformersDinov2
from .transformers_dinov3 import TransformersDinov3
from .transformers_swin import TransformersSwin


class VariablePaths(Source):
    """Tensors with variable paths as names, for models that timm cannot express.

    The tensors do not determine the model. `SavedFolder` describes it from the
    config.json of `save_pretrained`.
    """

    code_base = "kerasvit"
    builder = ""
    kernel = "bicubic_antialias"

    def recognises(self, names: Set[str]) -> bool:
        return False

    def describe(self, shapes: Shapes, config: Config) -> Description:
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={},
            arguments={},
            kernel=self.kernel,
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(("{path}", "{path}"))


TIMM: tuple[TimmSource, ...] = (
    TimmBEiT(),  # before EVA, whose names it has too
    TimmEva(),  # before the ViT, whose names it has too
    TimmViT(),
    TimmDeiT(),
    TimmHybrid(),
    TimmMixer(),
    TimmBiT(),
    TimmPiT(),
    TimmResNeXt(),
    TimmSwin(),
)
# The first source that recognises the names of a file reads it.
SOURCES: tuple[Source, ...] = (
    *TIMM,
    GoogleViT(),
    GoogleHybrid(),
    GoogleMixer(),
    BigTransferFile(),
    AuthorsAlterNet(),
    AuthorsPreActResNet(),
    AuthorsResNeXt(),
    TorchvisionViT(),
    TorchvisionSwin(),
    KerasHubViT(),
    KerasHubDeiT(),
    KerasHubDINOv3(),
    TransformersSwin(),  # before the ViT, whose patches have the same names
    TransformersDinov2(),  # likewise
    TransformersDinov3(),
    TransformersBEiT(),  # likewise
    TransformersBiT(),
    TransformersViT(),
    TransformersDeiT(),
    TransformersCLIP(),
)
VARIABLE_PATHS = VariablePaths()
CODE_BASES = {source.code_base for source in (*SOURCES, VARIABLE_PATHS)}


def resampling_kernel(code_base: str | None, builder: str) -> str:
    """Returns the resampling kernel of a code base; None stands for kerasvit."""
    fitting = [source for source in SOURCES if source.builder == builder]
    exact = [source for source in fitting if source.code_base == code_base]
    return (exact or fitting or [VARIABLE_PATHS])[0].kernel


def timm_source(builder: str) -> TimmSource | None:
    """Returns the source for timm's models of a builder, or None."""
    return next((source for source in TIMM if source.builder == builder), None)
