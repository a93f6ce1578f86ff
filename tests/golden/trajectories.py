"""Ten steps of training, against the reference implementations of SAM."""

import keras
import numpy as np
from keras import layers, ops

from kerasvit.training import ASAM, GSAM, SAM

from .result import Result, error

# Largest error over the trajectory, over the largest weight.
TOLERANCE = 1e-5
TRAINERS = {
    "none": lambda model, facts: SAM(model, 0.0),
    "sam": lambda model, facts: SAM(model, facts["rho"]),
    # As in davda54/sam.
    "asam": lambda model, facts: ASAM(model, facts["rho"], eta=0, biases=True),
    "gsam": lambda model, facts: GSAM(
        model,
        *(facts[name] for name in ("rho_max", "rho_min", "alpha")),
        lr_max=facts["lr_max"],
        lr_min=facts["lr_min"],
        adaptive=facts.get("adaptive_perturbation", False),
        minimize_perturbed=facts["minimize_fp"],
    ),
}


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


OPTIMIZERS = {
    "sgd": lambda lr: keras.optimizers.SGD(lr),
    "momentum": lambda lr: keras.optimizers.SGD(lr, momentum=0.9),
    "nesterov": lambda lr: keras.optimizers.SGD(lr, momentum=0.9, nesterov=True),
    "adam_keras": lambda lr: keras.optimizers.Adam(lr, epsilon=1e-7),
    "adam_torch": lambda lr: TorchAdam(lr, epsilon=1e-7),
}


def network(problem):
    """The network of a problem with its first weights, and {name: variable}."""
    kernels = {
        name.split("/")[1]: problem[name]
        for name in problem.files
        if name.startswith("w0/") and name.endswith("/kernel")
    }
    stack = [keras.Input(problem["x"].shape[1:])]
    for name, kernel in kernels.items():
        options = {"name": name, "use_bias": f"w0/{name}/bias" in problem.files}
        last = name == list(kernels)[-1]
        if not last:
            options["activation"] = "tanh"
        if kernel.ndim == 4:
            stack.append(layers.Conv2D(kernel.shape[3], kernel.shape[:2], **options))
            stack.append(layers.GlobalAveragePooling2D())
        else:
            stack.append(layers.Dense(kernel.shape[1], **options))
    model = keras.Sequential(stack)
    weights = {v.path.removeprefix(model.name + "/"): v for v in model.weights}
    for name, variable in weights.items():
        variable.assign(problem[f"w0/{name}"])
    return model, weights


def check(root, name, case):
    """Yields each trajectory's name and its `Result`, or why there is none."""
    with np.load(root / case["problem"]) as problem:
        for label, facts in case["cases"].items():
            if facts["perturbation"] not in TRAINERS:
                yield label, f"{facts['perturbation'].upper()} is not built yet"
                continue
            with np.load(root / facts["file"]) as golden:
                yield label, Result(_errors(problem, golden, facts), TOLERANCE)


def _errors(problem, golden, facts):
    model, weights = network(problem)
    sparse = problem["y"].ndim == 1
    kind = "SparseCategoricalCrossentropy" if sparse else "CategoricalCrossentropy"
    trainer = TRAINERS[facts["perturbation"]](model, facts)
    loss = getattr(keras.losses, kind)(from_logits=True)
    rates = facts.get("lr_per_step") or [facts["lr"]] * facts["steps"]
    trainer.compile(OPTIMIZERS[facts["base"]](rates[0]), loss)
    x, y = problem["x"].astype("float32"), problem["y"]
    losses, path = [], {weight: [] for weight in weights}
    for rate in rates:
        trainer.optimizer.learning_rate = rate
        losses.append(trainer.train_on_batch(x, y))
        for weight, variable in weights.items():
            path[weight].append(np.array(ops.convert_to_numpy(variable)))
    final = trainer.train_on_batch(x, y)  # returns the loss before the step
    recorded = {weight: golden[f"traj/{weight}"][1:] for weight in weights}
    largest = max(np.abs(values).max() for values in recorded.values())
    return {
        "loss": error(losses, golden["loss"]),
        **{
            weight: float(np.abs(np.stack(path[weight]) - values).max() / largest)
            for weight, values in recorded.items()
        },
        **(
            {"final_loss": error(final, golden["final_loss"])}
            if "final_loss" in golden
            else {}
        ),
    }
