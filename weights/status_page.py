"""The page STATUS.md: a rendering of status.json, the manifest and tests/golden."""

from collections.abc import Sequence
from typing import Any

import kerasvit
from kerasvit.hub.manifest import Entry

from .disputed import disputed
from .names import name_of
from .originals import first
from .parity import cases_of
from .status_facts import Facts, valid_facts
from .timm_reference import INSTALL

GOLDEN = "small models of the format and builder equal the original code"
RANDOM = "a file of random values with the names of the code base loads"
RANDOM_EQUAL = "a file of random values gives timm's outputs"
LOADED = "the real file loads"
EQUAL = "the real file's outputs equal timm's or published logits"
MEASURED = "the accuracy of the real file was measured on all 50,000 images"
FAILED = "the last test of the real file failed"
VALIDATION_IMAGES = 50_000  # of ImageNet
COLUMNS = ("name", "golden cases", "random file", "real file", "equal to", "top-1 %")
COMMAND = f"{INSTALL}\npython -m weights.first_contact"
INTRODUCTION = """# What is proven for each name

`python -m weights.status` writes this page from `status.json`, the catalogue and
`tests/golden`. Do not edit it.

| proof | names |
|---|---:|
{counts}

- **Golden cases**: small models of the same format and builder; every activation equals
  that of the original code on all backends, as `python -m tests` compares it for this
  version of kerasvit. The cases are [listed below](#golden-cases).
- **Random file**: the model loaded a file of random values from a local server, with
  the names, shapes and dtypes that timm or the authors' code gives this model. No
  tensor was missing or left over. For timm's files, the largest difference from timm's
  outputs follows, also for files of Google that timm reads.
- **Real file**: the model loaded the file from its server; its SHA-256 is pinned.
- **Equal to**: largest difference of outputs, relative to the largest output.
- **Top-1**: on ImageNet's validation images, measured by kerasvit. The published number
  is in parentheses; kerasvit has not verified it unless another number precedes it.

Each proof has its date, the version of kerasvit and the backend.

## What nobody has verified

{unverified}

With internet access, this does it (add `--images FOLDER` for the accuracies):

```bash
{command}
```
"""


def counts(entries: Sequence[Entry], facts: dict[str, Facts]) -> dict[str, int]:
    """Returns {proof: number of names that have it}; a failure voids proofs of files.

    Args:
        entries: Entries of the manifest.
        facts: Facts of each name, as in status.json.
    """
    cases = _cases(entries)
    known = valid_facts(facts, entries).values()
    random_equal = sum("equal" in each.get("random", {}) for each in known)
    sound = [each for each in known if "failure" not in each]
    images = [each["top1"]["images"] for each in sound if "top1" in each]
    return {
        GOLDEN: sum(bool(cases[_key(entry)]) for entry in entries),
        RANDOM: sum("random" in each for each in known),
        RANDOM_EQUAL: random_equal,
        LOADED: sum("loaded" in each for each in sound),
        EQUAL: sum("equal" in each for each in sound),
        MEASURED: images.count(VALIDATION_IMAGES),
        FAILED: len(known) - len(sound),
    }


def page(entries: Sequence[Entry], facts: dict[str, Facts]) -> str:
    """Returns the text of STATUS.md; the arguments are those of `counts`."""
    facts, cases = valid_facts(facts, entries), _cases(entries)
    numbers, total = counts(entries, facts), len(entries)
    introduction = INTRODUCTION.format(
        counts="\n".join(f"| {p} | {n} of {total} |" for p, n in numbers.items()),
        unverified=_unverified(numbers, total),
        command=COMMAND,
    )
    rows = [_row(e, facts[name_of(e)], cases[_key(e)]) for e in entries]
    golden = [
        (code_base, builder, ", ".join(f"`{name}`" for name in names) or "none")
        for (code_base, builder), names in sorted(cases.items())
    ]
    parts = [
        introduction,
        *_failures(facts),
        *_disputes(facts),
        "## Names\n",
        _table(COLUMNS, rows),
        "\n## Golden cases\n",
        _table(("format", "builder", "cases of tests/golden"), golden),
    ]
    return "\n".join(parts) + "\n"


def _key(entry: Entry) -> tuple[str, str]:
    """Format of the original file, and name of the builder."""
    return first(entry).format, getattr(kerasvit, entry.model).builder.__name__


def _cases(entries: Sequence[Entry]) -> dict[tuple[str, str], list[str]]:
    """Returns {(format, builder): names of golden cases}."""
    return {key: list(cases_of(*key)) for key in map(_key, entries)}


def _unverified(numbers: dict[str, int], total: int) -> str:
    optional = (RANDOM_EQUAL, FAILED)  # not every file is one of timm
    left = {p: total - n for p, n in numbers.items() if p not in optional}
    lines = [f"- that {p}: {n} of {total} names" for p, n in left.items() if n]
    return "\n".join(lines) or "Every name has every proof."


def _row(entry: Entry, facts: Facts, cases: list[str]) -> tuple[str, ...]:
    code_base, builder = _key(entry)
    equal = [
        f"{each['reference']}: {each['error']:.0e} ({_stamp(each)})"
        for each in facts.get("equal", ())
    ]
    random = [_stamp(facts.get("random"))] + [
        f"{each['reference']}: {each['error']:.0e}"
        for each in facts.get("random", {}).get("equal", ())
    ]
    return (
        name_of(entry),
        f"{len(cases)} of {code_base} {builder}" if cases else "none",
        "; ".join(random),
        _stamp(facts.get("loaded")) + (", **failed**" if "failure" in facts else ""),
        "; ".join(equal) or "–",
        _top1(entry, facts.get("top1")),
    )


def _stamp(fact: dict[str, Any] | None) -> str:
    """Returns date, version and backend of a proof; a dash without one."""
    if fact is None:
        return "–"
    keys = ("date", "kerasvit", "backend")
    return ", ".join(str(fact[key]) for key in keys if key in fact)


def _top1(entry: Entry, measured: dict[str, Any] | None) -> str:
    published = f"({entry.top1['percent']:.2f})" if entry.top1 else ""
    if name_of(entry) in disputed():
        published += " [disputed](#disputed-numbers)"
    if measured is None:
        return published or "–"
    real = measured["real_percent"]
    of = f"{measured['images']} images" + (f", ReaL {real:.2f}" if real else "")
    verdict = "" if measured["passed"] else " **too low**"
    about = f"{measured['percent']:.2f}{verdict} of {of}, {_stamp(measured)}"
    return f"{about} {published}".rstrip()


def _failures(facts: dict[str, Facts]) -> list[str]:
    rows = [
        (name, failure["kind"], failure["message"].replace("|", "\\|"), _stamp(failure))
        for name, each in facts.items()
        if (failure := each.get("failure"))
    ]
    if not rows:
        return []
    return ["## Failures\n", _table(("name", "what", "message", "when"), rows), ""]


def _disputes(facts: dict[str, Facts]) -> list[str]:
    parts = ["## Disputed numbers\n"]
    for name, table in disputed().items():
        known = facts.get(name, {})
        measured = dict(known.get("alternatives", {}))
        if "top1" in known:  # with the preprocessing of the catalogue
            measured["catalogue"] = known["top1"]
        published = [
            (f"{each['percent']}", each["source"], each["preprocessing"])
            for each in table["numbers"]
        ]
        rows = [
            (label, _fields(fields), _measured(measured.get(label)))
            for label, fields in table["preprocessing"].items()
        ]
        if measured:
            state = "kerasvit has measured the file with this preprocessing:"
        else:
            state = (
                "kerasvit has measured none of these numbers. With internet access and "
                "ImageNet's\nvalidation images, `python -m weights.disputed --images "
                "FOLDER` measures the pinned file\nwith each of these:"
            )
        parts += [
            f"**{name}**, top-1 on ImageNet in per cent:\n",
            _table(("top-1 %", "source", "preprocessing"), published),
            f"\n{state}\n",
            _table(("preprocessing", "differs from the catalogue in", "top-1 %"), rows),
            "",
        ]
    return parts


def _measured(fact: dict[str, Any] | None) -> str:
    if fact is None:
        return "not measured"
    return f"{fact['percent']:.2f} of {fact['images']} images, {_stamp(fact)}"


def _fields(fields: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in fields.items()) or "nothing"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
