"""Selects the backend, seeds every test, and makes the package's warnings errors."""

import gc
import importlib.util
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "jax")

import keras  # noqa: E402  (the backend is chosen above)
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from PIL import Image  # noqa: E402

from tests.once import Elsewhere, runs_alike  # noqa: E402

if keras.backend.backend() == "tensorflow":
    from keras.src.trainers import trainer

    # By default XLA compiles every training, which takes TensorFlow ten seconds for the
    # smallest of models. The tests that are about it pass `jit_compile=True`.
    trainer.model_supports_jit = lambda model: False


def pytest_report_header():
    return f"keras {keras.__version__} on {keras.backend.backend()}"


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", r"error:::kerasvit(\..*)?")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield  # of a module without tests here: as of an empty one
    if report.skipped and isinstance(report.call.excinfo.value, Elsewhere):
        report.outcome, report.longrepr, report.result = "passed", None, []
    return report


def pytest_collection_finish():
    """Leaves modules and tests, millions of objects, out of garbage collections.

    `gc.get_objects`, and so `living` of the package, does not find them either: a test
    makes its models itself.
    """
    gc.collect()
    gc.freeze()


def runs_here(item):
    """Whether a test is of this backend; others are deselected and not skipped."""
    backend = keras.backend.backend()
    alike = item.get_closest_marker("alike") or "alike" in item.fixturenames
    only = [mark.args for mark in item.iter_markers("only_on")]
    others = [mark.args for mark in item.iter_markers("not_on")]
    return (
        (runs_alike() or not alike)
        and all(backend in names for names in only)
        and not any(backend in names for names in others)
    )


def pytest_collection_modifyitems(config, items):
    here = {item: runs_here(item) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not here[item]])
    items[:] = [item for item in items if here[item]]
    # The first of the tests that wait for one long process begins it, the others come
    # last: no worker waits for the process of another. (`--dist loadgroup` of
    # pytest-xdist 3.8 groups nothing under pytest 9.)
    begun = set()

    def order(item):
        mark = item.get_closest_marker("waits_for")
        if mark is None:
            return 1
        first = mark.args not in begun
        begun.add(mark.args)
        return 0 if first else 2

    items.sort(key=order)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    try:
        return (yield)
    except OSError as error:
        if getattr(error, "winerror", None) == 1314:  # a privilege is missing
            pytest.skip("Windows lets this user make no links")
        raise


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="session")
def alike():
    """Of fixtures whose tests are alike on all backends, so that one runs them."""


@pytest.fixture(scope="session")
def timm(alike):
    """timm in plain torch, in this process."""
    from recipes.benchmarks.import_timm import import_timm

    if None in [importlib.util.find_spec(name) for name in ("timm", "torchvision")]:
        pytest.skip("timm is not installed: see `Set up` in README.md")
    return import_timm()


@pytest.fixture
def images(tmp_path):
    """Writes images into class folders: images("cat", 4) or images("train/cat", 4)."""
    root = tmp_path / "images"

    def write(name, count, size=(20, 24)):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            pixels = np.random.default_rng([i, len(name)]).integers(
                256, size=(*size, 3), dtype="uint8"
            )
            Image.fromarray(pixels).save(folder / f"{i}.jpg")
        return root

    return write
