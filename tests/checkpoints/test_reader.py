import hashlib
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save_file

from kerasvit.checkpoints import CheckpointError
from kerasvit.checkpoints.reader import Reader
from tests.once import on_last_backend

pytestmark = on_last_backend


ARRAY = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, **{"a/kernel": ARRAY})
    return path


@pytest.fixture
def safetensors(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"a/kernel": ARRAY}, path)
    return path


@pytest.fixture(params=["npz", "safetensors"])
def weights(request):
    return request.getfixturevalue(request.param)


def test_names_shapes_and_values(weights):
    reader = Reader(weights)
    assert reader.shapes == {"a/kernel": (2, 3)}
    np.testing.assert_array_equal(reader["a/kernel"], ARRAY)


@pytest.mark.skipif(os.name == "nt", reason="Windows replaces no open file")
def test_a_file_that_replaces_the_opened_one_is_ignored(weights, tmp_path):
    reader, content = Reader(weights), weights.read_bytes()
    other = content.replace(ARRAY.tobytes(), (-ARRAY).tobytes())
    (tmp_path / "other").write_bytes(other)
    (tmp_path / "other").replace(weights)
    np.testing.assert_array_equal(reader["a/kernel"], ARRAY)
    assert reader.sha256() == hashlib.sha256(content).hexdigest()
    assert weights.read_bytes() == other


def test_threads_that_hash_a_file_at_the_same_time(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"a/kernel": np.arange(2**21, dtype="float32")}, path)
    reader = Reader(path)
    with ThreadPoolExecutor(8) as pool:
        found = {
            each.result() for each in [pool.submit(reader.sha256) for _ in "abcdefgh"]
        }
    assert found == {hashlib.sha256(path.read_bytes()).hexdigest()}


NO_CHANGE_TIME = pytest.mark.skipif(os.name == "nt", reason="of POSIX")


@pytest.mark.parametrize("hidden", [False, pytest.param(True, marks=NO_CHANGE_TIME)])
def test_a_write_into_the_file_is_detected(weights, hidden):
    before = weights.stat()
    reader = Reader(weights)
    time.sleep(0.02)  # file times have a resolution of milliseconds
    other = weights.read_bytes().replace(ARRAY.tobytes(), (-ARRAY).tobytes())
    weights.write_bytes(other)
    if hidden:
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    for read in (lambda: reader["a/kernel"], reader.sha256):
        with pytest.raises(CheckpointError, match="changed while .* Load it again"):
            read()


def test_a_file_truncated_while_it_is_read_raises(weights):
    """A memory map would end the process."""
    reader = Reader(weights)
    time.sleep(0.02)
    os.truncate(weights, 20)
    with pytest.raises(CheckpointError, match="changed while"):
        reader["a/kernel"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_precisions_come_as_float32(dtype, tmp_path):
    import ml_dtypes

    path = tmp_path / "half.safetensors"
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    save_file({"a": ARRAY.astype(kind)}, path)
    assert Reader(path)["a"].dtype == np.float32
    np.testing.assert_array_equal(Reader(path)["a"], ARRAY)


def test_nameless_bfloat16_of_an_npz(tmp_path):
    import ml_dtypes

    path = tmp_path / "half.npz"
    np.savez(path, a=ARRAY.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(Reader(path)["a"], ARRAY)


def refused(path, *words):
    with pytest.raises(CheckpointError) as caught:
        reader = Reader(path)
        for name in reader.shapes:
            reader[name]
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_missing_file(tmp_path):
    refused(tmp_path / "no.npz", "does not exist")


def test_folder(tmp_path):
    refused(tmp_path, "is a folder")


@pytest.mark.parametrize("keep", [0, 4, 10, 60, -30, -1])
def test_truncated_file(weights, keep):
    weights.write_bytes(weights.read_bytes()[:keep])
    refused(weights, "cut short")


def test_flipped_bytes_in_an_npz_are_noticed(npz):
    content = bytearray(npz.read_bytes())
    at = content.find(ARRAY.tobytes())
    content[at : at + 8] = b"\xff" * 8
    npz.write_bytes(content)
    refused(npz, "a/kernel", "damaged")


@pytest.mark.parametrize("page", ["<!DOCTYPE html><html>", "\n <html>", "<?xml ?>"])
def test_a_web_page_instead_of_the_file_raises(weights, page):
    weights.write_text(page)
    refused(weights, "web page", "download again")


def test_git_lfs_pointer(weights):
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    refused(weights, "git lfs pull")


class Trap:
    def __reduce__(self):
        return (exec, ("raise SystemExit('the pickle ran')",))


def test_pickled_array_in_an_npz_is_not_run(tmp_path):
    path = tmp_path / "trap.npz"
    np.savez(path, a=np.array([Trap()], dtype=object))
    refused(path, "pickled", "'a.npy'")


def test_pickle_named_npz_is_not_run(tmp_path):
    path = tmp_path / "trap.npz"
    path.write_bytes(pickle.dumps(Trap()))
    refused(path, "is a pickle that torch.save did not write")


@pytest.mark.parametrize("names", range(1, 60))
def test_header_lengths_are_not_mistaken_for_pages_or_pickles(tmp_path, names):
    path = tmp_path / "weights.safetensors"
    save_file({f"a{'b' * i}": ARRAY for i in range(names)}, path)
    assert len(Reader(path).shapes) == names


@pytest.mark.parametrize("dtype", [">f4", "float64", "longdouble"])
def test_every_float_comes_as_float32(tmp_path, dtype):
    path = tmp_path / "weights.npz"
    np.savez(path, a=ARRAY.astype(dtype))
    assert Reader(path)["a"].dtype == np.dtype("float32")


def test_float32_overflow_is_infinite(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, a=np.full(3, 1e300))
    refused(path, "'a'", "infinite")


OTHER_FILES = {
    ".msgpack": "Give the .safetensors",
    ".keras": "keras.models.load_model",
}


@pytest.mark.parametrize("suffix", OTHER_FILES)
def test_other_files_of_weights_say_what_to_do(suffix, tmp_path):
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=f"not read. .*{OTHER_FILES[suffix]}"):
        Reader(path)


def test_an_unknown_file_type_raises(tmp_path):
    path = tmp_path / "weights.txt"
    path.write_bytes(b"x")
    refused(path, "must end in", "'.txt'")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity(tmp_path, value):
    path = tmp_path / "weights.npz"
    np.savez(path, a=ARRAY, b=np.full(3, value, "float32"))
    refused(path, "'b'", "NaN")


def test_integers_are_no_weights(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, a=np.arange(3))
    refused(path, "int64")
