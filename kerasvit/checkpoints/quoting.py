"""Quoting of text from files in error messages."""


def printable(text: object) -> str:
    """Returns the text in one line, with unprintable characters escaped.

    Terminals execute control characters and cannot encode lone surrogates.

    Args:
        text: Text, such as the name of a tensor.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
