"""Arguments for the card of a trained model: data, results and training settings.

kerasvit.save_pretrained(model, folder, **facts(config, model, result, file))
"""

import dataclasses
import re
from pathlib import Path

from command.options import has_effect
from training.selection import sentence
from training.settings import NOT_TRAINING

from kerasvit import evaluation

# Settings that the card states in other words, or that do not matter for it.
OMITTED = (
    *NOT_TRAINING,
    *("compare", "rho", "dataset", "data", "linear_head", "validations", "method"),
    "keep_best",
)
# Values with which a setting changes nothing: the card does not state them.
WITHOUT_EFFECT = {
    **dict.fromkeys(("share", "accumulate", "micro_batches"), 1),
    **dict.fromkeys(("final_rate", "warmup_from", "label_smoothing"), 0),
    **dict.fromkeys(("dropout", "stochastic_depth"), 0),
}


def facts(config, model, result: dict, recipe: str) -> dict:
    """Returns the arguments of `kerasvit.save_pretrained` for the trained model.

    Args:
        config: Dataclass of the settings.
        model: `ImageModel` to save.
        result: Content of result.json.
        recipe: Path of the script.
    """
    images, rho = result["images"], result["rho"]
    name = Path(config.data or config.dataset).resolve().name
    measured = result["accuracy"]
    right = round(measured * images["test"])
    interval = evaluation.binomial_interval(right, images["test"])
    accuracy = {
        "value": round(measured, 6),
        "interval_95": [round(end, 6) for end in interval],
        "dataset": name,
        "split": result["test"],
        "images": images["test"],
    }
    last, selected = len(result["history"]), sentence(result)
    table = {
        "method": f"{config.method.upper()}, rho {rho:g}" if rho else "without SAM",
        "recipe": f"recipes/{Path(recipe).name}",
        "data": name,
        "images": f"{images['train']:,} for training, {images['validation']:,} for "
        + (
            "validation, which are the test images too"
            if result.get("test_is_validation")
            else f"validation, {images['test']:,} for the test"
        ),
        **start_of(result["start"] or {}),
        **_settings(config, model, rho),
        "steps": last * result["steps_between_validations"],
        **stages_of(result),
        **({"kept": selected} if selected else {}),
    }
    return {
        "name": re.sub(r"[^\w.-]+", "-", f"{config.model}-{name}"),
        "license": config.license or _license_beside(config, model),
        "metrics": {"accuracy": accuracy},
        "training": table,
    }


def start_of(start: dict) -> dict[str, str]:
    """Returns the head at the start, and what the linear classifier reaches.

    Args:
        start: `start` of result.json; empty for fresh weights.
    """
    if "linear_test" not in start:
        return {"start": start["begins"]} if start else {}
    linear = (
        f"{start['linear']:.2%} of {start['tested']:,} validation images, "
        f"{start['linear_test']:.2%} of {start['test_images']:,} test images"
    )
    return {"start": start["begins"], "linear classifier on frozen features": linear}


def stages_of(result: dict) -> dict[str, str | int]:
    """Returns the number of all steps, and what the stages are; {} for one stage."""
    stages = result.get("stages")
    if not stages:
        return {}
    steps = sum(each["rounds"] * each["steps_between_validations"] for each in stages)
    return {"steps": steps, "stages": "; ".join(each["text"] for each in stages)}


def _settings(config, model, rho):
    """Returns the settings of the training, without the user's paths."""
    settings = {
        name: value
        for name, value in dataclasses.asdict(config).items()
        if name not in OMITTED
        and has_effect(config, name)
        and value not in (None, WITHOUT_EFFECT.get(name))
    }
    if not rho:
        del settings["perturbation"]
    for name in ("weights", "teacher"):
        path = settings.get(name)
        if path and Path(path).expanduser().exists():
            settings[name] = _name_of(Path(path).expanduser().resolve())
    height, width = model.record["kwargs"]["image_size"]
    settings["image_size"] = f"{height} × {width}" if height else "any"
    return {
        name: ", ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in settings.items()
    }


def _name_of(path):
    """Returns the name of a file or folder, which says more than `model`."""
    return f"{path.parent.name}/model" if path.name == "model" else path.name


def _license_beside(config, model):
    """Returns the licence in the card beside the weights, or None.

    Returns None also if the model's record has a licence, which `save_pretrained` uses.
    """
    weights = getattr(config, "weights", None)
    if not weights or (model.record.get("base") or {}).get("license"):
        return None
    path = Path(weights).expanduser()
    card = (path if path.is_dir() else path.parent) / "README.md"
    try:
        with card.open(encoding="utf-8", errors="replace") as file:
            text = file.read(2**16)
    except OSError:
        return None
    # One line of the YAML at its head. The YAML is not parsed: it is not trusted.
    head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    found = head and re.search(
        r"^license:\s*[\"']?([\w.+-]+)[\"']?\s*$", head[1], re.MULTILINE
    )
    return found[1] if found else None
