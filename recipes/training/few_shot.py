"""Scores the features of a model in a training, by few-shot least squares.

few_shot = FewShot.of(config, devices, images, options)
trainer.fit(train, callbacks=[*few_shot, resume])
"""

from collections.abc import Callable, Sequence

import keras
import numpy as np
from command import command_line
from scoring.outputs import Predictor
from training.validation import averaged

import kerasvit
from kerasvit import evaluation
from kerasvit.data import Images
from kerasvit.fine_tuning import heads_of

SEEDS = range(3)  # of the choices of training images


class FewShot(keras.callbacks.Callback):
    """Adds the accuracy of few-shot least squares on frozen features to the logs.

    It is `val_5_shot` for 5 shots, the mean over `SEEDS`: the protocol of
    `evaluation.few_shot_hits`. Only features of chosen training images are computed.
    Weights are their moving averages, if the optimizer has some. The model may be in
    any trainer of kerasvit.

    Args:
        train, test: Images with labels.
        classes: Number of classes.
        shots: Numbers of training images per class.
        outputs: Function (model, images) that returns the outputs for `Images`.

    Raises:
        ValueError: A class has fewer images than shots.
    """

    def __init__(
        self,
        train: Images,
        test: Images,
        classes: int,
        shots: Sequence[int],
        outputs: Callable,
    ):
        super().__init__()
        self.test, self.classes, self.outputs = test, classes, outputs
        chosen = {
            k: [
                evaluation.shots_of_classes(train.labels, classes, k, seed)
                for seed in SEEDS
            ]
            for k in shots
        }
        numbers = np.unique(np.concatenate([*map(np.concatenate, chosen.values())]))
        self.train = train.part(numbers)
        self.places = {k: np.searchsorted(numbers, x) for k, x in chosen.items()}

    @classmethod
    def of(cls, config, devices, dataset, options: dict) -> list["FewShot"]:
        """Returns the callback of `--few-shot`, if there are shots.

        Args:
            config: Dataclass of the settings.
            devices: `Devices` of the training.
            dataset: `kerasvit.data.LabelledImages`.
            options: Keyword arguments of `Images.batches`.
        """
        if not config.few_shot:
            return []
        predict = Predictor(devices, options["batch_size"], placed=True)

        def outputs(model, images):
            return predict(model, images, options["model"], options["normalize"])

        images, classes = dataset.train.images, len(dataset.class_names)
        with command_line.checking_input():
            return [cls(images, dataset.validation, classes, config.few_shot, outputs)]

    def set_model(self, model):
        """Builds the model of the features: the input of the head, or the output."""
        super().set_model(model)
        while isinstance(model, kerasvit.SAM):
            model = model.model
        heads = heads_of(model)  # two of a distilled DeiT, none of an encoder
        inputs = [head.input for head in heads] or [model.output]
        features = keras.ops.mean(keras.ops.stack(inputs), axis=0)
        features = keras.ops.cast(features, "float32")
        self.features = keras.Model(model.inputs[0], features)

    def on_epoch_end(self, epoch, logs=None):
        """Adds the accuracies."""
        with averaged(self.model):  # on JAX, it gets the weights of `fit`, too
            train, test = (
                self.outputs(self.features, images)
                for images in (self.train, self.test)
            )

        def hits(places):
            kernel, bias = evaluation.least_squares(
                train[places], self.train.labels[places], self.classes
            )
            return (test @ kernel + bias).argmax(1) == self.test.labels

        for k, each in self.places.items():
            logs[f"val_{k}_shot"] = float(np.mean([hits(places) for places in each]))
