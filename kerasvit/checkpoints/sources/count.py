"""Counts the blocks and stages that tensor names have."""


def count(shapes, pattern, start=0):
    """How many names there are with `start`, the next, … in the braces of a pattern."""
    numbers = range(start, len(shapes) + start + 1)
    return next(i for i in numbers if pattern.format(i) not in shapes) - start
