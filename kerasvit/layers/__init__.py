"""One layer a file, written in `keras.ops` only."""
