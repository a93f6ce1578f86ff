"""Which weights of a training are kept: the last ones, or those of the best validation.

This module works on the history of a training, which its saved states have.
"""


def score(logs: dict) -> tuple[float, float]:
    """Returns what is larger for a better validation: accuracy, then the lower loss."""
    return logs["val_accuracy"], -logs["val_loss"]


def best_round(history: list[dict]) -> int:
    """Returns the index of the round with the best `score`, the first of equal ones.

    Args:
        history: Metrics of each finished round; at least one.
    """
    return max(range(len(history)), key=lambda i: score(history[i]))


def is_exhausted(history: list[dict], patience: int | None) -> bool:
    """Returns whether the last `patience` validations were no better than the best."""
    if patience is None or not history:
        return False
    return len(history) - 1 - best_round(history) >= patience


def kept_logs(result: dict) -> dict:
    """Returns the metrics of the round whose weights are kept.

    Args:
        result: Content of result.json.
    """
    return result["history"][result.get("kept_round", 0) - 1]


def facts(history: list[dict], round_steps: int, stopped_early: bool) -> dict:
    """Returns what result.json states of a training that keeps the best weights.

    Args:
        history: As for `best_round`.
        round_steps: Steps between validations.
        stopped_early: Whether the training ended before its last step.
    """
    kept = best_round(history) + 1
    steps = {"kept_step": kept * round_steps, "steps": len(history) * round_steps}
    return {"kept_round": kept, **steps, "stopped_early": stopped_early}


def sentence(result: dict) -> str | None:
    """Returns which weights are kept, or None for the last.

    Args:
        result: As for `kept_logs`.
    """
    if "kept_round" not in result:
        return None
    logs = kept_logs(result)
    stage = " of the last stage" if "after_stages" in result else ""
    text = (
        f"weights of step {result['kept_step']:,} of {result['steps']:,}{stage}, "
        f"the best on the validation images ({logs['val_accuracy']:.2%}, loss "
        f"{logs['val_loss']:.4f})"
    )
    return f"{text}; stopped early" if result["stopped_early"] else text
