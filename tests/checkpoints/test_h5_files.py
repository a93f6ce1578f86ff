"""HDF5 files: arrays by name; links and arrays larger than the file are not read."""

import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

import kerasvit
from kerasvit import CheckpointError
from kerasvit.checkpoints import Checkpoint
from kerasvit.checkpoints.reader import Reader
from tests.once import on_last_backend
from tests.tiny_vit import random_model

pytestmark = on_last_backend

TF_VIT = Path(__file__).parents[1] / "golden" / "models" / "hf_tf_vit"
ARRAY = np.arange(6, dtype="float32").reshape(2, 3)


def written(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[f"vit/{name}:0"] = array
    return path


@pytest.mark.parametrize("name", ["a.h5", "a.weights.h5", "renamed.bin"])
def test_arrays_have_the_names_of_their_groups(name, tmp_path):
    path = written(tmp_path / name, a=ARRAY, b=np.float32(2), c=np.zeros((0, 2)))
    reader = Reader(path)
    assert reader.shapes == {"vit/a:0": (2, 3), "vit/b:0": (), "vit/c:0": (0, 2)}
    np.testing.assert_array_equal(reader["vit/a:0"], ARRAY)
    assert reader["vit/b:0"] == 2
    assert reader["vit/c:0"].shape == (0, 2)


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "float64", ml_dtypes.bfloat16])
def test_every_float_comes_as_float32(dtype, tmp_path):
    array = Reader(written(tmp_path / "a.h5", a=ARRAY.astype(dtype)))["vit/a:0"]
    assert array.dtype == np.dtype("float32")
    np.testing.assert_array_equal(array, ARRAY)


def test_the_weights_of_a_model_of_keras(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.save_weights(tmp_path / "a.weights.h5")
    reader = Reader(tmp_path / "a.weights.h5")
    kernel = keras.ops.convert_to_numpy(model.layers[0].kernel)
    np.testing.assert_array_equal(reader["layers/dense/vars/0"], kernel)


def test_weights_of_our_own_models_say_how_they_are_loaded(tmp_path):
    random_model(0).save_weights(tmp_path / "a.weights.h5")
    with pytest.raises(CheckpointError, match=r"a\.weights\.h5.*model\.load_weights"):
        kerasvit.from_pretrained(tmp_path / "a.weights.h5")


def test_links_are_not_followed(tmp_path):
    secret = written(tmp_path / "secret.h5", a=ARRAY)
    (tmp_path / "secret.txt").write_bytes(b"s" * 24)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["vit/a"] = ARRAY
        file["vit/itself"] = file["vit"]
        file["soft"] = h5py.SoftLink("/vit/a")
        file["other"] = h5py.ExternalLink(str(secret), "/vit")
        place = [(str(tmp_path / "secret.txt"), 0, 24)]
        file.create_dataset("outside", shape=(6,), dtype="float32", external=place)
    reader = Reader(tmp_path / "a.h5")
    assert set(reader.shapes) == {"vit/a", "outside"}
    with pytest.raises(CheckpointError, match="'outside'.*in another file"):
        reader["outside"]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"shape": (10**6, 10**6)}, "in pieces"),  # never written: zeros
        ({"shape": (10**5, 10**5), "chunks": (10, 10)}, "in pieces"),
        ({"data": np.zeros(10**6), "compression": "gzip"}, "compressed"),
        ({"data": [b"text", b"more"], "dtype": h5py.string_dtype()}, "holds object"),
        ({"data": np.zeros(3, "i4,f4")}, "weights are numbers"),
        ({"data": np.arange(3)}, "holds int64"),
    ],
    ids=str,
)
def test_other_arrays_are_refused(settings, what, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", **settings)
    reader = Reader(tmp_path / "a.h5")
    with pytest.raises(CheckpointError, match=what):
        reader["a"]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "depth"), [(20_001, 1), (1, 80)])
def test_too_many_arrays_or_groups_are_refused(count, depth, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        group = file.create_group("/".join("g" * depth))
        for i in range(count):
            group[str(i)] = np.float32(i)
    with pytest.raises(CheckpointError, match="more than 20,000 arrays, or groups"):
        Reader(tmp_path / "a.h5")


@pytest.mark.parametrize("length", [8, 20, 100, 2000])
def test_a_file_cut_short(length, tmp_path):
    path = written(tmp_path / "a.h5", a=ARRAY, b=np.zeros((40, 40), "float32"))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match="cut short, damaged"):
        Reader(path)


def test_a_folder_of_transformers_with_tensorflow(tmp_path):
    """Its logits are in tests/golden."""
    shutil.copytree(TF_VIT, tmp_path, dirs_exist_ok=True)
    model = kerasvit.from_pretrained(tmp_path)
    assert model.record["label_names"] == ["ant", "bee", "cat", "dog", "eel"]
    (tmp_path / "config.json").unlink()
    description = Checkpoint(tmp_path / "tf_model.h5").description
    assert set(description.open_arguments) == {"num_heads", "activation", "epsilon"}
    assert description.numbers == {
        **{"patch_size": 4, "width": 12, "depth": 2, "mlp_dim": 20},
    }


def test_names_of_tensorflow_become_those_of_pytorch(tmp_path):
    names = {
        "vit/tf_vi_t_model/vit/encoder/layer_._10/output/dense/kernel:0": (5, 4),
        "vit/tf_vi_t_model/vit/patch_embeddings/projection/kernel:0": (4, 4, 3, 5),
        "vit/tf_vi_t_model/vit/layernorm/gamma:0": (4,),
        "swin/tf_swin_model/swin/encoder/layers.1/blocks.0/layernorm_after/beta:0": (
            6,
        ),
        "clip/tfclip/clip/embeddings/position_embedding/embeddings:0": (17, 4),
    }
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, shape in names.items():
            file[name] = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    reader = Reader(tmp_path / "a.h5")
    assert reader.shapes == {
        "clip.embeddings.position_embedding.weight": (17, 4),
        "swin.encoder.layers.1.blocks.0.layernorm_after.bias": (6,),
        "vit.encoder.layer.10.output.dense.weight": (4, 5),
        "vit.layernorm.weight": (4,),
        "vit.patch_embeddings.projection.weight": (5, 3, 4, 4),
    }
    kernel = np.arange(20, dtype="f4").reshape(5, 4)
    name = "vit.encoder.layer.10.output.dense.weight"
    np.testing.assert_array_equal(reader[name], kernel.T)


def test_two_variables_of_one_name_raise(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for model in ("one", "two"):
            file[f"vit/{model}/vit/cls_token:0"] = np.zeros((1, 1, 4), "f4")
    with pytest.raises(CheckpointError, match="two of its variables have the same"):
        Reader(tmp_path / "a.h5")


@pytest.mark.parametrize("change", ["classes", "kernel", "lost"])
def test_a_damaged_folder_of_tensorflow(change, tmp_path):
    shutil.copytree(TF_VIT, tmp_path, dirs_exist_ok=True)
    with h5py.File(tmp_path / "tf_model.h5", "a") as file:
        group = file["classifier/tf_vi_t_for_image_classification/classifier"]
        if change == "classes":
            for name, shape in {"kernel:0": (12, 2), "bias:0": (2,)}.items():
                del group[name]
                group[name] = np.zeros(shape, "f4")
        elif change == "kernel":
            del group["kernel:0"]
            group.create_dataset("kernel:0", (12, 10**9), "f4")  # never written
        else:
            del file["vit/tf_vi_t_for_image_classification/vit/layernorm"]
    what = {"classes": "2 classes", "kernel": r"1,?000,?000,?000", "lost": "layernorm"}
    with pytest.raises(CheckpointError, match=what[change]):
        kerasvit.from_pretrained(tmp_path)


MUTATE = """
import sys
from random import Random
from pathlib import Path
from kerasvit.checkpoints import CheckpointError
from kerasvit.checkpoints.reader import Reader
from tests.checkpoints.mutated_bytes import raw

path, count = Path(sys.argv[1]), int(sys.argv[2])
content = path.read_bytes()
read = refused = 0
for seed in range(count):
    path.write_bytes(b"\\x89HDF\\r\\n\\x1a\\n" + raw(Random(seed), content[8:]))
    try:
        reader = Reader(path)
        for name in reader.shapes:
            reader[name]
        read += 1
    except CheckpointError:
        refused += 1
print(read, refused)
"""


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(200, marks=pytest.mark.slow),
        pytest.param(10_000, marks=pytest.mark.long),
    ],
)
def test_mutated_files_are_read_or_refused(count, tmp_path):
    """In a process of its own: libhdf5 is written in C."""
    path = written(tmp_path / "a.h5", a=ARRAY, b=np.zeros((9, 9)), c=np.float32(1))
    run = [sys.executable, "-c", MUTATE, str(path), str(count)]
    result = subprocess.run(
        run, capture_output=True, text=True, check=True, timeout=900
    )
    read, refused = map(int, result.stdout.split())
    assert read + refused == count and min(read, refused) > count / 20
