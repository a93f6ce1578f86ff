"""Evaluation results in a model card.

A metric is a number, or {"value": number, "dataset": name, "split": name, "images":
count, "interval_95": [low, high]}. All keys but the first are optional: the data of the
measurement, and the interval in which the number lies with 95 % confidence.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

_KEYS = {"value", "dataset", "split", "images", "interval_95"}
_SHARES = re.compile(r"accuracy|precision|F1|top_?[15]$")  # shown in percent


def are_metrics(metrics: dict) -> bool:
    """Returns whether a dict is {name: metric} with finite values."""
    names = all(isinstance(name, str) for name in metrics)
    return names and all(map(_is_metric, metrics.values()))


def _is_metric(metric: object) -> bool:
    fields = _fields(metric)
    try:
        low, high = fields.get("interval_95", (0, 0))
        finite = all(map(math.isfinite, (fields["value"], low, high)))
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


def results(metrics: dict, datasets: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the results of a model for the Hub's `model-index`.

    Metrics without a dataset are omitted, because the Hub rejects them.

    Args:
        metrics: {name: metric}.
        datasets: Names of datasets. The first one is the default of the metrics.
    """
    entries: list[dict[str, Any]] = []
    for kind, fields in ((kind, _fields(metric)) for kind, metric in metrics.items()):
        if data := fields.get("dataset") or next(iter(datasets), None):
            split = {"split": fields["split"]} if fields.get("split") else {}
            metric: dict[str, Any] = {"type": kind, "value": float(fields["value"])}
            if "interval_95" in fields:
                metric["args"] = {"interval_95": [*map(float, fields["interval_95"])]}
            entry = {
                "task": {"type": "image-classification"},
                "dataset": {"name": data, "type": data, **split},
                "metrics": [metric],
            }
            entries.append(entry)
    return entries


def shown(name: str, metric: Any) -> str:
    """Returns the table cell of a metric, with its value, interval and dataset."""
    fields = _fields(metric)
    on = [fields[key] for key in ("dataset", "split") if fields.get(key)]
    on += [f"{fields['images']:,} images"] if fields.get("images") else []
    share = _SHARES.search(name) and 0 <= fields["value"] <= 1
    numbers = [fields["value"], *fields.get("interval_95", ())]
    value, *ends = (f"{100 * x:.1f}" if share else f"{x:g}" for x in numbers)
    unit = " %" if share else ""
    value += unit
    if ends:
        on.insert(0, f"95 % interval {ends[0]} to {ends[1]}{unit}")
    return f"{value} ({', '.join(on)})" if on else value
