"""Vision Transformers and their kin for Keras 3, with sharpness-aware training."""
