"""Limits the memory of tables that layers compute."""

from kerasvit.arguments import ArgumentError

MAX_BYTES = 2**28  # a Swin-L's tables have 2 MB


def check_table_size(size: int, *arguments: str) -> None:
    """Checks the size of a table before it takes memory.

    Args:
        size: Size of the table in bytes.
        *arguments: Names of the arguments that it depends on.

    Raises:
        ArgumentError: The table is larger than any model's.
    """
    if size > MAX_BYTES:
        raise ArgumentError(
            f"{' and '.join(f'`{name}`' for name in arguments)} ask for a table of "
            f"{size:,} bytes; layers compute at most {MAX_BYTES:,}. Choose smaller "
            "ones.",
            *arguments,
        )
