"""Evaluation results in a model card.

A metric is a number, or {"value": number, "dataset": name, "split": name, "images":
count}, the last three for what it was measured on; each of them may be left out.
"""

import math

_KEYS = {"value", "dataset", "split", "images"}


def are_metrics(value) -> bool:
    """Whether a value is {name: metric}, each of a finite number."""
    try:
        named = all(isinstance(name, str) for name in value)
        return named and all(map(_is_metric, value.values()))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return False


def _is_metric(metric):
    metric = _measured(metric)
    images = metric.get("images", 1)
    names = [metric.get(key, "") for key in ("dataset", "split")]
    return (
        math.isfinite(metric["value"])
        and not metric.keys() - _KEYS
        and isinstance(images, int)
        and images > 0
        and all(isinstance(name, str) for name in names)
    )


def _measured(metric):
    """Returns a metric as a dict."""
    return metric if isinstance(metric, dict) else {"value": metric}


def results(facts) -> list[dict]:
    """Returns the results of a model for the Hub's `model-index`.

    Those that do not say on which data are left out: the Hub refuses them.

    Args:
        facts: `Facts` with metrics.
    """
    entries = []
    for kind, metric in facts.metrics.items():
        metric = _measured(metric)
        data = metric.get("dataset") or (facts.datasets or [None])[0]
        if data:
            split = {"split": metric["split"]} if metric.get("split") else {}
            entries.append(
                {
                    "task": {"type": "image-classification"},
                    "dataset": {"name": data, "type": data, **split},
                    "metrics": [{"type": kind, "value": float(metric["value"])}],
                }
            )
    return entries


def shown(metric) -> str:
    """Returns a table cell of a metric: its value and data set."""
    metric = _measured(metric)
    on = [metric[key] for key in ("dataset", "split") if metric.get(key)]
    on += [f"{metric['images']:,} images"] if metric.get("images") else []
    value = f"{metric['value']:g}"
    return f"{value} ({', '.join(on)})" if on else value
