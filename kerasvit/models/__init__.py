"""One architecture a file: a builder, its sizes, and one row a variant."""
