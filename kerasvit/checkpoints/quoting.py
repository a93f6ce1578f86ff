"""Quotes text from a file in error messages."""


def printable(text) -> str:
    """The text in one line, with every character escaped that does not print.

    A terminal obeys control characters, and cannot encode lone surrogates.

    Args:
        text: str, such as the name of a tensor.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
