"""What TensorFlow does in its own way."""
