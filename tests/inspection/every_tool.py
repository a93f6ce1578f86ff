"""Calls every tool of `kerasvit.inspection`, and saves what they return.

    KERAS_BACKEND=jax python -m tests.inspection.every_tool FOLDER

For each `FOLDER/FAMILY/model`, a model of `save_pretrained`, it writes all numbers to
`FOLDER/FAMILY/BACKEND.npz`.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

import kerasvit
from kerasvit import inspection

SIZE = (32, 48)  # not square
CLASSES = 3
LABELS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SOFT = keras.losses.CategoricalCrossentropy(from_logits=True)
SEED = 11
GRID = [np.linspace(-0.5, 0.5, 3)]
# Which tools do not apply: no attention or MLP in a ResNet, or no patches.
RAISED = {
    "MLPMixer": ["attention", "lesion heads"],
    "PreActResNet": ["attention", "active share", "embeddings", "lesion heads"],
    "ResNeXt": ["attention", "active share", "embeddings", "lesion heads"],
    "BigTransfer": ["attention", "active share", "embeddings", "lesion heads"],
    "AlterNet": ["active share", "embeddings"],
}
# Fields that hold rounding errors, or numbers of iterations.
LEFT_OUT = {"residuals", "residual", "products", "converged"}


def tools(model: keras.Model) -> dict[str, Callable[[], Any]]:
    """Returns {name: call of a tool}, with the same arguments on every backend."""
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(6, *SIZE, 3)).astype("float32")
    y = rng.integers(0, CLASSES, 6)
    soft = rng.dirichlet(np.ones(CLASSES), 6).astype("float32")
    masks = np.arange(SIZE[1])[None, None] < 9 + 0 * x[..., 0]
    hessian = inspection.Hessian(model, x, y, LABELS, batch_size=4)
    vector = rng.normal(size=hessian.shape[0])
    softly = inspection.Hessian(model, x, soft, SOFT)
    direction = functools.partial(inspection.random_direction, model)
    data = {"x": x, "y": y, "loss": LABELS}
    return {
        "loss and gradient": hessian.loss_and_gradient,
        "product": lambda: inspection.hessian_vector_product(
            model, x, soft, vector, SOFT
        ),
        "largest eigenvalue": lambda: inspection.largest_eigenvalue(
            model, **data, variables="kernel$", seed=SEED
        ),
        "eigenpairs": lambda: signed(
            softly.eigenpairs(2, tolerance=1e-6, max_products=60, seed=SEED, verbose=0)
        ),
        "batch spectrum": lambda: inspection.batch_spectrum(
            model, [(x[:3], soft[:3]), (x[3:], soft[3:])], SOFT, k=2, weight_decay=0.1
        ),
        "sharpness table": lambda: inspection.sharpness_table(model, **data),
        "trace": lambda: inspection.trace(hessian, vectors=4, seed=SEED),
        "density": lambda: inspection.spectral_density(
            hessian, starts=2, steps=6, sigma=1.0, seed=SEED
        ),
        "sharpness": lambda: inspection.sharpness(model, x, soft, SOFT, rho=0.1),
        "m-sharpness": lambda: inspection.sharpness(model, **data, m=2),
        "box": lambda: inspection.box_sharpness(model, **data, epsilon=1e-3, steps=2),
        "landscape": lambda: inspection.landscape(
            model, x, soft, SOFT, directions=[direction(seed=SEED)], grid=GRID
        ),
        "norms": lambda: inspection.norm_landscape(
            model, [direction("how-do-vits-work")], GRID
        ),
        "between": lambda: inspection.direction_between(model, random_head(model)),
        "gradient norms": lambda: inspection.gradient_norms(model, **data),
        "gradient norms, random": lambda: inspection.gradient_norms(
            model, **data, head="random", by="variable", seed=SEED
        ),
        "ntk": lambda: [
            inspection.ntk(model, x[:3], form=form, dtype="float32")
            for form in ("traced", "full")
        ],
        "attention": lambda: attention(model, x, masks),
        "embeddings": lambda: inspection.embeddings(model, 4),
        "amplitudes": lambda: inspection.relative_log_amplitudes(model, x),
        "noise": lambda: inspection.frequency_noise_accuracy(
            model, x, y, 0.5, seed=SEED
        ),
        "variance": lambda: inspection.feature_variance(model, x),
        "active share": lambda: inspection.active_share(model, x),
        "activations": lambda: inspection.Activations(model)(x),
        "cka": lambda: [
            inspection.cka(model, x, kernel=kernel) for kernel in ("linear", "rbf")
        ],
        "fields": lambda: inspection.effective_receptive_field(model, x, seed=SEED),
        "lesion": lambda: inspection.lesion(model, x, y),
        "lesion heads": lambda: inspection.lesion(model, x, y, what="head"),
        "callback": lambda: along_a_training(model, x, y),  # last: it changes weights
    }


def signed(pairs: Any) -> list[np.ndarray]:
    """Returns values and vectors, whose largest entry is made positive."""
    rows = np.arange(len(pairs.vectors))
    largest = pairs.vectors[rows, abs(pairs.vectors).argmax(1)]
    return [pairs.values, pairs.vectors * np.sign(largest)[:, None]]


def random_head(model: keras.Model) -> keras.Model:
    """Returns a copy of a model with other weights."""
    copy = keras.models.clone_model(model)
    rng = np.random.default_rng(SEED)
    copy.set_weights([w + rng.normal(size=w.shape) for w in model.get_weights()])
    return copy


def attention(model: keras.Model, x: np.ndarray, masks: np.ndarray) -> list:
    """Returns maps, rollout of the maxima over heads, and scores of the heat."""
    maps = inspection.attention_maps(model, x, rollout_heads="max", batch_size=4)
    scores = inspection.segmentation_score(maps.heat, masks)
    whole = maps.rollout is not None  # not of windows
    weights = [layer.weights for layer in maps.layers.values()]
    return [maps, maps.heat, scores, inspection.rollout(weights) if whole else None]


def along_a_training(model: keras.Model, x: np.ndarray, y: np.ndarray) -> list:
    """Returns the sharpness before and after each of two steps of SGD."""
    measure = functools.partial(inspection.sharpness, x=x, y=y)
    inspect = inspection.Inspect({"sharpness": measure}, unit="step")
    model.compile(keras.optimizers.SGD(1e-3), LABELS)
    model.fit(x, y, 3, 1, verbose=0, callbacks=[inspect], shuffle=False)
    return [inspect.steps, inspect.values]


def arrays(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yields all numbers of a result by name; those of a dictionary as one array."""
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        if value and all(np.isscalar(each) for each in value.values()):
            value = [*value.values()]
        else:
            for key in value.keys() - LEFT_OUT:
                yield from arrays(f"{name} | {key}", value[key])
            return
    try:
        array = np.asarray(value)
        numeric = array.dtype.kind in "fiub"
    except ValueError:  # a list of different shapes
        numeric = False
    if numeric:
        yield name, array
    elif isinstance(value, (list, tuple)) and not isinstance(value[0], str):
        for i, each in enumerate(value):
            yield from arrays(f"{name} | {i}", each)


def main(folder: Path) -> None:
    """Saves the results of every model in the folder."""
    for family in sorted(folder.iterdir()):
        model = kerasvit.from_pretrained(str(family / "model"))
        found = {}
        for name, call in tools(model).items():
            if name in RAISED.get(family.name, ()):
                continue
            found |= dict(arrays(name, call()))
        np.savez(family / f"{keras.backend.backend()}.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
