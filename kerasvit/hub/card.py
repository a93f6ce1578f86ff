"""The model card: README.md of a model folder."""

import hashlib
import json
import logging
import re
from dataclasses import dataclass
from typing import Any

from kerasvit.checkpoints import format_of, why_not_timm

from .front_matter import readable, split_page, without_block
from .metrics import are_metrics, results, shown

log = logging.getLogger("kerasvit")

# First lines of a generated page, followed by its hash. Unchanged pages are replaced.
_OURS = "---\n# Written by kerasvit, "
# Metadata of a loaded card that only hold for the files it came with.
_OF_FILES = ("library_name", "base_model_relation")
_RESULTS = ("metrics", "model-index")
_LICENCE = ("license", "license_name", "license_link")
# Licences that the Hub calls "other", with the addresses of their texts.
_OTHER = {
    "dinov3-license": "https://ai.meta.com/resources/models-and-libraries/dinov3-license/",
}
# Parts of a generated text that a copy renews, where they stand in a line of their own.
# A text without its first lines of code is not generated.
_CODE = r"```python\nimport kerasvit\n\nmodel = kerasvit\.[\s\S]*?\n```"
_TABLE = r"\| --- \| --- \|(?:\n\|.*)+"
_PARTS = {
    "title": r"# .*",
    "model": r"\w+ (?:for \d+ classes|without a head), images of "
    r"(?:\d+ × \d+ pixels|any size)(?:, \d+ channels?)?\.",
    "code": _CODE,
    "timm": r"timm reads this model too, [\s\S]*?\n```"
    r"|The tensors have kerasvit's variable paths as names\..*",
    "name": r"Replace .* by the path of this folder\..*",
    "metrics": rf"\| metric \| value \|\n{_TABLE}",
    "base": r"Training began with the weights of .*\.",
    "licence": r"Licence: .*\.",
    "classes": r"Classes: .*\.",
    "calibration": r"Calibrated on validation images: .*\.",
    "images": r"Images are prepared by `kerasvit\.Preprocessing`: `.*`\.",
    "training": rf"## Training\n\n\| setting \| value \|\n{_TABLE}",
}
_TABLES = {"metrics": "metrics", "training": "training settings"}
_NO_LICENCE = "Licence: none is stated."
# Results that recipes write between two lines, and their pictures, which stay behind.
_RESULTS_TEXT = r"<!-- Written by recipes/[\s\S]*?<!-- until here\. -->\n*"
_PICTURE = r"!\[(?:Confusion matrix|Trust) of .*\]\((?:confusion|trust)_[\w.-]+\)\n*"
_NOTE = "**The weights or the image size have changed since this card was written.**"

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


@dataclass(frozen=True)
class Card:
    """The card of the files that a model was loaded from.

    Attributes:
        text: The whole README.md.
        holds: Whether its results are those of the model: the model computes what it
            computed when they were measured.
    """

    text: str
    holds: bool


def write_card(
    record: dict,
    name: str,
    facts: Facts,
    before: bytes | None = None,
    loaded: Card | None = None,
) -> bytes:
    """Returns the card of a model, with metadata for the Hugging Face Hub.

    A generated page is replaced if it is unchanged. The text and the metadata of other
    pages, and of `facts.card`, are kept: stated facts override their metadata, and
    known facts fill the gaps. What the card of the loaded files says is known, and is
    the text of a new page; results are omitted that were measured with other weights.

    Args:
        record: Record of the model.
        name: Name of the folder, or "hf://user/name[@revision]".
        facts: Facts that the user states.
        before: The existing page, or None.
        loaded: Card of the files that the model was loaded from, or None.
    """
    if loaded and facts.alone:  # the adapters are not what the card is about
        loaded = Card(licence_of(loaded.text), loaded.holds)
    metadata, copied, whole = _split(loaded.text) if loaded else ({}, "", True)
    own, given = _metadata(record, name, facts)
    known = own | _copied(metadata, own, facts, loaded)
    stated = given if given.get("license") else known
    license = stated.get("license_name") or stated.get("license")
    parts = _parts(record, name, facts, license)
    generated = "\n\n".join(parts.values())
    in_place = loaded is not None and before == _encoded(loaded.text)
    by_hand = before is not None and not is_generated(before)
    if facts.card is not None:
        text = _merged(facts.card, known, given, generated, own["tags"])
    elif before is not None and by_hand and not (in_place and whole):
        text = _kept(before, name, known, given, generated, own["tags"])
    elif loaded and copied.strip():
        elsewhere = copied if in_place else re.sub(_PICTURE, "", copied)
        body = _renewed(elsewhere, parts, facts, loaded.holds)
        text = _page(known | given, body)
        if is_generated(_encoded(loaded.text)):
            text = signed(text)
        elif whole and known | given == metadata and body == copied:
            text = loaded.text  # with the comments of its metadata
    else:
        text = signed(_page(known | given, generated))
    return _encoded(text)


def licence_of(text: str) -> str:
    """Returns a page with the metadata of the licence alone, or ""."""
    metadata = _split(text)[0]
    found = {key: metadata[key] for key in _LICENCE if key in metadata}
    return _page(found, "") if found else ""


def _split(text: str) -> tuple[Metadata, str, bool]:
    """Returns (metadata, body) of a loaded card, and whether all could be read."""
    try:
        return *split_page(text), True
    except ValueError as error:
        metadata = readable(text)
        log.warning(
            "The metadata at the head of the loaded card are left out%s, for %s.",
            f", but for {', '.join(metadata)}" if metadata else "",
            error,
        )
        return metadata, without_block(text), False


def _copied(
    metadata: Metadata, own: Metadata, facts: Facts, loaded: Card | None
) -> Metadata:
    """Returns the metadata of a loaded card that hold for a copy."""
    dropped: tuple[str, ...] = _OF_FILES
    if facts.metrics or (loaded and not loaded.holds):
        dropped += _RESULTS
        if not facts.metrics and any(key in metadata for key in _RESULTS):
            log.warning(
                "The results in the card were measured with other weights, or another "
                "image size or precision: they are not repeated in its metadata. Pass "
                "`metrics` for new ones."
            )
    found = {key: value for key, value in metadata.items() if key not in dropped}
    return {**found, "tags": _tags(metadata, own["tags"])}


def _tags(metadata: Metadata, own: list[str]) -> list[str]:
    """Returns the tags of a card and those of the files; without those of others."""
    tags = metadata.get("tags") or []
    tags = tags if isinstance(tags, list) else [tags]
    tags = [tag for tag in tags if tag not in ("timm", "lora") or tag in own]
    return [*tags, *(tag for tag in own if tag not in tags)]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _kept(
    before: bytes,
    name: str,
    known: Metadata,
    given: Metadata,
    generated: str,
    own_tags: list[str],
) -> str:
    """Returns a page that a user wrote, with merged metadata."""
    text, reason = before.decode("utf-8", "surrogateescape"), None
    try:
        metadata, body = split_page(text)
    except ValueError as error:
        reason = f"the metadata at its head cannot be read: {error}"
    else:
        if body.strip():
            reason = "it was written or changed by hand, maybe for another model"
        if metadata or given or not body.strip():
            text = _merged(text, known, given, generated, own_tags)
    if reason:
        log.warning(
            "The README.md of %s is kept, because %s. Pass `card` to replace it.",
            name.removeprefix("hf://"),
            reason,
        )
    return text


def _merged(
    text: str, known: Metadata, given: Metadata, generated: str, own_tags: list[str]
) -> str:
    """Returns a page of the user with merged metadata; adds a missing body."""
    metadata, body = split_page(text)
    merged = {**known, **metadata, **given, "tags": _tags(metadata, own_tags)}
    if merged == metadata and body.strip():
        return text
    return _page(merged, body if body.strip() else generated)


def _renewed(body: str, parts: dict[str, str], facts: Facts, holds: bool) -> str:
    """Returns the text of a loaded card for a copy of the model.

    The parts of a generated text that depend on the name, the files or stated facts are
    renewed. All else stays. If the weights have changed, the table of results goes, and
    the rest is marked.
    """
    claims = body = body if holds else re.sub(_RESULTS_TEXT, "", body)
    if re.search(rf"^{_CODE}$", body, re.MULTILINE):
        for kind, pattern in _PARTS.items():
            found = re.search(rf"^(?:{pattern})$", body, re.MULTILINE)
            if not found:
                continue
            old, new = found[0], parts.get(kind, "")
            stale = kind == "metrics" and not holds
            if stale or not _stays(kind, old, new, facts, body):
                after = body[found.end() :]
                body = body[: found.start()] + new + (after if new else after.lstrip())
            elif kind in ("metrics", "training"):
                continue
            claims = claims.replace(old, "", 1)
    tables = [kind for kind in ("metrics", "training") if getattr(facts, kind)]
    for kind in tables:
        if parts[kind] not in body:
            body = f"{body.rstrip()}\n\n{parts[kind]}\n"
    if holds or _NOTE in body or not claims.strip():
        return body
    but = " and ".join(f"its table of {_TABLES[kind]}" for kind in tables)
    note = f"{_NOTE} Its text is about the earlier weights{but and f', but for {but}'}."
    title = re.match(r"\s*# .*\n", body)
    place = title.end() if title else 0
    return f"{body[:place]}\n{note}\n\n{body[place:].lstrip()}"


def _stays(kind: str, old: str, new: str, facts: Facts, body: str) -> bool:
    """Returns whether a part of a loaded card stays as it is."""
    if kind == "title":  # one that the user wrote
        return f'{old.removeprefix("# ").strip()}"' not in body
    if kind in ("metrics", "training"):
        return not getattr(facts, kind)
    if kind == "licence":
        return not facts.license and old != _NO_LICENCE
    if kind == "classes":  # which the user may have explained
        names = new.removeprefix("Classes: ").removesuffix(".").split(", ")
        return bool(new) and all(name in old for name in names)
    return kind == "base"


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
        **_licence(base.get("license")),
        "base_model": _repository(source),
    }
    given: Metadata = {
        **_licence(facts.license),
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


def _licence(license: str | None) -> Metadata:
    """Returns the metadata that the Hub has for a licence."""
    if license not in _OTHER:
        return {"license": license}
    link = {"license_name": license, "license_link": _OTHER[license]}
    return {"license": "other", **link}


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


def _parts(
    record: dict, name: str, facts: Facts, license: str | None
) -> dict[str, str]:
    """Returns the parts of a generated text by their names in `_PARTS`."""
    kwargs, labels = record["kwargs"], record["label_names"]
    height, width = kwargs["image_size"]
    size = f"{height} × {width} pixels" if height else "any size"
    channels = kwargs.get("channels", 3)
    if channels != 3:
        size += f", {channels} channel{'s' * (channels > 1)}"
    classes, short = kwargs["num_classes"], name.removeprefix("hf://")
    head, call = "without a head", "model.predict(images)"
    if classes:
        photo = {1: "image.png", 3: "photo.jpg"}.get(channels, "image.tif")
        head, call = f"for {classes} classes", f'kerasvit.classify(model, "{photo}")'
    load = _load(record, name, facts)
    parts = {
        "title": f"# {short}",
        "model": f"{record['variant'] or record['builder']} {head}, images of {size}.",
        "code": f"```python\nimport kerasvit\n\n{load}\n{call}\n```",
        "timm": _timm_section(record, name, facts),
    }
    if name == short:
        parts["name"] = (
            f"Replace {name} by the path of this folder. For a repository of the "
            'Hugging Face Hub use "hf://user/name", in timm "hf-hub:user/name".'
        )
    if facts.metrics:
        shares = {key: shown(key, value) for key, value in facts.metrics.items()}
        parts["metrics"] = _table("metric", "value", shares)
    base = record.get("base") or {}
    if base.get("source"):
        source = _line(base["source"])
        parts["base"] = f"Training began with the weights of {source}."
    parts["licence"] = f"Licence: {_line(license)}." if license else _NO_LICENCE
    if isinstance(labels, list):
        some = ", ".join(map(_line, labels[:20])) + (", …" if len(labels) > 20 else "")
        parts["classes"] = f"Classes: {some}."
    if isinstance(found := record.get("calibration"), dict):
        use = "`classify(..., coverage=0.9)` returns sets of classes"
        if found.get("thresholds"):
            use = "`classify` returns the labels that reach their thresholds"
        parts["calibration"] = f"Calibrated on validation images: {use}."
    fields = json.dumps(record["preprocessing"])
    parts["images"] = f"Images are prepared by `kerasvit.Preprocessing`: `{fields}`."
    if facts.training:
        rows = _table("setting", "value", facts.training)
        parts["training"] = f"## Training\n\n{rows}"
    return parts


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
