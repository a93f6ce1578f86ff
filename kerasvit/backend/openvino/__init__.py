"""What OpenVINO does in its own way."""
