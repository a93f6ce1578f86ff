"""Puts results into a README.md, and keeps everything else that is in it.

page = pages.updated(page, "vit", results, section)
"""

import json
import re

import yaml

from kerasvit.hub import is_generated, signed, split_page

BY = "recipes/evaluate.py"
START = f"<!-- Written by {BY}, which replaces it: -->"
END = "<!-- until here. -->"
KEY = "model-index"


def updated(before: bytes, name: str, results: list[dict], section: str) -> bytes:
    """Returns a page with results, in place of those that this function added before.

    The text of the user, other metadata and results of others stay as they are. A page
    that kerasvit generated counts as generated afterwards, too: `save_pretrained`
    replaces it.

    Args:
        before: Content of a README.md, b"" for a new one.
        name: Name of the model, if the page has none.
        results: Entries of the Hub's `model-index`; their metrics get the argument
            "by", by which they are found again.
        section: Text with the heading "## …".

    Raises:
        ValueError: The metadata at the head of the page cannot be read.
    """
    text = before.decode("utf-8", "surrogateescape")
    metadata, body = split_page(text)
    head = text[: len(text) - len(body)]
    body = body if body.strip() else f"# {name}\n"
    head = _with_value(head, metadata, _index(metadata.get(KEY), name, results))
    page = head + _with_section(body, section)
    if text.strip() and is_generated(before):
        page = signed(page)
    return page.encode("utf-8", "surrogateescape")


def _index(index, name, results):
    """Returns the `model-index` with the results in its first model."""
    index = [{"name": name, "results": []}] if index is None else index
    try:
        [first, *others] = index
        kept = [each for each in first["results"] if not _is_ours(each)]
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise ValueError(
            f'`{KEY}` must be a list of models, each with "name" and "results". '
            f"Received: {index!r:.200}"
        ) from error
    for result in results:
        for metric in result["metrics"]:
            metric.setdefault("args", {})["by"] = BY
    return [{**first, "results": kept + results}, *others]


def _is_ours(result):
    arguments = [metric.get("args") for metric in result["metrics"]]
    return any(isinstance(x, dict) and x.get("by") == BY for x in arguments)


def _with_value(head, metadata, value):
    """Returns a YAML block in which only the value of `KEY` differs."""
    new = f"{KEY}: {json.dumps(value, ensure_ascii=False, default=str)}\n"
    if not head:
        return f"---\n{new}---\n"
    opening, *lines, closing = head.strip().splitlines(keepends=True)
    root = yaml.compose("".join(lines))
    if root and root.flow_style:  # {license: mit}
        rest = {k: v for k, v in metadata.items() if k != KEY}
        lines = [f"{k}: {json.dumps(v, default=str)}\n" for k, v in rest.items()]
    else:
        for key, old in reversed(root.value if root else []):
            if key.value == KEY:
                end = old.end_mark.line + (old.end_mark.column > 0)
                while re.match(r"\s*(#|$)", lines[end - 1]):  # what follows is kept
                    end -= 1
                del lines[key.start_mark.line : end]
    return "".join([opening, *lines, new, closing.rstrip(), "\n"])


def _with_section(body, section):
    """Returns a text with the section in place of the last one, or at its end."""
    new = f"{START}\n\n{section.strip()}\n\n{END}"
    found = re.search(f"{re.escape(START)}.*?{re.escape(END)}", body, re.DOTALL)
    if found:
        return body[: found.start()] + new + body[found.end() :]
    return f"{body.rstrip()}\n\n{new}\n"
