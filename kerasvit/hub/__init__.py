"""Downloads and uploads: the catalogue of weights, and model folders."""
