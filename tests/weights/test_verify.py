"""`weights.verify` and `weights.parity`: comparison of a folder with its original."""

import importlib.util
import re
import shutil

import numpy as np
import pytest
from huggingface_hub import constants
from PIL import Image

import kerasvit
from kerasvit.hub import manifest
from kerasvit.prediction import imagenet_names
from tests.golden import vit
from tests.hub.some_weights import OURS
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT
from tests.weights import published_files
from weights import (
    certificate,
    convert,
    labelled_images,
    parity,
    timm_reference,
    verify,
)
from weights.names import name_of
from weights.originals import first

pytestmark = pytest.mark.slow
GOLDEN = parity.GOLDEN / "models"


@pytest.fixture
def folder(public_entry, source, in_this_process, tmp_path):
    """A folder converted from the local Hub."""
    return convert.convert(public_entry(), tmp_path / "vit")


def change_weights(folder):
    """Replaces the weights by others than the original's."""
    model = kerasvit.from_pretrained(folder)
    head = model.get_layer("head").bias
    head.assign([0.0, 0.1, 0.0])
    kerasvit.save_pretrained(model, folder.parent / "changed")
    for name in certificate.COVERED:
        (folder.parent / "changed" / name).replace(folder / name)


def test_a_folder_that_equals_the_original_passes(folder, capsys):
    verify.main([str(folder)])
    assert "PASSED" in capsys.readouterr().out
    card = (folder / "README.md").read_text()
    rows = [line for line in card.splitlines() if "| torch |" in line]
    assert len(rows) == 4 and all("| passed |" in row for row in rows)
    assert "| 0.0e+00 | 0.0e+00 | 1e-05 |" in rows[1]
    for part in ("kerasvit 0.1", "keras 3.", "torch 2.", "timm is 1.2.3"):
        assert part in card
    found = certificate.check_certificate(folder)
    assert [check.backend for check in found.checks] == ["torch"] * 4
    assert {"kerasvit", "keras", "torch"} == set(found.checks[1].versions)
    verify.main([str(folder)])  # again: the same, once
    assert (folder / "README.md").read_text().count(certificate.HEADING) == 1
    assert "## Origin" in card


def test_a_folder_that_differs_fails(folder):
    verify.main([str(folder)])
    change_weights(folder)
    with pytest.raises(ValueError, match="model.safetensors has changed since"):
        certificate.check_certificate(folder)
    with pytest.raises(SystemExit, match="FAILED: the table in .*README.md says where"):
        verify.main([str(folder)])
    card = (folder / "README.md").read_text()
    assert card.count("| **FAILED** |") == 2  # the original here, and in timm
    with pytest.raises(ValueError, match="failed its comparison"):
        certificate.check_certificate(folder)


def test_a_wrong_activation_of_a_small_model_fails(public_entry, monkeypatch):
    entry = public_entry()
    some = dict(list(parity.golden_cases(entry).items())[:2])
    monkeypatch.setattr(parity, "golden_cases", lambda entry: some)
    check = parity.check_golden_cases(entry)
    assert check.passed and check.name.startswith("2 small models by the original")
    monkeypatch.setitem(vit.LAYERS, "features", "position_embedding")
    check = parity.check_golden_cases(entry)
    assert check.relative > 0.1 and not check.passed


def test_every_public_weight_has_a_small_model(hub):
    formats = {}
    for entry in map(first, [*kerasvit.list_weights(), OURS]):
        formats[entry.format, getattr(kerasvit, entry.model).builder] = entry
    for entry in formats.values():
        assert parity.golden_cases(entry)


def test_a_format_without_a_small_model_is_an_error(public_entry):
    with pytest.raises(ValueError, match="no VisionTransformer in the format big_t"):
        parity.check_golden_cases(public_entry(format="big_transfer"))


def test_the_row_states_the_reader_of_the_original(public_entry):
    address = "https://storage.googleapis.com/a/b.npz"
    name = parity.loaded_check_name(public_entry(source=address))
    assert name.endswith("as kerasvit reads it, not its authors' code")
    name = parity.loaded_check_name(public_entry())
    assert name == "logits, the original's file loaded here"


def test_a_difference_from_timm_fails(folder, monkeypatch):
    answers, original_logits = {}, timm_reference.timm_logits

    def timm_logits(path, images, record, double=False):
        answers[path] = original_logits(path, images, record)
        return answers[path] * (1 + 2e-5 * (path == folder))

    monkeypatch.setattr(timm_reference, "timm_logits", timm_logits)
    with pytest.raises(SystemExit, match="FAILED"):
        verify.main([str(folder)])
    card = (folder / "README.md").read_text()
    assert len(answers) == 2 and "timm is 1.2.3" in card
    good, bad = (
        next(line for line in card.splitlines() if f"the {name} in timm" in line)
        for name in ("original", "folder")
    )
    assert "| passed |" in good and certificate.FAILED in bad


def test_a_folder_that_timm_cannot_load_fails(folder, monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("Error(s) in loading:\n\tMissing key(s)")

    monkeypatch.setattr(timm_reference, "timm_logits", refuse)
    assert verify.verify(folder) == certificate.FAILED
    card = (folder / "README.md").read_text()
    assert "timm on the folder: RuntimeError Error(s) in loading: Missing" in card
    assert "| logits, the original in timm | timm | nan |" in card
    numbers = [check.relative for check in certificate.read_certificate(folder).checks]
    assert np.isnan(numbers).tolist() == [True, True, False, False]


def test_without_timm_the_verdict_is_incomplete(folder, source, monkeypatch):
    (source / "config.json").rename(source / "other.json")
    bare = source / "model.safetensors"
    assert verify.verify(folder, bare) == certificate.INCOMPLETE
    assert "the original in timm; its config.json is not" in (
        (folder / "README.md").read_text()
    )

    def missing():
        raise ImportError("no timm")

    monkeypatch.setattr(timm_reference, "import_timm", missing)
    with pytest.raises(SystemExit, match="INCOMPLETE: .*README.md says why"):
        verify.main([str(folder)])
    card = (folder / "README.md").read_text()
    assert card.count("timm cannot be imported here (no timm); pip install timm") == 2
    with pytest.raises(ValueError, match="not compared with all"):
        certificate.check_certificate(folder)


def test_a_missing_original_raises(folder, hub, monkeypatch):
    before = (folder / "README.md").read_text()
    del hub.repositories["timm/tiny"]
    shutil.rmtree(constants.HF_HUB_CACHE)
    with pytest.raises(SystemExit, match="timm/tiny does not exist"):
        verify.main([str(folder)])
    monkeypatch.setattr(manifest, "entries", tuple)
    with pytest.raises(SystemExit, match="no TinyViT from 'timm/tiny'"):
        verify.main([str(folder)])
    with pytest.raises(SystemExit, match="A folder that weights.convert wrote"):
        verify.main([str(folder.parent)])
    assert (folder / "README.md").read_text() == before
    (folder / "README.md").unlink()
    with pytest.raises(SystemExit, match="A folder that weights.convert wrote"):
        verify.main([str(folder)])


def test_top1_of_a_labelled_folder(folder, tmp_path, monkeypatch):
    for name, count in {"ant": 3, "1": 2, "Cat": 1}.items():
        (tmp_path / "val" / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.full((9, 9, 3), 20 * i, "uint8")
            Image.fromarray(pixels).save(tmp_path / "val" / name / f"{i}.png")
    model = kerasvit.from_pretrained(folder)
    head = model.get_layer("head")
    head.kernel.assign(0 * head.kernel)
    head.bias.assign([0.0, 1.0, 0.0])
    assert labelled_images.top1(model, tmp_path / "val") == (2, 6)
    # 80.5 % are published: 1 of 6 images is too few, 3 of 6 may be chance.
    for right, wrong in {1: 1, 3: 0}.items():
        monkeypatch.setattr(parity, "top1", lambda *_, right=right: (right, 6))
        verdict = verify.verify(folder, photos=tmp_path / "val")
        card = (folder / "README.md").read_text()
        share = f"{100 * right / 6:.2f}"
        assert f"Top-1 on 6 images of val, on torch: {share} %." in card
        assert card.count("**FAILED** |") == wrong
        assert verdict == (certificate.FAILED if wrong else certificate.PASSED)
    shutil.rmtree(tmp_path / "val" / "ant")
    verify.main([str(folder), "--images", str(tmp_path / "val")])
    assert "Not compared with the published 80.50 %" in (
        (folder / "README.md").read_text()
    )
    with pytest.raises(SystemExit, match="There is no folder"):
        verify.main([str(folder), "--images", str(tmp_path / "nothing")])


def test_names_of_class_folders_determine_the_classes():
    indices = labelled_images.class_indices
    assert indices(["ox", "0", "Cat"], ["ox", "dog", "cat, tabby"], 3) == [0, 0, 2]
    assert indices(["n02000000", "n01000000"], ["ox", "dog"], 2) == [1, 0]
    with pytest.raises(ValueError, match="'3' matches no class.*from 0 to 2"):
        indices(["3"], ["ox", "dog", "cat"], 3)
    with pytest.raises(ValueError, match="'crane' matches two classes"):
        indices(["crane"], imagenet_names(), 1000)


def test_a_process_that_fails_is_an_error(hub, tmp_path):
    # The process fails at its task, after all imports have succeeded.
    backend = verify.installed_backends()[0]  # jax: its import is twice as fast
    message = f"(?s)On {backend}: .*No such file.*task.json"
    with pytest.raises(ValueError, match=message):
        verify.run_parity(backend, tmp_path)


@pytest.mark.skipif(
    not importlib.util.find_spec("timm"), reason="timm is not installed"
)
def test_logits_equal_those_of_timm(source):
    images = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")
    for classes in (None, 0):
        model = TinyViT(source, num_classes=classes)
        found = parity.logits(model, images)
        expected = timm_reference.timm_logits(source, images, model.record)
        assert found.shape == expected.shape == (2, 3 if classes is None else 16)
        assert parity.compare_logits("", found, expected).passed
    allowed = timm_reference.allowed_error(expected, source, images, model.record)
    assert allowed == 1e-5
    exact = timm_reference.timm_logits(source, images, model.record, double=True)
    assert exact.dtype == "float64" and np.abs(exact - expected).max() < 1e-5


@on_last_backend
@pytest.mark.skipif(
    not importlib.util.find_spec("timm"), reason="timm is not installed"
)
def test_timm_reads_files_of_google(tmp_path):
    (entry,) = (e for e in manifest.entries() if name_of(e) == "BiTR50x1/imagenet")
    bit = tmp_path / entry.filename
    published_files.write(bit, entry)
    for path, options in (
        (GOLDEN / "vit_gap" / "checkpoint.npz", {}),
        (bit, {"image_size": 64}),
    ):
        model = kerasvit.from_pretrained(path, **options)
        assert timm_reference.why_not_npz(path, model.record) is None
        shape = (2, *model.record["kwargs"]["image_size"], 3)
        images = np.random.default_rng(1).normal(size=shape).astype("float32")
        found = parity.logits(model, images)
        expected = timm_reference.timm_logits(path, images, model.record)
        allowed = timm_reference.allowed_error(expected, path, images, model.record)
        assert parity.compare_logits("", found, expected, allowed).passed


def test_files_that_timm_computes_differently_have_a_reason():
    for name, reason in (
        ("vit_token_rep", "differently: its representation_size is"),
        ("mixer", "timm does not read this file"),
    ):
        path = GOLDEN / name / "checkpoint.npz"
        record = kerasvit.from_pretrained(path).record
        assert re.search(reason, timm_reference.why_not_npz(path, record))
