"""What JAX does in its own way."""
