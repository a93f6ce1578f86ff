"""Measures `fit`: its time for a step, compared with `train_on_batch`.

Both run the same compiled step on the same arrays. `train_on_batch` waits for the loss
of each step. `fit` runs with the progress bar and without.
"""

import keras

from .keras_steps import batch, kerasvit_model, kerasvit_step
from .results import Result
from .settings import Config
from .timing import SPREAD, in_turns, ratio, spread

STEPS = 8  # per round


def measure(config: Config, backend: str) -> Result:
    """Times the same steps in a loop and in `fit`."""
    model = kerasvit_model(config)
    images, labels = batch(config)
    kerasvit_step(config, model, images, labels)()  # compiles
    data = [(images, labels)] * STEPS

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return STEPS

        def __getitem__(self, index):
            return data[index]

    def loop():
        for x, y in data:
            model.train_on_batch(x, y)

    runs = {
        "train_on_batch": loop,
        "fit": lambda: model.fit(Batches(), verbose=0),
        "fit, verbose=1": lambda: model.fit(Batches(), verbose=1),
    }
    times = in_turns(runs, config)
    times = {name: [each / STEPS for each in times[name]] for name in times}
    rows = [
        [
            name,
            *spread(seconds),
            *ratio(seconds, times["train_on_batch"], digits=3),
        ]
        for name, seconds in times.items()
    ]
    columns = (*SPREAD, "it / train_on_batch", "95 %")
    return Result.of(config, backend, columns, rows, times)
