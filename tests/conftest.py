"""Every test knows its backend, starts from one seed, and fails on our warnings."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "jax")

import keras  # noqa: E402  (the backend is chosen above)
import pytest  # noqa: E402


def pytest_report_header():
    return f"keras {keras.__version__} on {keras.backend.backend()}"


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", r"error:::kerasvit(\..*)?")


def pytest_collection_modifyitems(items):
    # Files that wait for one long process: each on one worker, while others work.
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")
