"""Ten steps against the recorded trajectories of the reference implementations."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.training import SAM

GOLDEN = Path(__file__).parents[1] / "golden" / "sam"
CASES = json.loads((GOLDEN / "cases.json").read_text())


class TorchAdam(keras.optimizers.Adam):
    """Adam as torch writes it, with epsilon beside the corrected second moment."""

    def update_step(self, gradient, variable, learning_rate):
        i = self._get_variable_index(variable)
        step = ops.cast(self.iterations + 1, variable.dtype)
        rate = ops.cast(learning_rate, variable.dtype)
        first, second = self._momentums[i], self._velocities[i]
        self.assign_add(first, (gradient - first) * (1 - self.beta_1))
        self.assign_add(second, (ops.square(gradient) - second) * (1 - self.beta_2))
        mean = first / (1 - ops.power(ops.cast(self.beta_1, first.dtype), step))
        square = second / (1 - ops.power(ops.cast(self.beta_2, first.dtype), step))
        self.assign_sub(variable, rate * mean / (ops.sqrt(square) + self.epsilon))

    def _parallel_update_step(self, gradients, variables, learning_rate):
        # Keras on torch updates all weights at once; one at a time does as well.
        for gradient, variable in zip(gradients, variables, strict=True):
            self.update_step(gradient, variable, learning_rate)


def optimizer(base, lr):
    return {
        "sgd": lambda: keras.optimizers.SGD(lr),
        "momentum": lambda: keras.optimizers.SGD(lr, momentum=0.9),
        "nesterov": lambda: keras.optimizers.SGD(lr, momentum=0.9, nesterov=True),
        "adam_keras": lambda: keras.optimizers.Adam(lr, epsilon=1e-7),
        "adam_torch": lambda: TorchAdam(lr, epsilon=1e-7),
    }[base]()


def network(net, problem):
    if net == "mlp":
        stack = [
            layers.Dense(problem["w0/dense0/bias"].size, "tanh", name="dense0"),
            layers.Dense(problem["w0/dense1/bias"].size, name="dense1"),
        ]
    else:
        height, width, _, channels = problem["w0/conv/kernel"].shape
        stack = [
            layers.Conv2D(
                channels,
                (height, width),
                use_bias=False,
                activation="tanh",
                name="conv",
            ),
            layers.GlobalAveragePooling2D(),
            layers.Dense(
                problem["w0/head/kernel"].shape[1], use_bias=False, name="head"
            ),
        ]
    return keras.Sequential([keras.Input(problem["x"].shape[1:]), *stack])


@pytest.mark.parametrize("case", CASES)
def test_trajectory(case):
    facts = CASES[case]
    problem = np.load(GOLDEN / f"sam_{facts['net']}_problem.npz")
    golden = np.load(GOLDEN / f"{case}.npz")
    model = network(facts["net"], problem)
    weights = {v.path.removeprefix(model.name + "/"): v for v in model.weights}
    for name, variable in weights.items():
        variable.assign(problem[f"w0/{name}"])

    trainer = SAM(model, facts["rho"])
    # Targets are class indices or rows of probabilities.
    sparse = problem["y"].ndim == 1
    loss = (
        keras.losses.SparseCategoricalCrossentropy
        if sparse
        else (keras.losses.CategoricalCrossentropy)
    )
    trainer.compile(optimizer(facts["base"], facts["lr"]), loss(from_logits=True))
    x, y = problem["x"].astype("float32"), problem["y"]

    largest = max(np.abs(golden[f"traj/{name}"]).max() for name in weights)
    errors = []
    for step in range(10):
        loss = trainer.train_on_batch(x, y)
        np.testing.assert_allclose(loss, golden["loss"][step], rtol=1e-5)
        for name, variable in weights.items():
            expected = golden[f"traj/{name}"][step + 1]
            errors.append(
                np.abs(ops.convert_to_numpy(variable) - expected).max() / largest
            )
    assert max(errors) < 1e-5
    final = trainer.train_on_batch(x, y)  # its loss is that of the weights before
    np.testing.assert_allclose(final, golden["final_loss"], rtol=1e-5)
