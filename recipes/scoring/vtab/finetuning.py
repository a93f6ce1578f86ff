"""Fine-tunes models on the 1,000 images of a task with BiT-HyperRule.

    learn = finetuning.learner(candidate, "ViTB16/sam", config)
    part, hits = learn(predict, images, test)

The training is that of `finetune.py --rule hyperrule`, which continues after an
interruption. It stays in the folder of the results.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import finetune
from command import command_line
from command.paths import file_name
from training import hyperrule

import kerasvit
from kerasvit import evaluation
from kerasvit.data import LabelledImages, TrainingImages

from .. import candidates, results

SHOWN = 200  # test images whose accuracy is shown during the training


def learner(candidate: candidates.Candidate, name: str, config) -> Callable:
    """Returns a function that fine-tunes a model, and returns its part and hits.

    Its arguments are a `Predictor`, `images.Images` and an `ImageSet`.

    Args:
        candidate: The model.
        name: Its name in the command.
        config: `evaluate_settings.Config`.

    Raises:
        ValueError: The model is not one of kerasvit.
    """
    weights = _weights(candidate, name)

    def learn(predict, images, test):
        settings = finetune.Config(
            **weights,
            dataset=images.task.set,
            rule="hyperrule",
            image_size=config.image_size,
            accumulate=_parts(config.batch_size),
            dtype=config.dtype,
            devices=config.devices,
            out=str(_folder(candidate, images, config)),
        )
        finetune.finetune_on(predict.here, settings, _dataset(images))
        with predict.here.first_goes_first():  # it writes the model
            tuned = candidates.load(settings.out)
        logits = tuned.outputs(predict, test.images)
        with command_line.checking_input():
            scores = evaluation.scores(logits, test.labels)
        part = results.Part(images.task.classes, scores)
        return part, evaluation.top_k_hits(logits, test.labels)

    return learn


def _weights(candidate, name):
    """Returns the settings `model` and `weights` of a model's name."""
    if not hasattr(candidate.model, "record") or name.endswith(".keras"):
        raise ValueError(
            f"`vtab`: --vtab hyperrule fine-tunes weights of kerasvit, and {name} is "
            "another model. Give --vtab probe."
        )
    variant, _, tag = name.partition("/")
    if tag and variant in kerasvit.list_models() and not Path(name).exists():
        return {"model": variant, "weights": tag}
    return {"weights": candidates.weights_of(name)}


def _parts(batch_size):
    """Returns in how many parts the rule's batch has at most `batch_size` images."""
    parts = 1
    while hyperrule.BATCH_SIZE // parts > batch_size:
        parts *= 2
    return parts


def _folder(candidate, images, config):
    """Returns the folder of a training, another one for other weights or images."""
    deciding = candidate.weights, images.version, config.image_size, config.dtype
    deciding += (_parts(config.batch_size),)
    digest = hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:8]
    name = file_name(f"{images.task.set} HyperRule {digest}")
    return Path(config.out).expanduser() / file_name(candidate.name) / name


def _dataset(images):
    """Returns the data of a training on training and validation images.

    Nothing is chosen by its validation, which shows the progress on some test images.
    """
    shown = images.test.sample(SHOWN, seed=0)
    train = TrainingImages(images.learned)
    return LabelledImages(train, shown, shown, images.label_names)
