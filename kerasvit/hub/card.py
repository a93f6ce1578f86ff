"""The README.md of a model folder: what it is, where it comes from, how it did."""

import json

from kerasvit.checkpoints import why_not_timm


def write_card(record, origin, name, facts) -> str:
    """The page of a model, with the metadata that the Hugging Face Hub reads.

    Args:
        record: Of the model.
        origin: In whose names the tensors are, "timm" or our own.
        name: Of the folder or repository.
        facts: `license`, `base_model`, `datasets`, `metrics`, `training` and `card`,
            each or none.
    """
    metadata = {
        "library_name": "kerasvit",
        "pipeline_tag": "image-classification",
        "tags": ["keras", *(["timm"] if origin == "timm" else [])],
    }
    base = record.get("base") or {}
    source = base.get("source")
    on_hub = source if source and "://" not in source else None
    said = {
        "license": facts.get("license") or base.get("license"),
        "base_model": facts.get("base_model") or on_hub,
        "datasets": facts.get("datasets"),
    }
    metadata |= {key: value for key, value in said.items() if value}
    metrics = facts.get("metrics") or {}
    if metrics:
        metadata["metrics"] = list(metrics)
        results = _results(name.removeprefix("hf://"), metrics, facts.get("datasets"))
        metadata["model-index"] = [results]
    # JSON is YAML, and says strings without a doubt.
    front = "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in metadata.items()
    )
    body = facts.get("card") or _body(record, origin, name, facts)
    return f"---\n{front}\n---\n{body.rstrip()}\n"


def _results(name, metrics, datasets):
    data = (datasets or ["the author's own"])[0]
    return {
        "name": name,
        "results": [
            {
                "task": {"type": "image-classification"},
                "dataset": {"name": data, "type": data},
                "metrics": [
                    {"type": metric, "value": float(value)}
                    for metric, value in metrics.items()
                ],
            }
        ],
    }


def _body(record, origin, name, facts):
    kwargs, labels = record["kwargs"], record["label_names"]
    height, width = kwargs["image_size"]
    classes = kwargs["num_classes"]
    classify = 'kerasvit.classify(model, "photo.jpg")'
    parts = [
        f"# {name.removeprefix('hf://')}",
        f"{record['variant'] or record['builder']} "
        f"{f'for {classes} classes' if classes else 'without a head'}, "
        f"images of {height} × {width} pixels.",
        "```python\n"
        "import kerasvit\n\n"
        f'model = kerasvit.from_pretrained("{name}")\n'
        f"{classify if classes else 'model.predict(images)'}\n"
        "```",
        _in_timm(record, origin, name),
    ]
    if metrics := facts.get("metrics"):
        rows = {key: f"{value:g}" for key, value in metrics.items()}
        parts.append(_table("metric", "value", rows))
    if base := (record.get("base") or {}).get("source"):
        parts.append(f"It began with the weights of {base}.")
    if isinstance(labels, list):
        some = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
        parts.append(f"Classes: {some}.")
    said = json.dumps(record["preprocessing"])
    parts.append(f"Images are prepared by `kerasvit.Preprocessing`: `{said}`.")
    if training := facts.get("training"):
        parts.append("## Training\n\n" + _table("setting", "value", training))
    return "\n\n".join(parts)


def _in_timm(record, origin, name):
    if origin != "timm":
        return (
            "The tensors carry kerasvit's variable paths: timm has no such model, for "
            f"{why_not_timm(record)}."
        )
    normalised = (
        " for images normalised outside" if record["kwargs"]["normalization"] else ""
    )
    on_hub = name.startswith("hf://")
    address = f"{'hf-hub' if on_hub else 'local-dir'}:{name.removeprefix('hf://')}"
    return (
        f"timm reads this model too, with the same logits{normalised}:\n\n"
        "```python\n"
        "import timm\n\n"
        f'model = timm.create_model("{address}", pretrained=True)\n'
        "```"
    )


def _table(first, second, rows):
    """Rows of a dict; what would end a cell or a line is taken out of its values."""
    cells = (
        " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in row)
        for row in rows.items()
    )
    lines = [f"{first} | {second}", "--- | ---", *cells]
    return "\n".join(f"| {line} |" for line in lines)
