"""Measures `hessian`: what a largest eigenvalue costs, beside PyHessian.

Lanczos' method of kerasvit, and power iteration with the products of PyHessian on
timm's model, run in turns, one product each, until the residual ‖H v − λ v‖ is 1 % of
|λ|: with the same weights, images, loss and division into batches. PyHessian itself
stops where λ changes little, which does not bound the error, so the residual is
computed here. Both find the eigenvalue of the largest magnitude. The weights are those
of `--folder`, or new ones without zeros: with a head of zeros nearly all second
derivatives are 0.

Memory is measured in processes of their own, as the peak above that of the model, in
copies of the weights, for dense layers whose activations need next to none.
"""

import contextlib
import dataclasses
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
from training import dry_run

import kerasvit
from kerasvit.inspection import Hessian, LossAt, eigenpairs

from . import loading, rivals, timing
from .keras_steps import batch, kerasvit_model
from .results import Result
from .settings import Config

IMAGES = 32
TOLERANCE = 1e-2
VECTORS = 20  # the default of `eigenpairs`
GRADIENTS = 3  # rounds
WIDTH, DEPTH = 2048, 8  # of the network whose memory is measured
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
OURS, THEIRS, GRADIENT = "kerasvit", "PyHessian", "a gradient"
COLUMNS = ("passes", "s", "CPU s", "s / pass", "CPU s / pass", "residual / |λ|", "λ")
PEAKS = {
    "a gradient": "memory of a gradient",
    "product": "memory of a product",
    "eigenvalue": "memory of an eigenvalue, 3 vectors",
}


@dataclasses.dataclass
class Course:
    """The passes of a method over the data, each with its times, and its result."""

    value: float = np.nan
    residual: float = np.inf
    seconds: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Context whose wall time and CPU time are those of a pass."""
        start, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds.append(time.perf_counter() - start)
        self.cpu.append(time.process_time() - cpu)

    def row(self) -> list[str]:
        """Returns the cells of the table."""
        medians = map(statistics.median, (self.seconds, self.cpu))
        numbers = [sum(self.seconds), sum(self.cpu), *medians]
        row = [str(len(self.seconds)), *(f"{number:.2f}" for number in numbers)]
        found = [f"{self.residual:.4f}", f"{self.value:.5g}"]
        return row + (found if np.isfinite(self.residual) else [])


def measure(config: Config, backend: str) -> Result:
    """Runs both methods in turns, and measures memory in separate processes."""
    peaks = {
        name: int(timing.in_new_process(config, backend, name)) / weight_bytes()
        for name in PEAKS
    }
    with model_folder(config) as folder:
        courses = run(config, Path(folder))
    rows = [[name, *course.row()] for name, course in courses.items()]
    if THEIRS in courses:
        ours, theirs = courses[OURS], courses[THEIRS]
        pairs = [(ours.seconds, theirs.seconds), (ours.cpu, theirs.cpu)]
        sums = [f"{sum(a) / sum(b):.2f}" for a, b in pairs]
        rounds = [min(map(len, pair)) for pair in pairs]
        each = [
            statistics.median(timing.ratios(a[:n], b[:n]))
            for (a, b), n in zip(pairs, rounds, strict=True)
        ]
        rows.append(["kerasvit / PyHessian", "", *sums, *(f"{r:.2f}" for r in each)])
    rows += [[PEAKS[name], f"{copies:.2f}"] for name, copies in peaks.items()]
    times = {name: course.seconds for name, course in courses.items()}
    times |= {f"{name}, CPU": course.cpu for name, course in courses.items()}
    return Result.of(config, backend, COLUMNS, rows, times)


@contextlib.contextmanager
def model_folder(config: Config) -> Iterator[str]:
    """Yields the given folder, or a temporary one of a model with random weights."""
    with tempfile.TemporaryDirectory() as temporary:
        if config.folder:
            yield config.folder
            return
        model = kerasvit_model(config)
        rng = np.random.default_rng(0)
        for variable in model.weights:
            if not np.any(keras.ops.convert_to_numpy(variable)):  # biases, too
                variable.assign(rng.normal(size=variable.shape, scale=0.02))
        yield str(kerasvit.save_pretrained(model, temporary))


def run(config: Config, folder: Path) -> dict[str, Course]:
    """Returns the courses of all methods, which take turns after each product."""
    x, y = batch(dataclasses.replace(config, batch_size=IMAGES))
    model = kerasvit.from_pretrained(folder)
    hessian = Hessian(model, x, y, LOSS, batch_size=config.batch_size)
    courses = {OURS: Course(), GRADIENT: gradients(config, model, x, y)}
    theirs = None
    if "architecture" in json.loads((folder / "config.json").read_text("utf-8")):
        if rivals.installed("timm") and rivals.installed("pyhessian"):
            courses[THEIRS] = Course()
            theirs = power_iteration(config, folder, x, y, courses[THEIRS])
    ours = courses[OURS]
    passing = contextlib.ExitStack()
    hessian @ np.zeros(hessian.shape[0])  # compiles

    def product(vector: np.ndarray) -> np.ndarray:
        if theirs:
            next(theirs, None)
        passing.enter_context(ours.timed())
        return hessian @ vector

    def report(value: float, residual: float) -> None:
        passing.close()  # after the orthogonalisation
        ours.value, ours.residual = value, residual / abs(value)

    eigenpairs(
        product,
        hessian.shape[0],
        which="magnitude",
        tolerance=TOLERANCE,
        vectors=VECTORS,
        max_products=config.rounds,
        report=report,
    )
    for _ in theirs or ():
        pass
    return courses


def gradients(config: Config, model: keras.Model, x, y) -> Course:
    """Times gradients, after one that compiles."""
    at = LossAt(model, model.trainable_variables, LOSS)
    course = Course()
    size = config.batch_size
    data = [
        tuple(keras.ops.convert_to_tensor(a[i : i + size]) for a in (x, y))
        for i in range(0, len(x), size)
    ]
    at.gradients(at.values(), data)
    for _ in range(GRADIENTS):
        with course.timed():
            at.gradients(at.values(), data)
    return course


def power_iteration(config: Config, folder: Path, x, y, course: Course) -> Iterator:
    """Yields after each product of PyHessian's power iteration, until it converges.

    With one batch PyHessian keeps the graph of the gradient; with several it computes
    the gradient again for each product.
    """
    import torch
    from pyhessian import hessian
    from pyhessian.utils import group_product, hessian_vector_product, normalization
    from timm.layers import set_fused_attn

    set_fused_attn(False)  # fused attention has no second derivative
    saved = json.loads((folder / "config.json").read_text("utf-8"))
    model = loading.timm_model(folder, saved)
    images = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    labels = torch.from_numpy(y)
    parts = [each.split(config.batch_size) for each in (images, labels)]
    loader = list(zip(*parts, strict=True))
    data = {"dataloader": loader} if len(loader) > 1 else {"data": loader[0]}
    build = functools.partial(
        hessian, model, torch.nn.CrossEntropyLoss(), cuda=False, **data
    )
    generator = torch.Generator().manual_seed(0)
    matrix, vector = None, None
    while course.residual > TOLERANCE and len(course.seconds) < config.rounds:
        with course.timed():
            matrix = matrix or build()
            if vector is None:
                shapes = [parameter.shape for parameter in matrix.params]
                start = [torch.randn(shape, generator=generator) for shape in shapes]
                vector = normalization(start)
            if len(loader) > 1:
                value, product = matrix.dataloader_hv_product(vector)
            else:
                product = hessian_vector_product(matrix.gradsH, matrix.params, vector)
                value = group_product(product, vector).item()
            following = normalization(product)
        apart = [a - value * b for a, b in zip(product, vector, strict=True)]
        course.value = value
        course.residual = float(group_product(apart, apart)) ** 0.5 / abs(value)
        vector = following
        yield


def weight_bytes() -> int:
    """Returns the size of the kernels of the dense network, in bytes."""
    return 4 * DEPTH * WIDTH**2


def most_bytes(config: Config, name: str) -> int:
    """Returns the peak memory above that of the dense network, in bytes."""
    timing.check_row(name, PEAKS)
    work = works()[name]
    # Before the first call: TensorFlow keeps the memory that it takes.
    before = dry_run.most_bytes(lambda: None)
    work()  # compiles
    return dry_run.most_bytes(work) - before


def works() -> dict[str, Callable]:
    """Returns what is measured, for one sample of the dense network."""
    layers = [keras.layers.Dense(WIDTH, "tanh", use_bias=False) for _ in range(DEPTH)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    x = np.ones((1, WIDTH), "float32")
    at = LossAt(model, model.trainable_variables, "mse")
    hessian = Hessian(model, x, x, "mse")

    def product() -> None:
        hessian @ np.ones(hessian.shape[0], "float32")

    return {
        "a gradient": lambda: at.gradients(at.values(), [(x, x)]),
        "product": product,
        "eigenvalue": lambda: hessian.eigenpairs(
            vectors=3, max_products=4, tolerance=1e-9, verbose=0
        ),
    }
