"""Tools for the catalogue of public weights."""

import kerasvit as kerasvit  # before Keras: it says what to type without a backend
