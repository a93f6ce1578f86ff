"""What of a training is best if it is 1: the accuracy, or the mAP of several labels."""

QUALITIES = {"accuracy": "accuracy", "map": "mAP"}  # {name in logs: in words}


def quality_of(logs: dict) -> str | None:
    """Returns the name of the quality, or None.

    Args:
        logs: Metrics of test images, or those of a round.
    """
    return next((n for n in QUALITIES if n in logs or f"val_{n}" in logs), None)


def share(value: float, name: str) -> str:
    """Returns "81.20%", or "81.20% mAP"."""
    return f"{value:.2%}" if name == "accuracy" else f"{value:.2%} {QUALITIES[name]}"
