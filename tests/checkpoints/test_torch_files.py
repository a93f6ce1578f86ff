"""Files of `torch.save`, in both forms: their tensors, and nothing else of them."""

import argparse
import importlib.util
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import zipfile

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints import Checkpoint, CheckpointError
from kerasvit.checkpoints.reader import Reader
from tests.checkpoints import torch_files
from tests.checkpoints.torch_files import ARRAY, DTYPES, FILES, FORMS, GOLDEN, VIEWS
from tests.contract import to_numpy
from tests.once import on_last_backend

pytestmark = on_last_backend

VIT = {"patch_size": 4, "width": 24, "depth": 2, "num_heads": 3, "mlp_dim": 96}
Small = kerasvit.Variant("Small", kerasvit.VisionTransformer, **VIT)


def raw(path, name):
    """The values of a tensor of any dtype, as they are in the file."""
    return Reader(path)._get(name)


def check_kinds(path):
    for name in DTYPES:
        array = raw(path, f"kinds.{name}")
        kind = ml_dtypes.bfloat16 if name == "bfloat16" else name
        assert array.dtype == np.dtype(kind), name
        assert array.astype(float).tolist() == [0, 1, min(2, float(name != "bool") + 1)]
    for name, view in {**VIEWS, "parameter": lambda a: a}.items():
        array = raw(path, f"kinds.{name}")
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, view(ARRAY), strict=True)


def check_model(path, **options):
    found, right = Checkpoint(path, **options), torch_files.golden()
    assert found.shapes == {name: array.shape for name, array in right.items()}
    for name, array in right.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("form", FORMS)
def test_committed_files(form):
    """PyTorch 2.13 wrote them; no PyTorch reads them."""
    path = FILES / f"{form}.pth"
    check_kinds(path)
    check_model(path)
    reader = Reader(path)
    assert set(reader.states) == {"", "model", "kinds"}
    assert reader.objects[""]["args"] == "argparse.Namespace"
    assert reader.objects[""]["best"].endswith("multiarray.scalar")
    assert set(reader.objects[""]) == {"args", "best", "history"}


@pytest.mark.slow
def test_neither_torch_nor_what_is_named_is_imported():
    code = (
        "import sys; from kerasvit.checkpoints import Checkpoint\n"
        "before = set(sys.modules)\n"
        "for path in sys.argv[1:]: Checkpoint(path)\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "assert not new & {'torch', 'argparse', 'pickle'}, new\n"
        "assert 'torch' not in sys.modules\n"
    )
    others = [name for name in ("jax", "tensorflow") if importlib.util.find_spec(name)]
    if not others:
        pytest.skip("needs a backend that does not import PyTorch itself")
    files = [str(FILES / f"{form}.pth") for form in FORMS]
    environment = {**os.environ, "KERAS_BACKEND": others[0]}
    subprocess.run([sys.executable, "-c", code, *files], check=True, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_files_that_torch_writes_now(form, protocol, tmp_path):
    pytest.importorskip("torch")
    model = torch_files.tensors(torch_files.golden())
    content = torch_files.training(model, kinds=torch_files.kinds())
    path = tmp_path / "x.pth"
    torch_files.write(path, content, form, pickle_protocol=protocol)
    check_kinds(path)
    check_model(path)


def test_dtypes_without_a_class_of_storages(tmp_path):
    torch = pytest.importorskip("torch")
    kinds = ("uint16", "uint32", "uint64")
    values = {name: torch.tensor([0, 1, 2]).to(getattr(torch, name)) for name in kinds}
    values["float8"] = torch.ones(2).to(torch.float8_e4m3fn)
    path = torch_files.write(tmp_path / "x.pth", values)
    for name in kinds:
        np.testing.assert_array_equal(raw(path, name), np.arange(3, dtype=name))
    assert Reader(path).objects == {"": {"float8": "torch.float8_e4m3fn"}}


def test_checksums_may_be_missing(tmp_path):
    torch = pytest.importorskip("torch")
    torch.serialization.set_crc32_options(False)
    try:
        path = torch_files.write(tmp_path / "x.pth", {"kinds": torch_files.kinds()})
    finally:
        torch.serialization.set_crc32_options(True)
    check_kinds(path)


ENDS = (".pth", ".pt", ".bin", ".ckpt", ".pth.tar", ".safetensors", ".npz")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("end", ENDS)
def test_the_form_is_told_by_content(form, end, tmp_path):
    shutil.copy(FILES / f"{form}.pth", tmp_path / f"best{end}")
    check_model(tmp_path / f"best{end}")


def test_safetensors_under_another_name(tmp_path):
    shutil.copy(GOLDEN / "timm_vit" / "model.safetensors", tmp_path / "best.pth")
    check_model(tmp_path / "best.pth")


@pytest.mark.parametrize("order", ["little", "big"])
def test_order_of_bytes(order, tmp_path):
    values = np.arange(6, dtype=">f4" if order == "big" else "<f4")
    pickle = torch_files.pickled({"a": torch_files.tensor()})
    members = [("data/0", values.tobytes())]
    path = tmp_path / "x.pth"
    torch_files.archive(path, pickle, members, order=order.encode())
    np.testing.assert_array_equal(raw(path, "a"), np.arange(6).reshape(2, 3))


def test_views_of_the_oldest_form_of_storages(tmp_path):
    """PyTorch before 0.4 named the part of a storage that a tensor had."""
    view = torch_files.many([torch_files.text("v"), b"K\x02", b"K\x03"])
    named = b"ctorch\nFloatStorage\n"
    parts = [torch_files.text("storage"), named, torch_files.text("0")]
    parts += [torch_files.text("cpu"), torch_files.integer(6), view]
    source = torch_files.many(parts) + b"Q"
    pickle = torch_files.pickled({"a": torch_files.tensor((3,), (1,), 0, source)})
    storages = [("0", (6, np.arange(6, dtype="<f4").tobytes()))]
    path = torch_files.older(tmp_path / "x.pth", pickle, storages)
    np.testing.assert_array_equal(raw(path, "a"), [2, 3, 4])


CASES = sorted(path.parent.name for path in GOLDEN.glob("*/model.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_code_base(case, tmp_path):
    """As a training script saves them, in the older form."""
    pytest.importorskip("torch")
    for file in GOLDEN.joinpath(case).glob("*.json"):
        shutil.copy(file, tmp_path)
    arrays = load_file(GOLDEN / case / "model.safetensors")
    state = {f"module.{name}": array for name, array in arrays.items()}
    content = {"state_dict": torch_files.tensors(state), "epoch": 90, "best_acc1": 0.8}
    path = torch_files.write(tmp_path / "best.pth.tar", content, "older")
    found, right = Checkpoint(path), Checkpoint(GOLDEN / case)
    assert found.shapes == right.shapes
    assert found.description.arguments == right.description.arguments
    for name in right.shapes:
        np.testing.assert_array_equal(found[name], right[name])


# States.


@pytest.fixture
def saved(tmp_path):
    """Function that writes a value with PyTorch and returns the path."""
    pytest.importorskip("torch")
    return lambda value, **options: torch_files.write(
        tmp_path / "x.pth", value, **options
    )


def model(prefix="", more=0):
    arrays = {prefix + k: v + more for k, v in torch_files.golden().items()}
    return torch_files.tensors(arrays)


def check_more(path, state, more):
    """Checks that a state is the model with so much added to all weights."""
    found = Checkpoint(path, state=state)
    for name, array in torch_files.golden().items():
        np.testing.assert_array_equal(found[name], array + more)


def test_a_lone_file_builds_the_model_of_its_tensors():
    built = Small(FILES / "zip.pth")
    whole = Small(GOLDEN / "timm_vit")
    for ours, theirs in zip(built.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))
    assert built.record == whole.record


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (("model", "model_ema"), {"model": 0, "model_ema": 1, "ema": 1}),
        (("state_dict", "state_dict_ema"), {"state_dict": 0, "ema": 1}),
        (("student", "teacher"), {"student": 0, "teacher": 1}),
        (("net", "ema.module"), {"net": 0, "ema.module": 1, "module": 1, "ema": 1}),
    ],
)
def test_one_of_several_models_is_chosen(names, asked, saved):
    first, second = names
    *outer, inner = second.split(".")
    content = {inner: model("module.", more=1)}
    content = {outer[0]: content} if outer else content
    path = saved({**torch_files.training(0), first: model(), **content})
    message = f'several models. Choose .*state="{second}".*{first}: 32 tensors, 16,27'
    with pytest.raises(CheckpointError, match=re.compile(message, re.DOTALL)):
        Checkpoint(path)
    for state, more in asked.items():
        check_more(path, state, more)


def test_the_callers_of_state(saved, tmp_path):
    path = saved({"model": model(), "model_ema": model(more=1)})
    for load in (Small, kerasvit.from_pretrained):
        with pytest.raises(CheckpointError, match="several models"):
            load(path)
        options = {"num_heads": 3} if load is kerasvit.from_pretrained else {}
        built = load(path, state="ema", **options)
        bias = torch_files.golden()["head.bias"] + 1
        np.testing.assert_array_equal(to_numpy(built.get_layer("head").bias), bias)
    assert Small.preprocessing(path, state="ema") == Small.preprocessing(
        GOLDEN / "timm_vit"
    )
    with pytest.raises(CheckpointError, match="no state 'x'. Choose .*\"model_ema\""):
        Small(path, state="x")
    with pytest.raises(CheckpointError, match="must be text"):
        Small(path, state=3)
    with pytest.raises(ValueError, match="pass `weights`, too"):
        Small(state="ema")
    with pytest.raises(CheckpointError, match="these weights are one model"):
        kerasvit.from_pretrained("ViTB16/sam", state="ema")


def test_dino(saved):
    """facebookresearch/dino/main_dino.py: a backbone and a projection, twice."""

    def half(prefix, more):
        import torch

        head = {"head.mlp.0.weight": (2, 2), "head.last_layer.weight_g": (2, 1)}
        projection = {prefix + k: torch.ones(v) for k, v in head.items()}
        return {**model(f"{prefix}backbone.", more), **projection}

    import torch

    loss = {"center": torch.ones(1, 3)}
    halves = {"student": half("module.", 0), "teacher": half("", 1)}
    path = saved(torch_files.training(0, **halves, dino_loss=loss))
    with pytest.raises(CheckpointError, match="several models(.|\n)*teacher: 34 tens"):
        Checkpoint(path)
    check_more(path, "student", 0)
    for state in ("teacher", "teacher.backbone"):
        check_more(path, state, 1)


def test_lightning(saved):
    """A checkpoint of Lightning: the model is a part of its module."""
    import torch

    content = {
        "epoch": 3,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": model("model."),
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best": torch.tensor(0.5)}},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}}],
        "hyper_parameters": argparse.Namespace(lr=1e-3, out=pathlib.Path("x")),
    }
    check_model(saved(content, form="zip"))
    content["state_dict"]["criterion.weight"] = torch.ones(3)
    path = saved(content, form="older")
    with pytest.raises(CheckpointError, match='state="state_dict.model"'):
        Checkpoint(path)
    check_model(path, state="state_dict.model")
    check_model(path, state="model")


def test_an_error_names_states_that_can_be_chosen(saved):
    path = saved({**model("student.backbone."), **model("teacher.backbone.", more=1)})
    for state in (None, "backbone"):
        with pytest.raises(CheckpointError, match='state="teacher".*:\n  student'):
            Checkpoint(path, state=state)
    check_more(path, "teacher", 1)
    with pytest.raises(CheckpointError, match="one model: leave out `state`"):
        Checkpoint(saved(model()), state="x")


def test_an_object_among_the_tensors_is_named(saved):
    path = saved({"model": {**model(), "note": argparse.Namespace()}})
    with pytest.raises(CheckpointError, match="argparse.Namespace at model.note"):
        Checkpoint(path)
    # Plain values are no weights, and objects of other states are not looked at.
    check_model(saved({"model": {**model(), "epoch": 3, "note": "a"}, "x": range(3)}))


@pytest.mark.parametrize("inside", [{}, {"epoch": 1}])
def test_the_command_for_arrays_of_numpy_works(inside, saved, tmp_path, monkeypatch):
    arrays = {name: tensor.numpy() for name, tensor in model().items()}
    others = {"accuracy": np.float64(0.5), "kind": np.dtype("float32")}
    state = {**arrays, **others}
    path = saved({"model.best": state, **inside} if inside else state)
    with pytest.raises(CheckpointError, match="numpy.* make tensors") as error:
        Checkpoint(path)
    monkeypatch.chdir(tmp_path)
    command = str(error.value).partition("its arrays: ")[2]
    exec(command, {})  # noqa: S102
    check_model("weights.pth")


NOT_READ = ["expanded", "negated", "complex64", "sparse", "float8_e4m3fn"]


@pytest.mark.parametrize("what", NOT_READ)
def test_a_tensor_that_is_not_read_is_named(what, saved):
    import torch

    whole = {**model()}
    bias = whole["head.bias"]
    if what == "expanded":
        changed = torch.ones(1).expand(3)
    elif what == "negated":
        changed = torch.complex(bias, bias).conj().imag
    else:
        changed = (
            bias.to_sparse() if what == "sparse" else bias.to(getattr(torch, what))
        )
    path = saved({"model": {**whole, "head.bias": changed}})
    with pytest.raises(CheckpointError, match="holds torch.* at model.head.bias"):
        Checkpoint(path)


def test_whole_models_and_other_pickles_say_what_to_save(saved, tmp_path):
    import torch

    for value in (torch.nn.Linear(2, 2), {"model": torch.nn.Linear(2, 2)}):
        with pytest.raises(CheckpointError, match="(?s)Linear.*which is not made"):
            Checkpoint(saved(value))
    for value in (torch.ones(2), [1], {"epoch": 3}):
        with pytest.raises(CheckpointError, match="no dict of tensors"):
            Checkpoint(saved(value))
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(model()))
    with pytest.raises(CheckpointError, match="a pickle that torch.save did not write"):
        Checkpoint(tmp_path / "plain.pth")
    module = torch_files.pickled({})
    torch_files.archive(tmp_path / "x.pt", module, {"constants.pkl": b"\x80\x02)."})
    with pytest.raises(CheckpointError, match="of TorchScript.*torch.jit.load"):
        Checkpoint(tmp_path / "x.pt")


def test_a_tar_of_the_first_pytorch_is_named(tmp_path):
    import tarfile

    path = tmp_path / "x.pth"
    with tarfile.open(path, "w") as file:
        file.add(FILES / "zip.pth", "storages")
    with pytest.raises(CheckpointError, match=r"tar archive.*torch\.load"):
        Checkpoint(path)


# Folders.


def in_folder(case, folder, name="pytorch_model.bin"):
    """A folder of a golden case with pickled tensors."""
    folder.mkdir(exist_ok=True)
    shutil.copy(GOLDEN / case / "config.json", folder)
    arrays = load_file(GOLDEN / case / "model.safetensors")
    torch_files.write(folder / name, torch_files.tensors(arrays))
    return arrays


@pytest.mark.parametrize("case", ["hf_vit", "hf_swin", "timm_vit"])
def test_folders_of_timm_and_transformers(case, tmp_path):
    pytest.importorskip("torch")
    if not (GOLDEN / case / "config.json").exists():
        (tmp_path / "config.json").write_text('{"architecture": "vit_tiny_patch4"}')
        torch_files.write(tmp_path / "pytorch_model.bin", model())
        return check_model(tmp_path)
    arrays = in_folder(case, tmp_path)
    built = kerasvit.from_pretrained(tmp_path)
    whole = kerasvit.from_pretrained(GOLDEN / case)
    for ours, theirs in zip(built.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))
    assert built.record == whole.record
    # A file of safetensors beside it comes first.
    save_file({k: v + 1 for k, v in arrays.items()}, tmp_path / "model.safetensors")
    found = Checkpoint(tmp_path)
    assert found.path.name == "model.safetensors"


def test_pickled_shards(tmp_path):
    pytest.importorskip("torch")
    arrays = in_folder("hf_vit", tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    names = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
    places = {name: names[i % 2] for i, name in enumerate(sorted(arrays))}
    for file in names:
        part = {name: arrays[name] for name in arrays if places[name] == file}
        torch_files.write(tmp_path / file, torch_files.tensors(part))
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    for path in (tmp_path, index):
        found = Checkpoint(path)
        right = Checkpoint(GOLDEN / "hf_vit")
        assert found.shapes == right.shapes
        for name in right.shapes:
            np.testing.assert_array_equal(found[name], right[name])
    del found  # Windows deletes no open file
    (tmp_path / names[0]).unlink()
    with pytest.raises(CheckpointError, match=f"lists {names[0]}, which is missing"):
        Checkpoint(tmp_path)
    index.unlink()
    with pytest.raises(CheckpointError, match="no pytorch_model.bin.index.json"):
        Checkpoint(tmp_path)


# Files that are damaged, or that no library would write.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keep", [0, 1, 4, 20, 300, 5000, 70_000, -30, -1])
def test_truncated(form, keep, tmp_path):
    content = (FILES / f"{form}.pth").read_bytes()
    (tmp_path / "x.pth").write_bytes(content[:keep])
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoint(tmp_path / "x.pth")


def test_another_magic_or_protocol(tmp_path):
    content = (FILES / "older.pth").read_bytes()
    path = tmp_path / "x.pth"
    path.write_bytes(content.replace(b"l\xfc\x9cF", b"l\xfc\x9cG", 1))
    with pytest.raises(CheckpointError, match="a pickle that torch.save did not write"):
        Checkpoint(path)
    path.write_bytes(content.replace(b"M\xe9\x03.", b"M\xea\x03.", 1))
    with pytest.raises(CheckpointError, match="of another version of torch.save"):
        Checkpoint(path)


def test_compressed_members_are_refused(tmp_path):
    members = torch_files.contents(FILES / "zip.pth")
    pickle = members.pop("data.pkl")
    path, method = tmp_path / "x.pth", zipfile.ZIP_DEFLATED
    torch_files.archive(path, pickle, members.items(), method)
    with pytest.raises(CheckpointError, match="data.pkl is compressed"):
        Checkpoint(path)


BYTES = np.arange(6, dtype="<f4").tobytes()
WRONG = {
    "larger than their storages": [
        dict(shape=(2, 4)), dict(offset=1), dict(strides=(4, 1)),
        dict(shape=(2**61, 8)), dict(source=torch_files.storage(size=5)),
    ],
    "wrong sizes": [
        dict(shape=(-1, 6)), dict(strides=(-3, 1)), dict(offset=-1),
        dict(shape=(2**63, 1)), dict(source=torch_files.storage(size=-6)),
    ],
    "wrong strides": [dict(shape=(2,)), dict(shape=(1,) * 65, strides=(1,) * 65)],
    "shorter than its tensors say": [dict(source=torch_files.storage(size=7))],
    "data/1 is missing": [dict(source=torch_files.storage("1"))],
    r"data/../x is missing": [dict(source=torch_files.storage("../x"))],
    "class 'os.system'": [dict(source=torch_files.storage(kind="os\nsystem"))],
    "no storage": [dict(source=b"N"), dict(source=torch_files.text("0"))],
}  # fmt: skip


@pytest.mark.parametrize(
    ("message", "wrong"),
    [(message, each) for message, cases in WRONG.items() for each in cases],
)
def test_tensors_that_are_not_in_their_storages(message, wrong, tmp_path):
    pickle = torch_files.pickled({"a": torch_files.tensor(**wrong)})
    path = torch_files.archive(tmp_path / "x.pth", pickle, [("data/0", BYTES)])
    with pytest.raises(CheckpointError, match=f"cannot be read.*{message}"):
        Reader(path)


def test_storages_of_the_older_form_are_as_long_as_stated(tmp_path):
    pickle = torch_files.pickled({"a": torch_files.tensor()})
    for count, content in ((5, BYTES), (2**62, BYTES), (6, BYTES[:-1])):
        path = tmp_path / "x.pth"
        torch_files.older(path, pickle, [("0", (count, content))])
        with pytest.raises(CheckpointError, match="cannot be read.*storage 0"):
            Reader(path)
    torch_files.older(tmp_path / "x.pth", pickle, [("0", (6, BYTES))])
    np.testing.assert_array_equal(raw(tmp_path / "x.pth", "a").ravel(), np.arange(6))


def test_a_file_truncated_while_it_is_read_raises(tmp_path):
    """A memory map would end the process."""
    for form in FORMS:
        path = shutil.copy(FILES / f"{form}.pth", tmp_path)
        found = Checkpoint(path)
        with open(path, "r+b") as file:
            file.truncate(10_000)
        with pytest.raises(CheckpointError, match="changed while"):
            for name in found.shapes:
                found[name]


def test_names_may_not_fill_the_memory(tmp_path):
    """The same long key before many tensors, and dicts in dicts without end."""
    key = torch_files.text("k" * 1_000_000)
    inner = b"}" + b"".join(torch_files.text(str(i)) + b"h\x01s" for i in range(2000))
    pickle = b"\x80\x02" + torch_files.tensor() + b"q\x010}" + key + inner + b"s."
    path = tmp_path / "x.pth"
    torch_files.archive(path, pickle, [("data/0", BYTES)])
    with pytest.raises(CheckpointError, match="letters of names"):
        Reader(path)
    itself = b"}q\x00" + b"".join(
        torch_files.text(str(i)) + b"h\x00s" for i in range(50)
    )
    torch_files.archive(path, b"\x80\x02" + itself + b".")
    with pytest.raises(CheckpointError, match="10,000 dicts"):
        Reader(path)
