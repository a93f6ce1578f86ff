"""Results of a training: result.json, the saved model, its card, and the table."""

import dataclasses
import os
import re
import shlex
import shutil
from pathlib import Path

import keras
import numpy as np
from command.options import has_effect
from rich.table import Table
from scoring import confusion, label_table
from scoring.outputs import Predictor
from training import stages, training_data
from training.curves import draw_curves
from training.progress import console
from training.quality import QUALITIES, quality_of
from training.run_folder import TRIAL, write_json
from training.settings import NOT_TRAINING
from training.validation import is_halved, sentence

import kerasvit
from kerasvit import evaluation

PLAIN = {"highlight": False, "soft_wrap": True}

# Settings that the card states in other words, or that do not matter for it.
OMITTED = (
    *NOT_TRAINING,
    *("compare", "rho", "dataset", "data", "linear_head", "validations", "method"),
    "keep_best",
)
# Values with which a setting changes nothing: the card does not state them.
LABEL_METRICS = {  # {in result.json: in the card}
    "map": "mean average precision",
    "f1_micro": "F1, micro",
    "f1_macro": "F1, macro",
    "f1_samples": "F1, samples",
}
WITHOUT_EFFECT = {
    "task": "single_label",
    "loss": "softmax",
    "balanced": False,
    **dict.fromkeys(("share", "accumulate", "micro_batches"), 1),
    **dict.fromkeys(("final_rate", "warmup_from", "label_smoothing"), 0),
    **dict.fromkeys(("dropout", "stochastic_depth"), 0),
    "objective": "labels",
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
    last, selected = len(result["history"]), sentence(result)
    table = {
        "method": f"{config.method.upper()}, rho {rho:g}" if rho else "without SAM",
        **({"method chosen": tried} if (tried := result.get("trial")) else {}),
        "recipe": f"recipes/{Path(recipe).name}",
        "data": name,
        "images": f"{images['train']:,} for training, {images['validation']:,} for "
        + (
            "validation, which are the test images too"
            if result.get("test_is_validation")
            else f"validation, {images['test']:,} for the test"
        ),
        **start_of(result["start"] or {}, config.task),
        **_settings(config, model, rho),
        **({"means and deviations": found} if (found := result.get("means")) else {}),
        "steps": last * result["steps_between_validations"],
        **stages_of(result),
        **({"kept": selected} if selected else {}),
        **({} if result.get("test_is_validation") else _halved(config, images)),
    }
    return {
        "name": re.sub(r"[^\w.-]+", "-", f"{config.model}-{name}"),
        "license": config.license or _license_beside(config, model),
        "metrics": _metrics(result, name),
        "training": table,
    }


def _halved(config, images):
    """Returns which validation images chose the epoch, if not all of them did."""
    count = images["validation"]
    if not is_halved(config, count):
        return {}
    first, second = map(len, kerasvit.Calibration.halves(count))
    text = f"{first:,} of the validation images; a calibration has {second:,} others"
    return {"epoch chosen on": text}


def _metrics(result: dict, dataset: str) -> dict:
    """Returns what the card states of the accuracy, or of several labels, if any."""
    images = result["images"]["test"]
    if "map" in result:
        known = {"dataset": dataset, "split": result["test"], "images": images}
        return {
            name: {"value": round(result[key], 6), **known}
            for key, name in LABEL_METRICS.items()
        }
    if "accuracy" not in result:
        return {}
    right = round(result["accuracy"] * images)
    interval = evaluation.binomial_interval(right, images)
    accuracy = {
        "value": round(result["accuracy"], 6),
        "interval_95": [round(end, 6) for end in interval],
        "dataset": dataset,
        "split": result["test"],
        "images": images,
    }
    return {"accuracy": accuracy}


def start_of(start: dict, task: str) -> dict[str, str]:
    """Returns the head at the start, and what the linear classifier reaches.

    Args:
        start: `start` of result.json; empty for fresh weights.
        task: Of the training: of several labels per image it is the mAP.
    """
    if "linear_test" not in start:
        return {"start": start["begins"]} if start else {}
    of = "mAP for" if task == "multilabel" else "of"
    linear = (
        f"{start['linear']:.2%} {of} {start['tested']:,} validation images, "
        f"{start['linear_test']:.2%} {of} {start['test_images']:,} test images"
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
        if path and Path(os.path.expanduser(path)).exists():
            settings[name] = _name_of(Path(os.path.expanduser(path)).resolve())
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
    path = Path(os.path.expanduser(weights))
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


def summary(
    parts: list[dict],
    plan: list,
    dataset,
    folder: Path,
    start: dict | None = None,
    means: str | None = None,
    tried: str | None = None,
) -> dict:
    """Returns the content of result.json, but for the licence.

    Args:
        parts: Test metrics and result of `stages.finish`, of each stage.
        plan: Result of `stages.of`.
        dataset: `kerasvit.data.LabelledImages`.
        folder: Folder of the results.
        start: Result of `linear_classifier.set_head`; None for fresh weights.
        means: Result of `models.set_means`.
        tried: Why the method was chosen, of `sam_trial.decided`.
    """
    main = stages.main_of(plan)
    return {
        **stages.summed(parts),
        **stages.facts(plan),
        "training": "with SAM" if main.config.rho else "without SAM",
        "rho": main.config.rho,
        "folder": str(folder),
        "steps_between_validations": main.round_steps,
        "test": dataset.test_name,
        "test_is_validation": dataset.test is dataset.validation,
        "images": dataset.counts,
        "start": start,
        **({"means": means} if means else {}),
        **({"trial": tried} if tried else {}),
    }


def save(
    result: dict,
    plan: list,
    model: keras.Model,
    *,
    recipe: str,
    devices,
    dataset,
) -> dict:
    """Saves model, card, curves and result.json, and deletes the states of training.

    Only the first process writes.

    Args:
        result: Result of `summary`.
        plan: Result of `stages.of`.
        model: `ImageModel` with the kept weights.
        recipe: Path of the script.
        devices: `Devices` of the training.
        dataset: `kerasvit.data.LabelledImages`, for the confusion of the test images.

    Returns:
        The result, with the `license` of the model.
    """
    config = stages.main_of(plan).config
    part = training_data.batch_options(config, model)["batch_size"]
    confused = labelled = None
    predict = Predictor(devices, part, placed=True)
    if "accuracy" in result:
        known = dataset.test, dataset.class_names, result["test"]
        confused = confusion.of_model(predict, model, *known)
    if config.task == "multilabel":
        logits = [predict(model, x, model) for x in (dataset.validation, dataset.test)]
    model = devices.whole(model)
    if config.task == "multilabel":
        labelled = _with_thresholds(model, logits, dataset, result["test"])
        result |= labelled.numbers
    folder = Path(result["folder"])
    card = facts(config, model, result, recipe)
    base = model.record.get("base") or {}
    result["license"] = card["license"] or base.get("license")
    if not devices.is_first:
        return result
    keep = getattr(config, "keep_adapters", False)
    kerasvit.save_pretrained(model, folder / "model", keep_adapters=keep, **card)
    if labelled is not None:
        label_table.add_to_card(folder / "model" / "README.md", labelled)
    if confused is not None:
        confusion.add_to_card(folder / "model" / "README.md", confused)
    draw_curves(result, folder / "curves.png")
    write_json(folder / "result.json", result)
    for stage in plan:
        shutil.rmtree(stage.folder(folder))
    for name in ("start.npz", TRIAL):
        (folder / name).unlink(missing_ok=True)
    return result


def _with_thresholds(model, logits, dataset, of: str) -> label_table.LabelTable:
    """Calibrates a model of several labels, and returns the numbers of its classes.

    Args:
        model: `ImageModel`, whose record gets the calibration.
        logits: Those of the validation and of the test images.
        dataset: `kerasvit.data.LabelledImages`.
        of: Name of the test images.
    """
    labels = dataset.validation.labels
    thresholds = np.full(labels.shape[1], label_table.HALF)
    shares = 1 / (1 + np.exp(-logits[1].astype("float64")))
    fewest = kerasvit.Calibration.fewest
    if len(labels) >= fewest:
        found = kerasvit.Calibration.fit(model, logits[0], labels)
        model.record["calibration"] = dataclasses.asdict(found)
        thresholds, shares = np.array(found.thresholds), found.probabilities(logits[1])
    else:
        console.print(
            f"No thresholds: they need {fewest} validation images or more, and here "
            f"are {len(labels)}. F1 is by 0.5, and `classify` returns the five most "
            "probable classes of each image.",
            **PLAIN,
        )
    names = dataset.class_names
    table = label_table.LabelTable(shares, dataset.test.labels, thresholds, names, of)
    if table.missing:
        console.print(
            f"No test image has {', '.join(table.missing)}: left out of the mAP.",
            **PLAIN,
        )
    return table


def report(*results: dict) -> None:
    """Prints the results of one or more trainings, and the paths of the models."""
    images, start = results[0]["images"], results[0].get("start")
    same = results[0].get("test_is_validation")  # there are no test images
    kind = "Validation" if same else "Test"
    table = Table(title=f"{kind}: {images['test']:,} images ({results[0]['test']})")
    quality = quality_of(results[0])
    heading = QUALITIES.get(quality, "accuracy")
    for column in ("", heading, "loss", "training"):
        table.add_column(column, justify="right")
    if start and "linear_test" in start:
        of = f" of {start['test_images']:,}"
        of = of if start["test_images"] < images["test"] else ""
        table.add_row("linear classifier", f"{start['linear_test']:.2%}{of}", "", "")
    for result in results:
        seconds = sum(logs["seconds"] for logs in result["history"])
        row = (
            f"{result[quality]:.2%}" if quality else "",
            f"{result['loss']:.4f}",
            f"{seconds:.0f} s",
        )
        table.add_row(result["training"], *row)
        before = result.get("after_stages", [])[:-1]
        for stage, found in zip(result.get("stages", []), before, strict=False):
            row = f"{found[quality]:.2%}", f"{found['loss']:.4f}", ""
            table.add_row(f"after {stage['text'].split(',')[0]}", *row)
    console.print(table)
    for result in results:
        _print_paths(result, of=f" {result['training']}" if len(results) > 1 else "")


def _print_paths(result, of):
    folder = result["folder"]
    use = f"    python recipes/finetune.py --weights {shlex.quote(folder)}/model\n"
    if quality_of(result):
        use = (
            f'    model = kerasvit.from_pretrained("{folder}/model")\n'
            '    kerasvit.classify(model, "image.png")\n'
        )
    console.print(
        f"Curves{of}: {folder}/curves.png. The model, to use as\n"
        f"{use}"
        "and to publish with its card as\n"
        f"    hf upload USER/NAME {shlex.quote(folder)}/model",
        soft_wrap=True,
        highlight=False,
    )
    if not result["license"]:
        console.print(
            "Its card states no licence. Before you publish it, add one to the head "
            f"of {folder}/model/README.md, such as `license: apache-2.0`; --license "
            "gives one to a new training.",
            soft_wrap=True,
            highlight=False,
        )
