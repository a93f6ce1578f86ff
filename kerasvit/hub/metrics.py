"""Evaluation results in a model card.

A metric is a number, or {"value": number, "dataset": name, "split": name, "images":
count}. The last three keys describe the data of the measurement and are optional.
"""

import math
from collections.abc import Sequence
from typing import Any

_KEYS = {"value", "dataset", "split", "images"}


def are_metrics(metrics: dict) -> bool:
    """Returns whether a dict is {name: metric} with finite values."""
    names = all(isinstance(name, str) for name in metrics)
    return names and all(map(_is_metric, metrics.values()))


def _is_metric(metric: object) -> bool:
    fields = _fields(metric)
    try:
        finite = math.isfinite(fields["value"])
    except (LookupError, TypeError, ValueError, OverflowError):  # not a number
        return False
    images = fields.get("images", 1)
    names = (fields.get("dataset", ""), fields.get("split", ""))
    return (
        finite
        and fields.keys() <= _KEYS
        and isinstance(images, int)
        and images > 0
        and all(isinstance(name, str) for name in names)
    )


def _fields(metric: Any) -> dict:
    """Returns a metric as a dict."""
    return metric if isinstance(metric, dict) else {"value": metric}


def results(metrics: dict, datasets: Sequence[str]) -> list[dict]:
    """Returns the results of a model for the Hub's `model-index`.

    Metrics without a dataset are omitted, because the Hub rejects them.

    Args:
        metrics: {name: metric}.
        datasets: Names of datasets. The first one is the default of the metrics.
    """
    entries = []
    for kind, fields in ((kind, _fields(metric)) for kind, metric in metrics.items()):
        if data := fields.get("dataset") or next(iter(datasets), None):
            split = {"split": fields["split"]} if fields.get("split") else {}
            entry = {
                "task": {"type": "image-classification"},
                "dataset": {"name": data, "type": data, **split},
                "metrics": [{"type": kind, "value": float(fields["value"])}],
            }
            entries.append(entry)
    return entries


def shown(metric: Any) -> str:
    """Returns the table cell of a metric, with its value and dataset."""
    fields = _fields(metric)
    on = [fields[key] for key in ("dataset", "split") if fields.get(key)]
    on += [f"{fields['images']:,} images"] if fields.get("images") else []
    value = f"{fields['value']:g}"
    return f"{value} ({', '.join(on)})" if on else value
