"""Measures a trained `keras.Model`: the curvature of its loss, and where it looks."""

from .attention_maps import AttentionMaps as AttentionMaps
from .attention_maps import attention_maps as attention_maps
from .callback import Inspect as Inspect
from .hessian import Hessian as Hessian
from .hessian import hessian_vector_product as hessian_vector_product
from .hessian import largest_eigenvalue as largest_eigenvalue
from .rollout import rollout as rollout
