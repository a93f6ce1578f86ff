"""The README.md of a model folder: what it is, where it comes from, how it did."""

import json

from kerasvit.checkpoints import why_not_timm


def write_card(record, origin, name, facts) -> str:
    """The page of a model, with the metadata that the Hugging Face Hub reads.

    Args:
        record: Of the model.
        origin: In whose names the tensors are, "timm" or our own.
        name: Of the folder or repository.
        facts: `license`, `base_model`, `datasets`, `metrics` and `card`, each or none.
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
    body = facts.get("card") or _body(record, origin, name, metrics)
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


def _body(record, origin, name, metrics):
    kwargs, labels = record["kwargs"], record["label_names"]
    height, width = kwargs["image_size"]
    normalised = " for images normalised outside" if kwargs["normalization"] else ""
    timm = (
        f"timm reads this model too, with the same logits{normalised}."
        if origin == "timm"
        else "The tensors carry kerasvit's variable paths: timm has no such model, for "
        f"{why_not_timm(record)}."
    )
    parts = [
        f"# {name.removeprefix('hf://')}",
        f"{record['variant'] or record['builder']} for {kwargs['num_classes']} "
        f"classes, images of {height} × {width} pixels.",
        "```python\n"
        "import kerasvit\n\n"
        f'model = kerasvit.from_pretrained("{name}")\n'
        'kerasvit.classify(model, "photo.jpg")\n'
        "```",
        timm,
    ]
    if metrics:
        rows = "\n".join(f"| {key} | {value:g} |" for key, value in metrics.items())
        parts.append(f"| metric | value |\n|---|---|\n{rows}")
    if base := (record.get("base") or {}).get("source"):
        parts.append(f"Trained from {base}.")
    if isinstance(labels, list):
        some = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
        parts.append(f"Classes: {some}.")
    said = json.dumps(record["preprocessing"])
    parts.append(f"Images are prepared by `kerasvit.Preprocessing`: `{said}`.")
    return "\n\n".join(parts)
