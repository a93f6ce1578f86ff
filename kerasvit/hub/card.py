"""The model card: README.md of a model folder."""

import hashlib
import json
import logging
import re
from dataclasses import dataclass

from kerasvit.checkpoints import format_of, why_not_timm

from .front_matter import split_page
from .metrics import are_metrics, results, shown

log = logging.getLogger("kerasvit")

# Heads a page that nobody changed since: it may be replaced.
_OURS = "---\n# Written by kerasvit, "


@dataclass(frozen=True)
class Facts:
    """Facts for the card that the user gives; each may be None.

    Attributes:
        license: SPDX identifier.
        base_model: Repository of the Hub.
        datasets: Names.
        metrics: {name: number}, on the first of the datasets; or, in place of a
            number, a dict as in metrics.py.
        training: {setting: value}.
        card: Text of a README.md.

    Raises:
        ValueError: One is of a wrong kind.
    """

    license: str | None
    base_model: str | None
    datasets: list[str] | None
    metrics: dict[str, float | dict] | None
    training: dict | None
    card: str | None

    def __post_init__(self):
        kinds = {
            "license": (_is_text, 'an SPDX identifier, such as "apache-2.0"'),
            "base_model": (_is_text, 'a repository, such as "user/name"'),
            "datasets": (_are_names, 'a list of names, such as ["cifar10"]'),
            "metrics": (are_metrics, 'names with finite numbers: {"accuracy": 0.93}'),
            "training": (_is_dict, 'a dict for a table, such as {"epochs": 30}'),
            "card": (_is_text, "the text of a README.md"),
        }
        for name, (fits, meant) in kinds.items():
            value = getattr(self, name)
            if value is not None and not fits(value):
                raise ValueError(f"`{name}` must be {meant}. Received: {value!r:.200}.")
        try:
            split_page(self.card or "")
        except ValueError as error:
            raise ValueError(
                "The metadata at the head of `card`, between two lines of ---, must be "
                f"YAML, a name and a value a line. Received: {self.card!r:.200}; "
                f"{error}."
            ) from error


def write_card(record, name, facts, before=None) -> bytes:
    """Returns the card of a model, with metadata for the Hugging Face Hub.

    A page of before that nobody changed since it was written here is replaced. Of
    another, and of a `card`, text and metadata are kept; the facts that are given win,
    and what is known besides fills gaps.

    Args:
        record: Of the model.
        name: Of the folder, or "hf://user/name[@revision]".
        facts: `Facts`.
        before: The page that is there, or None.
    """
    metadata = _metadata(record, name, facts)
    generated = _body(record, name, facts)
    text = facts.card
    if text is not None:
        text = _merged(text, split_page(text), metadata, generated)
    elif before is None or _is_ours(before):
        page = _page(metadata[0] | metadata[1], generated).removeprefix("---\n")
        text = f"{_OURS}{_digest(page)}\n{page}"
    else:
        text = before.decode("utf-8", "surrogateescape")
        text = _kept(text, metadata, generated, name.removeprefix("hf://"))
    return text.encode("utf-8", "surrogateescape")


def _kept(text, metadata, generated, name):
    """Returns a page that the user wrote, with missing metadata added."""
    try:
        parts = split_page(text)
    except ValueError as error:
        log.warning(
            "The README.md of %s is kept as it is, and nothing of this model is in it: "
            "the metadata at its head cannot be read: %s. With `card` it is replaced.",
            name,
            error,
        )
        return text
    if parts[1].strip():
        log.warning(
            "The README.md of %s is kept, for it is written or changed by hand: what "
            "is given goes into its metadata, and its text may tell of another model. "
            "With `card` it is replaced.",
            name,
        )
        if not parts[0] and not metadata[1]:
            return text
    return _merged(text, parts, metadata, generated)


def _merged(text, parts, metadata, generated):
    (theirs, body), (known, given) = parts, metadata
    merged = {**known, **theirs, **given}
    merged["tags"] = _tags(theirs.get("tags"), known["tags"])
    if merged == theirs and body.strip():
        return text
    return _page(merged, body if body.strip() else generated)


def _metadata(record, name, facts):
    """Returns (known, given) metadata of the page."""
    base = record.get("base") or {}
    source = base.get("source")
    known = {
        "library_name": "kerasvit",
        "pipeline_tag": "image-classification",
        "tags": ["keras", *(["timm"] if _origin(record) == "timm" else [])],
        "license": base.get("license"),
        "base_model": source if source and "://" not in source else None,
    }
    given = {
        "license": facts.license,
        "base_model": facts.base_model,
        "datasets": facts.datasets,
    }
    if facts.metrics:
        given["metrics"] = list(facts.metrics)
        if found := results(facts):
            entry = {"name": name.removeprefix("hf://"), "results": found}
            given["model-index"] = [entry]
    return (
        {key: value for key, value in known.items() if value},
        {key: value for key, value in given.items() if value},
    )


def _tags(theirs, ours):
    """Joins the user's tags and ours."""
    theirs = theirs if isinstance(theirs, list) else [theirs] if theirs else []
    kept = [tag for tag in theirs if tag != "timm" or tag in ours]
    return kept + [tag for tag in ours if tag not in kept]


def _page(metadata, body):
    # JSON is YAML, and says strings without a doubt. YAML has dates besides.
    front = "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in metadata.items()
    )
    return f"---\n{front}\n---\n{body.rstrip()}\n"


def _is_ours(page):
    """Whether a page is empty or unchanged since it was written here."""
    text = page.decode("utf-8", "replace")
    found = re.match(rf"{_OURS}([0-9a-f]{{16}})\n", text)
    return not text.strip() or bool(found and found[1] == _digest(text[found.end() :]))


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _origin(record):
    """Returns the sentence on the tensors' format."""
    return format_of(record)[0].code_base


def _is_text(value):
    return isinstance(value, str)


def _is_dict(value):
    return isinstance(value, dict)


def _are_names(value):
    return isinstance(value, (list, tuple)) and all(map(_is_text, value))


def _body(record, name, facts):
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
        _in_timm(record, name),
        *_where(name),
    ]
    if facts.metrics:
        rows = {key: shown(value) for key, value in facts.metrics.items()}
        parts.append(_table("metric", "value", rows))
    if base := (record.get("base") or {}).get("source"):
        parts.append(f"It began with the weights of {_line(base)}.")
    license = facts.license or (record.get("base") or {}).get("license")
    parts.append(f"Licence: {_line(license) if license else 'none is stated'}.")
    if isinstance(labels, list):
        some = ", ".join(map(_line, labels[:20])) + (", …" if len(labels) > 20 else "")
        parts.append(f"Classes: {some}.")
    fields = json.dumps(record["preprocessing"])
    parts.append(f"Images are prepared by `kerasvit.Preprocessing`: `{fields}`.")
    if facts.training:
        parts.append("## Training\n\n" + _table("setting", "value", facts.training))
    return "\n\n".join(parts)


def _where(name):
    """Returns a placeholder for a name that is no Hub address."""
    if name.startswith("hf://"):
        return []
    return [
        f"{name} is to be the path of the folder with this file. On the Hugging Face "
        'Hub it is "hf://user/name", for timm "hf-hub:user/name".'
    ]


def _in_timm(record, name):
    if _origin(record) != "timm":
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
    """Returns a Markdown table of a dict, with its values escaped."""
    cells = (
        " | ".join(_line(cell).replace("|", "\\|") for cell in row)
        for row in rows.items()
    )
    lines = [f"{first} | {second}", "--- | ---", *cells]
    return "\n".join(f"| {line} |" for line in lines)


def _line(value):
    """Returns a value as one line."""
    return " ".join(str(value).split())
