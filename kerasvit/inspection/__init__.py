"""Measures a trained `keras.Model`: the curvature of its loss, and where it looks."""

from .attention_maps import AttentionMaps as AttentionMaps
from .attention_maps import attention_maps as attention_maps
from .attention_plots import plot_attention as plot_attention
from .attention_plots import plot_distances as plot_distances
from .attention_plots import plot_filters as plot_filters
from .attention_plots import plot_heads as plot_heads
from .attention_plots import plot_positions as plot_positions
from .callback import Inspect as Inspect
from .embeddings import Embeddings as Embeddings
from .embeddings import embeddings as embeddings
from .hessian import Hessian as Hessian
from .hessian import hessian_vector_product as hessian_vector_product
from .hessian import largest_eigenvalue as largest_eigenvalue
from .layer_attention import LayerAttention as LayerAttention
from .ntk import NTK as NTK
from .ntk import ntk as ntk
from .rollout import rollout as rollout
from .segmentation import segmentation_score as segmentation_score
from .sharpness import box_sharpness as box_sharpness
from .sharpness import sharpness as sharpness
from .sharpness_table import SharpnessTable as SharpnessTable
from .sharpness_table import sharpness_table as sharpness_table
from .spectral_density import SpectralDensity as SpectralDensity
from .spectral_density import spectral_density as spectral_density
from .trace import Trace as Trace
from .trace import trace as trace
