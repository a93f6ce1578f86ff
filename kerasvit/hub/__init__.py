"""Catalogue of weights, downloads, uploads and model folders."""
