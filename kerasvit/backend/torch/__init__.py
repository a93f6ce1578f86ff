"""What PyTorch does in its own way."""
