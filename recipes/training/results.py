"""Results of a training: result.json, the saved model, its card, and the table."""

import shlex
import shutil
from pathlib import Path

import keras
from rich.table import Table
from scoring import confusion
from scoring.outputs import Predictor
from training import stages, training_data
from training.card_facts import facts
from training.curves import draw_curves
from training.progress import console
from training.run_folder import write_json

import kerasvit


def summary(
    parts: list[dict], plan: list, dataset, folder: Path, start: dict | None = None
) -> dict:
    """Returns the content of result.json, but for the licence.

    Args:
        parts: Test metrics and result of `stages.finish`, of each stage.
        plan: Result of `stages.of`.
        dataset: `kerasvit.data.LabelledImages`.
        folder: Folder of the results.
        start: Result of `linear_classifier.set_head`; None for fresh weights.
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
    }


def save(
    result: dict,
    plan: list,
    model: keras.Model,
    *,
    recipe: str,
    here,
    dataset=None,
) -> dict:
    """Saves model, card, curves and result.json, and deletes the states of training.

    Only the first process writes.

    Args:
        result: Result of `summary`.
        plan: Result of `stages.of`.
        model: `ImageModel` with the kept weights.
        recipe: Path of the script.
        here: `devices.Devices` of the training.
        dataset: `kerasvit.data.LabelledImages`, for the confusion of the test images;
            None: without.

    Returns:
        The result, with the `license` of the model.
    """
    config, confused = stages.main_of(plan).config, None
    if dataset is not None:
        part = training_data.batch_options(config, model)["batch_size"]
        predict = Predictor(here, part, placed=True)
        known = dataset.test, dataset.class_names, result["test"]
        confused = confusion.of_model(predict, model, *known)
    model = here.whole(model)
    folder = Path(result["folder"])
    card = facts(config, model, result, recipe)
    base = model.record.get("base") or {}
    result["license"] = card["license"] or base.get("license")
    if not here.is_first:
        return result
    keep = getattr(config, "keep_adapters", False)
    kerasvit.save_pretrained(model, folder / "model", keep_adapters=keep, **card)
    if confused is not None:
        confusion.add_to_card(folder / "model" / "README.md", confused)
    draw_curves(result, folder / "curves.png")
    write_json(folder / "result.json", result)
    for stage in plan:
        shutil.rmtree(stage.folder(folder))
    (folder / "start.npz").unlink(missing_ok=True)
    return result


def report(*results: dict | None) -> None:
    """Prints the results of one or more trainings, and the paths of the models."""
    images, start = results[0]["images"], results[0].get("start")
    same = results[0].get("test_is_validation")  # there are no test images
    kind = "Validation" if same else "Test"
    table = Table(title=f"{kind}: {images['test']:,} images ({results[0]['test']})")
    for column in ("", "accuracy", "loss", "training"):
        table.add_column(column, justify="right")
    if start and "linear_test" in start:
        of = f" of {start['test_images']:,}"
        of = of if start["test_images"] < images["test"] else ""
        table.add_row("linear classifier", f"{start['linear_test']:.2%}{of}", "", "")
    for result in results:
        seconds = sum(logs["seconds"] for logs in result["history"])
        row = (
            f"{result['accuracy']:.2%}",
            f"{result['loss']:.4f}",
            f"{seconds:.0f} s",
        )
        table.add_row(result["training"], *row)
        before = result.get("after_stages", [])[:-1]
        for stage, found in zip(result.get("stages", []), before, strict=False):
            row = f"{found['accuracy']:.2%}", f"{found['loss']:.4f}", ""
            table.add_row(f"after {stage['text'].split(',')[0]}", *row)
    console.print(table)
    for result in results:
        _print_paths(result, of=f" {result['training']}" if len(results) > 1 else "")


def _print_paths(result, of):
    folder = result["folder"]
    console.print(
        f"Curves{of}: {folder}/curves.png. The model, to use as\n"
        f'    model = kerasvit.from_pretrained("{folder}/model")\n'
        '    kerasvit.classify(model, "image.png")\n'
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
