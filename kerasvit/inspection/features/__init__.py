"""Features of a model: similarity, frequencies, lesions, receptive fields."""
