"""What is published and how to get it; a model folder, read and written."""
