"""One key map a file, named after the code base the checkpoint comes from."""
