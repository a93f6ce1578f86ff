"""A file written tensor by tensor equals that of the safetensors library."""

import hashlib
import io

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load, save

from kerasvit.checkpoints import write_tensors
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]
SHAPES = {"b": (2, 3), "a": (5,), "é": (), "none": (0, 4), "c.weight": (3, 1, 2)}
DTYPES = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, np.int8, np.int64]


def arrays(dtypes):
    random = np.random.default_rng(0)
    return {
        f"{name}.{np.dtype(dtype).name}": np.asarray(
            random.normal(size=shape, scale=9)
        ).astype(dtype)
        for name, shape in SHAPES.items()
        for dtype in dtypes
    }


def written(tensors, metadata):
    file, outlines = io.BytesIO(), {}
    for name, array in tensors.items():
        outlines[name] = (array.dtype.name, array.shape)
    sha256 = write_tensors(file, outlines, tensors, metadata)
    return file.getvalue(), sha256


@pytest.mark.parametrize("dtypes", [DTYPES[:1], DTYPES[1:2], DTYPES[3:4], DTYPES])
@pytest.mark.parametrize("metadata", [{"format": "pt"}, {"x": 'a "b"\né'}])
def test_the_same_bytes(dtypes, metadata):
    tensors = arrays(dtypes)
    content, sha256 = written(tensors, metadata)
    assert content == save(tensors, metadata)
    assert sha256 == hashlib.sha256(content).hexdigest()


def test_transposed_tensors_are_written_in_c_order():
    array = np.arange(6, dtype="float32").reshape(2, 3).T
    np.testing.assert_array_equal(load(written({"a": array}, {})[0])["a"], array)


def test_a_dtype_that_the_format_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="a is complex128, which .* cannot hold"):
        written({"a": np.zeros(2, complex)}, {})
