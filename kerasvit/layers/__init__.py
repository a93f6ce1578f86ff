"""One layer a file, written in `keras.ops` only."""

from .attention import Attention as Attention
from .attention_pooling import AttentionPooling as AttentionPooling
from .dense import Dense as Dense
from .encoder_block import EncoderBlock as EncoderBlock
from .group_norm import GroupNorm as GroupNorm
from .layer_scale_block import LayerScaleBlock as LayerScaleBlock
from .mlp import MLP as MLP
from .patch_embedding import PatchEmbedding as PatchEmbedding
from .position_embedding import PositionEmbedding as PositionEmbedding
from .preact_unit import PreactUnit as PreactUnit
from .prefix_tokens import PrefixTokens as PrefixTokens
from .sincos_position_embedding import (
    SinCosPositionEmbedding as SinCosPositionEmbedding,
)
from .standardized_conv import StandardizedConv as StandardizedConv
from .stochastic_depth import StochasticDepth as StochasticDepth
