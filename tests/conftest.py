"""Selects the backend, seeds every test, and makes the package's warnings errors."""

import importlib.util
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "jax")

import keras  # noqa: E402  (the backend is chosen above)
import pytest  # noqa: E402

if keras.backend.backend() == "tensorflow":
    from keras.src.trainers import trainer

    # By default XLA compiles every training, which takes TensorFlow ten seconds for the
    # smallest of models. The tests that are about it pass `jit_compile=True`.
    trainer.model_supports_jit = lambda model: False


def pytest_report_header():
    return f"keras {keras.__version__} on {keras.backend.backend()}"


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", r"error:::kerasvit(\..*)?")


def pytest_collection_modifyitems(items):
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


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="session")
def timm():
    """timm in plain torch, in this process."""
    if keras.backend.backend() != "torch":
        pytest.skip("names and numbers of files: compared once, on torch")
    from recipes.benchmarks.import_timm import import_timm

    if None in [importlib.util.find_spec(name) for name in ("timm", "torchvision")]:
        pytest.skip("timm is not installed: see `Set up` in README.md")
    return import_timm()
