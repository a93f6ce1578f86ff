"""Measures a trained `keras.Model`: the curvature of its loss."""

from .callback import Inspect as Inspect
from .hessian import Hessian as Hessian
from .hessian import hessian_vector_product as hessian_vector_product
from .hessian import largest_eigenvalue as largest_eigenvalue
