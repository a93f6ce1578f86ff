"""Catalogue of weights, downloads, uploads and model folders."""

from .card import is_generated as is_generated
from .card import signed as signed
from .front_matter import read_page as read_page
from .front_matter import split_page as split_page
