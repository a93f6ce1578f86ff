"""Layers, one per file, of operations of `keras.ops` and `kerasvit.ops`."""

from .attention import Attention as Attention
from .attention_pooling import AttentionPooling as AttentionPooling
from .attention_unit import AttentionUnit as AttentionUnit
from .batch_norm import BatchNormalization as BatchNormalization
from .biased_attention import BiasedAttention as BiasedAttention
from .conv import Conv as Conv
from .convolution_as_attention import kernel_of_patches as kernel_of_patches
from .convolution_as_attention import set_convolution as set_convolution
from .dense import Dense as Dense
from .encoder_block import EncoderBlock as EncoderBlock
from .group_norm import GroupNorm as GroupNorm
from .layer import Block as Block
from .layer_norm import LayerNormalization as LayerNormalization
from .layer_scale_block import LayerScaleBlock as LayerScaleBlock
from .local_attention import LocalAttention as LocalAttention
from .max_pool import MaxPool as MaxPool
from .mixer_block import MixerBlock as MixerBlock
from .mlp import MLP as MLP
from .neighborhood_attention import NeighborhoodAttention as NeighborhoodAttention
from .overlapping_patch_embedding import (
    OverlappingPatchEmbedding as OverlappingPatchEmbedding,
)
from .patch_embedding import PatchEmbedding as PatchEmbedding
from .patch_merging import PatchMerging as PatchMerging
from .position_embedding import PositionEmbedding as PositionEmbedding
from .position_map import PositionMap as PositionMap
from .post_norm_block import PostNormBlock as PostNormBlock
from .postact_unit import PostactUnit as PostactUnit
from .preact_unit import PreactUnit as PreactUnit
from .prefix_tokens import PrefixTokens as PrefixTokens
from .quadratic_attention import QuadraticAttention as QuadraticAttention
from .relative_attention import RelativeAttention as RelativeAttention
from .relative_position_bias import RelativePositionBias as RelativePositionBias
from .res_post_norm_block import ResPostNormBlock as ResPostNormBlock
from .rescaling import Rescaling as Rescaling
from .rotary_attention import RotaryAttention as RotaryAttention
from .rotary_positions import RotaryPositions as RotaryPositions
from .rotation import Rotation as Rotation
from .sincos_position_embedding import (
    SinCosPositionEmbedding as SinCosPositionEmbedding,
)
from .standardized_conv import StandardizedConv as StandardizedConv
from .stochastic_depth import StochasticDepth as StochasticDepth
from .swiglu import SwiGLU as SwiGLU
from .swin_block import SwinBlock as SwinBlock
from .token_pooling import TokenPooling as TokenPooling
from .window_attention import WindowAttention as WindowAttention
