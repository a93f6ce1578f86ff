"""Searches for the radius rho of SAM on a model and its data."""

from .search import suggest_rho as suggest_rho
