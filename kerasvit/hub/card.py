"""The model card: README.md of a model folder."""

import hashlib
import json
import logging
import re
from dataclasses import dataclass
from typing import Any

from kerasvit.checkpoints import format_of, why_not_timm

from .front_matter import split_page
from .metrics import are_metrics, results, shown

log = logging.getLogger("kerasvit")

# First lines of a generated page, followed by its hash. Unchanged pages are replaced.
_OURS = "---\n# Written by kerasvit, "

Metadata = dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """Facts for the card that the user states; each may be None.

    Attributes:
        license: SPDX identifier.
        base_model: Repository of the Hub.
        datasets: Names of datasets.
        metrics: {name: number}, measured on the first dataset. A dict as in metrics.py
            may replace the number.
        training: {setting: value}.
        card: Text of a README.md.
        adapters: Whether adapters are in a file of their own, which timm does not read.
        alone: Whether there is no model beside them.
        quantized: Modes of the quantised layers, such as "int8", or "".

    Raises:
        ValueError: A fact has a wrong type.
    """

    license: str | None
    base_model: str | None
    datasets: list[str] | None
    metrics: dict[str, float | dict] | None
    training: dict | None
    card: str | None
    adapters: bool = False
    alone: bool = False
    quantized: str = ""

    def __post_init__(self) -> None:
        kinds = {
            "license": (str, 'an SPDX identifier, such as "apache-2.0"'),
            "base_model": (str, 'a repository, such as "user/name"'),
            "datasets": ((list, tuple), 'a list of names, such as ["cifar10"]'),
            "metrics": (dict, 'names with finite numbers: {"accuracy": 0.93}'),
            "training": (dict, 'a dict for a table, such as {"epochs": 30}'),
            "card": (str, "the text of a README.md"),
        }
        kind: Any
        for name, (kind, meant) in kinds.items():
            value = getattr(self, name)
            fits = isinstance(value, kind)
            if fits and name == "datasets":
                fits = all(isinstance(dataset, str) for dataset in value)
            if fits and name == "metrics":
                fits = are_metrics(value)
            if value is not None and not fits:
                raise ValueError(f"`{name}` must be {meant}. Received: {value!r:.200}.")
        try:
            split_page(self.card or "")
        except ValueError as error:
            raise ValueError(
                "The metadata at the head of `card`, between two lines of ---, must be "
                f"YAML, a name and a value a line. Received: {self.card!r:.200}; "
                f"{error}."
            ) from error


def write_card(
    record: dict, name: str, facts: Facts, before: bytes | None = None
) -> bytes:
    """Returns the card of a model, with metadata for the Hugging Face Hub.

    A generated page is replaced if it is unchanged. The text and the metadata of other
    pages, and of `facts.card`, are kept: stated facts override their metadata, and
    known facts fill the gaps.

    Args:
        record: Record of the model.
        name: Name of the folder, or "hf://user/name[@revision]".
        facts: Facts that the user states.
        before: The existing page, or None.
    """
    known, given = _metadata(record, name, facts)
    generated = _body(record, name, facts)
    if facts.card is not None:
        text = _merged(facts.card, known, given, generated)
    elif before is None or is_generated(before):
        text = signed(_page(known | given, generated))
    else:
        text, reason = before.decode("utf-8", "surrogateescape"), None
        try:
            metadata, body = split_page(text)
        except ValueError as error:
            reason = f"the metadata at its head cannot be read: {error}"
        else:
            if body.strip():
                reason = "it was written or changed by hand, maybe for another model"
            if metadata or given or not body.strip():
                text = _merged(text, known, given, generated)
        if reason:
            log.warning(
                "The README.md of %s is kept, because %s. Pass `card` to replace it.",
                name.removeprefix("hf://"),
                reason,
            )
    return text.encode("utf-8", "surrogateescape")


def _merged(text: str, known: Metadata, given: Metadata, generated: str) -> str:
    """Returns a page of the user with merged metadata; adds a missing body."""
    metadata, body = split_page(text)
    tags = metadata.get("tags") or []
    tags = tags if isinstance(tags, list) else [tags]
    tags = [tag for tag in tags if tag != "timm" or tag in known["tags"]]
    tags += [tag for tag in known["tags"] if tag not in tags]
    merged = {**known, **metadata, **given, "tags": tags}
    if merged == metadata and body.strip():
        return text
    return _page(merged, body if body.strip() else generated)


def _metadata(record: dict, name: str, facts: Facts) -> tuple[Metadata, Metadata]:
    """Returns (known metadata, metadata that the user states)."""
    base = record.get("base") or {}
    source = base.get("source")
    known = {
        "library_name": "kerasvit",
        "pipeline_tag": "image-classification",
        "tags": [
            "keras",
            *(["timm"] if _is_timm(record, facts) else []),
            *(["lora"] if facts.adapters else []),
        ],
        "base_model_relation": "adapter" if facts.alone and _repository(source) else "",
        "license": base.get("license"),
        "base_model": _repository(source),
    }
    given: Metadata = {
        "license": facts.license,
        "base_model": facts.base_model,
        "datasets": facts.datasets,
        "metrics": list(facts.metrics or ()),
    }
    if found := results(facts.metrics or {}, facts.datasets or ()):
        entry = {"name": name.removeprefix("hf://"), "results": found}
        given["model-index"] = [entry]
    return (
        {key: value for key, value in known.items() if value},
        {key: value for key, value in given.items() if value},
    )


def _repository(source: str | None) -> str | None:
    """Returns the source of the initial weights if it is a repository of the Hub."""
    return source if source and "://" not in source else None


def _page(metadata: Metadata, body: str) -> str:
    # JSON is valid YAML with unambiguous strings. YAML also has dates.
    front = "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in metadata.items()
    )
    return f"---\n{front}\n---\n{body.rstrip()}\n"


def signed(text: str) -> str:
    """Returns a page with metadata that counts as generated until it is changed."""
    page = re.sub(rf"\A(?:{_OURS}[0-9a-f]{{16}}|---)\n", "", text)
    return f"{_OURS}{_digest(page)}\n{page}"


def is_generated(page: bytes) -> bool:
    """Returns whether a page is empty, or generated and unchanged."""
    text = page.decode("utf-8", "replace")
    match = re.match(rf"{_OURS}([0-9a-f]{{16}})\n", text)
    return not text.strip() or bool(match and match[1] == _digest(text[match.end() :]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_timm(record: dict, facts: Facts) -> bool:
    """Returns whether the tensors have timm's names."""
    own = facts.adapters or facts.quantized
    return not own and format_of(record)[0].code_base == "timm"


def _body(record: dict, name: str, facts: Facts) -> str:
    kwargs, labels = record["kwargs"], record["label_names"]
    height, width = kwargs["image_size"]
    size = f"{height} × {width} pixels" if height else "any size"
    classes, short = kwargs["num_classes"], name.removeprefix("hf://")
    head, call = "without a head", "model.predict(images)"
    if classes:
        head, call = f"for {classes} classes", 'kerasvit.classify(model, "photo.jpg")'
    parts = [
        f"# {short}",
        f"{record['variant'] or record['builder']} {head}, images of {size}.",
        f"```python\nimport kerasvit\n\n{_load(record, name, facts)}\n{call}\n```",
        _timm_section(record, name, facts),
    ]
    if name == short:
        parts.append(
            f"Replace {name} by the path of this folder. For a repository of the "
            'Hugging Face Hub use "hf://user/name", in timm "hf-hub:user/name".'
        )
    if facts.metrics:
        rows = {key: shown(value) for key, value in facts.metrics.items()}
        parts.append(_table("metric", "value", rows))
    base = record.get("base") or {}
    if base.get("source"):
        parts.append(f"Training began with the weights of {_line(base['source'])}.")
    license = facts.license or base.get("license")
    parts.append(f"Licence: {_line(license) if license else 'none is stated'}.")
    if isinstance(labels, list):
        some = ", ".join(map(_line, labels[:20])) + (", …" if len(labels) > 20 else "")
        parts.append(f"Classes: {some}.")
    fields = json.dumps(record["preprocessing"])
    parts.append(f"Images are prepared by `kerasvit.Preprocessing`: `{fields}`.")
    if facts.training:
        parts.append("## Training\n\n" + _table("setting", "value", facts.training))
    return "\n\n".join(parts)


def _load(record: dict, name: str, facts: Facts) -> str:
    """Returns the lines that load the model."""
    if not facts.alone:
        return f'model = kerasvit.from_pretrained("{name}")'
    source = facts.base_model or _repository((record.get("base") or {}).get("source"))
    base = f"hf://{source}" if source else "the initial weights"
    size, classes = (record["kwargs"][key] for key in ("image_size", "num_classes"))
    return (
        f'model = kerasvit.from_pretrained(\n    "{base}", image_size={tuple(size)}, '
        f'num_classes={classes}\n)\nkerasvit.load_adapters(model, "{name}")'
    )


def _timm_section(record: dict, name: str, facts: Facts) -> str:
    if facts.alone:
        return (
            "The file has the adapters of LoRA and the other trained weights. The base "
            "weights must be those with which the training began."
        )
    if not _is_timm(record, facts):
        why = f"timm has no such model: {why_not_timm(record)}"
        if facts.adapters:
            why = "timm has no adapters of LoRA, which are in a file of their own"
        if facts.quantized:
            why = (
                f"Kernels of dense layers are {facts.quantized}, with a tensor "
                "`kernel_scale` beside each; timm has no such models"
            )
        return f"The tensors have kerasvit's variable paths as names. {why}."
    outside = record["kwargs"]["normalization"]
    normalised = " for normalised images" if outside else ""
    short = name.removeprefix("hf://")
    address = f"{'local-dir' if name == short else 'hf-hub'}:{short}"
    return (
        f"timm reads this model too, with the same logits{normalised}:\n\n"
        f'```python\nimport timm\n\nmodel = timm.create_model("{address}", '
        "pretrained=True)\n```"
    )


def _table(first: str, second: str, rows: dict) -> str:
    """Returns a Markdown table of a dict, with its values escaped."""
    cells = (
        " | ".join(_line(cell).replace("|", "\\|") for cell in row)
        for row in rows.items()
    )
    lines = [f"{first} | {second}", "--- | ---", *cells]
    return "\n".join(f"| {line} |" for line in lines)


def _line(value: object) -> str:
    """Returns a value as one line."""
    return " ".join(str(value).split())
