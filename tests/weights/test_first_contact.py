"""`weights.first_contact`: every name with the file at its server."""

import contextlib
import dataclasses
import functools
import json
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import keras
import numpy as np
import pytest
from huggingface_hub import constants, hf_hub_download
from PIL import Image

import kerasvit
from kerasvit.hub import manifest as catalogue
from kerasvit.hub.servers import path_in_cache
from tests.hub import accidents
from tests.once import on_last_backend
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT
from weights import (
    disputed,
    downloads,
    first_contact,
    lock,
    names,
    servers,
    status,
    timm_reference,
)
from weights.contact import accuracy, checks, examine, pictures, published_logits
from weights.contact import results as contact_results

pytestmark = [on_last_backend, pytest.mark.slow]

CARD = b"---\nlicense: mit\n---\n# tiny\n"
HUB, ADDRESS = "TinyViT/sam", "TinyViT/gsam"
RUN_PROCESS = examine.run_process


def tensors_of(folder, **changes):
    """{name: bytes} of the folder of a random tiny ViT in timm's format."""
    model = randomised(TinyViT(image_size=8, **{"num_classes": 3, **changes}))
    kerasvit.save_pretrained(model, folder)
    config = json.loads((folder / "config.json").read_text())
    del config["kerasvit"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "README.md").unlink()
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Contact:
    """A manifest with two names of one file: on the local Hub and at a URL."""

    def __init__(self, hub, folder, files):
        self.hub, self.out = hub, folder / "contact"
        self.manifest = folder / "manifest.json"
        self.files = {**files, "README.md": CARD}
        hub.add("timm/tiny", self.files)
        hub.files["model.safetensors"] = files["model.safetensors"]
        table = {"model": "TinyViT", "format": "timm", "classes": 3, "megabytes": 1}
        table |= {"license": "mit", "preprocessing": {"size": 8}}
        self.tables = [
            {**table, "tag": "sam", "source": "timm/tiny"},
            {
                **table,
                "tag": "gsam",
                "source": hub.address("model.safetensors"),
                "megabytes": 2,
            },
        ]
        self.write()

    def write(self):
        lock.write(self.tables, self.manifest)

    def read(self):
        return {
            f"{table['model']}/{table['tag']}": table
            for table in json.loads(self.manifest.read_text())["weights"]
        }

    def change(self, index, **changes):
        self.tables[index] |= changes
        self.write()

    def run(self, *only, **options):
        run = first_contact.prepare(only, self.out, manifest=self.manifest, **options)
        return first_contact.first_contact(run)

    def empty_caches(self):
        shutil.rmtree(constants.HF_HUB_CACHE)
        shutil.rmtree(path_in_cache(self.tables[1]["source"]).parent)

    @property
    def results(self):
        return contact_results.read_all(self.out)

    def fails(self, name, kind, *words):
        """Runs one name, which must fail in this way."""
        assert not self.run(name)
        failure = self.results[name].failure
        assert failure["kind"] == kind, failure
        assert "\n" not in failure["message"]
        for word in words:
            assert word in failure["message"], failure
        return self.results[name]


@pytest.fixture
def checks_in_this_process(monkeypatch):
    """Runs the checks in this process; kerasvit replaces timm."""
    monkeypatch.setattr(kerasvit, "TinyViT", TinyViT, raising=False)

    def timm_logits(folder, images, record, double=False):
        model = TinyViT(folder, num_classes=record["kwargs"]["num_classes"])
        return checks.outputs(model, images)

    timm = types.SimpleNamespace(__version__="1.2.3")
    # Skip the garbage collection: it takes seconds after many tests.
    quick = functools.partial(keras.utils.clear_session, free_memory=False)
    for module, name, value in (
        (keras.utils, "clear_session", quick),
        (examine, "run_process", lambda task, log: checks.check(task)),
        (timm_reference, "import_timm", lambda: timm),
        (timm_reference, "timm_logits", timm_logits),
        (checks, "version", lambda name: "1.2.3"),
        (checks, "timm_is_installed", lambda: True),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def contact(hub, checks_in_this_process, tmp_path):
    return Contact(hub, tmp_path, tensors_of(tmp_path / "model"))


def test_names_that_are_right_pass(contact, capsys):
    assert contact.run()
    result = contact.results[HUB]
    assert result.passed and result.loaded and result.failure is None
    assert result.server == contact.hub.endpoint and result.backend == "torch"
    assert result.licence == {"catalogue": "mit", "server": "mit"}
    (row,) = result.comparisons
    assert row["reference"] == "timm 1.2.3" and row["error"] == 0.0
    table = contact.read()[HUB]
    repository = contact.hub.repositories["timm/tiny"]
    assert result.pins == {key: table[key] for key in lock.PINS}
    assert result.pins["revision"] == repository.branches["main"]
    result = contact.results[ADDRESS]
    assert result.passed and result.licence["server"] is None
    assert result.pins["revision"] is None and "revision" not in contact.read()[ADDRESS]
    assert result.comparisons[0]["note"] == "not compared: timm does not read this file"
    printed = capsys.readouterr().out
    assert "2 passed (1 without a comparison), 0 failed, 0 not reached." in printed
    assert "TinyViT/sam   yes     yes     timm 1.2.3: 0e+00" in printed
    assert "| TinyViT/gsam | yes | yes | timm 1.2.3: not compared |" in (
        (contact.out / "table.md").read_text()
    )


def test_a_name_that_passed_is_not_repeated(contact):
    contact.run()
    dates = {name: result.seconds for name, result in contact.results.items()}
    contact.hub.requests.clear()
    assert contact.run()
    assert not contact.hub.requests
    assert dates == {name: result.seconds for name, result in contact.results.items()}
    for table in contact.tables:  # other pins than before: checked again
        table |= {"size": len(contact.files["model.safetensors"])}
    contact.write()
    assert contact.run() and contact.hub.requests


def test_a_missing_comparison_is_repeated_when_it_is_possible(contact, monkeypatch):
    monkeypatch.setattr(checks, "timm_is_installed", lambda: False)
    assert contact.run(HUB)
    assert contact.results[HUB].comparisons[0]["note"] == checks.NO_TIMM
    monkeypatch.setattr(checks, "timm_is_installed", lambda: True)
    assert contact.run(HUB)
    assert contact.results[HUB].comparisons[0]["error"] == 0.0


def test_a_changed_catalogue_is_checked_again(contact):
    assert contact.run(HUB)
    contact.change(0, **contact.read()[HUB], top1={"percent": 80.5, "source": "timm"})
    contact.hub.requests.clear()
    assert contact.run(HUB) and contact.hub.requests
    assert contact.results[HUB].entry["top1"]["percent"] == 80.5


def test_a_timm_that_could_not_be_imported_is_tried_again(contact, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(timm_reference, "import_timm", missing)
        assert contact.run(HUB)
        assert contact.results[HUB].comparisons[0]["note"] == checks.UNUSABLE_TIMM
        record = contact.out / "results" / "TinyViT-sam.json"
        before = record.read_bytes()
        assert contact.run(HUB) and record.read_bytes() == before
    assert contact.run(HUB)
    assert contact.results[HUB].comparisons[0]["error"] == 0.0


def missing():
    raise ImportError("no timm")


def test_pins_of_another_command_are_kept(contact, monkeypatch):
    find_pins = examine.find_pins

    def while_others_pin(entry, listing):
        contact.change(1, size=7, sha256="e" * 64)
        return find_pins(entry, listing)

    monkeypatch.setattr(examine, "find_pins", while_others_pin)
    assert contact.run(HUB)
    assert contact.read()[ADDRESS]["size"] == 7 and contact.read()[HUB]["sha256"]


def test_the_package_is_not_pinned_to_a_local_server(contact, monkeypatch):
    monkeypatch.setattr(servers, "MANIFEST", contact.manifest)
    monkeypatch.chdir(contact.manifest.parent)
    for path in (contact.manifest, Path("manifest.json")):
        with pytest.raises(ValueError, match="Use a copy of it") as caught:
            first_contact.prepare(out=contact.out, manifest=path)
        assert contact.hub.endpoint in str(caught.value)
    monkeypatch.setattr(lock, "MANIFEST", contact.manifest)
    monkeypatch.setattr(lock, "lock", lambda: contact.tables)
    with pytest.raises(SystemExit, match="Use a copy of it"):
        lock.main(["--pin", HUB])
    assert not contact.hub.requests


def test_the_page_of_proofs_is_written(contact, monkeypatch, capsys):
    contact.run(HUB)
    page = contact.out.parent / "STATUS.md"
    assert not page.exists()
    for module, name, value in (
        (first_contact, "MANIFEST", contact.manifest),
        (status, "MANIFEST", contact.manifest),
        (status, "FACTS", page.with_name("status.json")),
        (status, "PAGE", page),
    ):
        monkeypatch.setattr(module, name, value)
    assert contact.run(HUB)
    assert "| TinyViT/sam | " in page.read_text()
    assert f"Commit {page}, status.json and manifest.json" in capsys.readouterr().out


def test_files_that_are_missing_renamed_or_gated_are_wrong_names(contact):
    files = {**contact.files}
    files["weights.safetensors"] = files.pop("model.safetensors")
    contact.hub.add("timm/tiny", files)
    contact.fails(HUB, "name", "has no model.safetensors", "weights.safetensors")
    contact.hub.add("timm/tiny", contact.files, gated=True)
    contact.fails(HUB, "name", "asks for your consent")
    del contact.hub.repositories["timm/tiny"]
    contact.fails(HUB, "name", "does not exist, or is private", "sources.toml")
    contact.hub.files.clear()
    result = contact.fails(ADDRESS, "name", "the server answers 404")
    assert result.pins is None and "sha256" not in contact.read()[ADDRESS]
    contact.hub.add("timm/tiny", contact.files)
    assert contact.run(HUB)


def test_a_file_that_was_replaced_is_a_wrong_name(contact):
    size = len(contact.files["model.safetensors"])
    contact.change(0, revision="a" * 40, size=size, sha256="e" * 64)
    contact.fails(HUB, "name", "has no revision")
    revision = contact.hub.repositories["timm/tiny"].branches["main"]
    contact.change(0, revision=revision)
    result = contact.fails(HUB, "name", "was replaced", "remove revision, size, sha256")
    assert result.pins is None and contact.read()[HUB]["sha256"] == "e" * 64
    contact.change(0, size=size + 1)
    contact.fails(HUB, "name", f"{size + 1} bytes are pinned", f"has {size} bytes")
    contact.change(1, size=size + 1, sha256="e" * 64)
    contact.fails(ADDRESS, "name", f"{size + 1} bytes are pinned")
    contact.change(1, size=size)
    contact.fails(ADDRESS, "server", "not the file that was published")


def test_a_changed_licence_fails(contact):
    contact.hub.add("timm/tiny", {**contact.files, "README.md": b"# without metadata"})
    contact.fails(HUB, "licence", "states no licence", "states 'mit'", "Read the card")
    other = b"---\nlicense: other\nlicense_name: research-only\n---\n"
    contact.hub.add("timm/tiny", {**contact.files, "README.md": other})
    result = contact.fails(HUB, "licence", "'research-only'")
    assert result.licence == {"catalogue": "mit", "server": "research-only"}
    assert result.pins is None and "sha256" not in contact.read()[HUB]
    assert not contact.hub.count("GET", "/content/")


@pytest.mark.parametrize("name", [HUB, ADDRESS])
def test_broken_downloads_are_failures_of_the_server(contact, name):
    for fault in (accidents.ended, accidents.flipped, accidents.status(503)):
        contact.hub.faults = accidents.always(fault)
        contact.fails(name, "server", "Run the command again later")
    contact.hub.faults = [accidents.ended]  # the first download stops in the middle
    assert contact.run(name)


def test_a_server_that_is_down_fails(contact):
    contact.hub.close()
    assert not contact.run()
    assert {result.failure["kind"] for result in contact.results.values()} == {"server"}


def test_a_head_that_differs_from_the_catalogue_fails(contact, tmp_path):
    contact.change(0, head="zeroed")
    contact.fails(HUB, "numbers", "the head is not zero: remove that line")
    model = randomised(TinyViT(image_size=8, num_classes=3))
    model.get_layer("head").kernel.assign(0 * model.get_layer("head").kernel)
    folder = kerasvit.save_pretrained(model, tmp_path / "zeroed")
    tensors = (folder / "model.safetensors").read_bytes()
    contact.hub.add("timm/tiny", {**contact.files, "model.safetensors": tensors})
    contact.tables[0].pop("head")
    contact.write()
    contact.fails(HUB, "numbers", 'add head = "zeroed"')
    contact.change(0, head="zeroed")
    assert contact.run(HUB)
    result = contact.results[HUB]
    assert result.loaded and result.comparisons[0]["error"] == 0.0


def test_a_file_of_another_model_is_a_wrong_format(contact, tmp_path):
    contact.change(0, classes=4)
    contact.fails(HUB, "format", "the file has 3 classes, the catalogue 4")
    contact.change(0, classes=3)
    wide = tensors_of(tmp_path / "wide", mlp_dim=32)
    contact.hub.add("timm/tiny", {**wide, "README.md": CARD})
    result = contact.fails(HUB, "format", "report it")
    assert not result.loaded and result.pins


def test_outputs_that_differ_fail(contact, monkeypatch):
    logits = timm_reference.timm_logits
    monkeypatch.setattr(
        timm_reference,
        "timm_logits",
        lambda *given, double=False: logits(*given) * (1 + 2e-5),
    )
    result = contact.fails(HUB, "numbers", "from timm 1.2.3 is 2.0e-05", "1e-05")
    assert result.loaded and len(result.differing) == 1

    def rounded(*given, double=False):
        return logits(*given) * (1 if double else 1 + 2e-5)

    monkeypatch.setattr(timm_reference, "timm_logits", rounded)
    assert contact.run(HUB)  # timm's own float32 is as far from its float64
    (comparison,) = contact.results[HUB].comparisons
    assert comparison["error"] == pytest.approx(2e-5, rel=0.01)
    assert comparison["allowed"] == pytest.approx(8e-5, rel=0.01)
    (contact.out / "results" / "TinyViT-sam.json").unlink()

    def refuse(*given):
        raise RuntimeError("Error(s) in loading:\n\tMissing key(s)")

    monkeypatch.setattr(timm_reference, "timm_logits", refuse)
    result = contact.fails(HUB, "numbers", "timm 1.2.3 fails: RuntimeError Error(s)")
    assert result.comparisons[0]["error"] is None and not result.passed


def test_a_crash_is_the_failure_of_one_name(contact, monkeypatch, tmp_path):
    process = examine.run_process
    monkeypatch.setattr(examine, "run_process", RUN_PROCESS)
    monkeypatch.setattr(examine, "run_module", lambda *given: -signal.SIGSEGV)
    contact.fails(HUB, "format", "code -11", "TinyViT-sam.txt")
    monkeypatch.setattr(examine, "run_module", lambda *given: -9)  # killed
    contact.fails(HUB, "space", "more memory than there is")
    monkeypatch.setattr(examine, "run_process", process)
    assert contact.run()


def test_published_outputs_are_compared(contact, monkeypatch, capsys):
    contact.run(HUB)
    entry = catalogue.Entry(**contact.read()[HUB])
    picture = np.random.default_rng(0).integers(0, 256, (480, 640, 3), "uint8")
    Image.fromarray(picture).save(contact.out / "picture.png")
    content = (contact.out / "picture.png").read_bytes()
    (contact.out / "picture.png").unlink()
    fields = {"size": 8, "crop": 1.0, "mode": "squash"}
    image = kerasvit.Preprocessing(**fields)(picture)[None]
    logits = checks.outputs(TinyViT(entry), image)[0]
    right = published_logits.PublishedOutput(
        "theirs", "", published_logits.COCO, fields, {0: logits[0], 2: logits[2]}
    )
    monkeypatch.setitem(published_logits.PUBLISHED, HUB, right)
    shutil.rmtree(contact.out)
    assert contact.run(HUB)
    assert contact.results[HUB].comparisons[0]["note"] == checks.LOCAL
    monkeypatch.setattr(checks, "is_local", lambda server: False)
    address = contact.hub.address("coco.jpg")
    monkeypatch.setattr(pictures, "COCO_ADDRESS", address)
    shutil.rmtree(contact.out)
    assert contact.run(HUB)  # without the photograph
    row = contact.results[HUB].comparisons[0]
    assert row["note"] == checks.NO_PICTURE and row["error"] is None
    assert "coco.jpg is not available: HTTP Error 404" in capsys.readouterr().err
    contact.hub.files["coco.jpg"] = content[:-50]  # truncated
    assert contact.run(HUB)
    assert contact.results[HUB].comparisons[0]["note"] == checks.NO_PICTURE
    contact.hub.files["coco.jpg"] = content
    assert contact.run(HUB)
    row = contact.results[HUB].comparisons[0]
    assert row["reference"] == "theirs" and row["error"] < 1e-5
    wrong = dataclasses.replace(right, values={0: logits[0] + 0.01})
    monkeypatch.setitem(published_logits.PUBLISHED, HUB, wrong)
    shutil.rmtree(contact.out / "results")
    contact.fails(HUB, "numbers", "The difference from theirs")


def test_published_outputs_belong_to_names_of_the_catalogue():
    entries = {names.name_of(entry): entry for entry in kerasvit.list_weights()}
    for name, published in published_logits.PUBLISHED.items():
        size = kerasvit.Preprocessing(**published.preprocessing).size
        side = entries[name].preprocessing["size"]
        assert size == (side, side) and entries[name].classes == 1000
    mixer = published_logits.PUBLISHED["MixerB16/imagenet"]
    shares = np.full(1000, 1e-9)
    shares[[*mixer.values]] = [*mixer.values.values()]
    shares[0] = 1 - shares[1:].sum()
    assert mixer.error_of(np.log(shares)) < 1e-9


def of_imagenet(contact, folder):
    """Makes the first name one of ImageNet's classes."""
    files = tensors_of(folder, num_classes=1000)
    contact.hub.add("timm/tiny", {**files, "README.md": CARD})
    top1 = {"percent": 0.1, "source": "measured by its authors"}
    contact.change(0, classes=1000, top1=top1)


def test_photographs_are_classified(contact, tmp_path, capsys):
    of_imagenet(contact, tmp_path / "imagenet")
    assert contact.run(HUB)
    photographs = contact.results[HUB].photographs
    assert [*photographs] == ["chelsea", "coffee"]
    entry = catalogue.Entry(**contact.read()[HUB])
    path = pictures.PHOTOGRAPHS / "coffee.png"
    expected = kerasvit.classify(TinyViT(entry), path)
    for found, pair in zip(photographs["coffee"], expected, strict=True):
        assert found == [pair[0], pytest.approx(pair[1], rel=1e-4)]
    first = photographs["chelsea"][0][0].split(",")[0]
    assert f"{first} / {expected[0][0].split(',')[0]}" in capsys.readouterr().out
    fifth = expected[4][0].split(",")[0]
    assert f"{fifth} {100 * expected[4][1]:.1f} %" in (
        (contact.out / "table.md").read_text()
    )


def test_real_weights_must_see_the_cat(contact, tmp_path, monkeypatch):
    of_imagenet(contact, tmp_path / "imagenet")
    monkeypatch.setattr(checks, "is_local", lambda server: False)
    monkeypatch.setattr(checks, "CATS", slice(0, 0))
    contact.fails(HUB, "numbers", "photograph chelsea is a cat")
    monkeypatch.setattr(checks, "CATS", slice(0, 1000))
    assert contact.run(HUB)


def test_a_stopped_run_says_how_to_continue(contact, monkeypatch):
    def stop(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(first_contact, "first_contact", stop)
    with pytest.raises(SystemExit, match="Run the same command again"):
        first_contact.main(
            ["--out", str(contact.out), "--manifest", str(contact.manifest)]
        )


def test_the_photographs_are_those_of_scikit_image():
    shapes = {"chelsea": (300, 451, 3), "coffee": (400, 600, 3)}
    for name, shape in shapes.items():
        path = pictures.PHOTOGRAPHS / f"{name}.png"
        assert np.asarray(Image.open(path)).shape == shape
        assert path.name in path.with_name("LICENCE.txt").read_text()


@pytest.fixture
def validation(tmp_path):
    """Three images of two classes, and their ReaL labels."""
    for number, label in ((1, "tench"), (2, "tench"), (3, "5")):
        path = tmp_path / "val" / label / f"ILSVRC2012_val_{number:08d}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((9, 9, 3), 40 * number, "uint8")).save(path)
    (tmp_path / "real.json").write_text("[[7, 0], [], [6], [1]]")
    return {"images": str(tmp_path / "val"), "real": str(tmp_path / "real.json")}


def test_top1_and_real_accuracy(contact, validation, tmp_path, monkeypatch):
    of_imagenet(contact, tmp_path / "imagenet")
    assert contact.run(HUB) and contact.results[HUB].top1 is None
    predicted = np.array([0, 0, 0])
    measure = accuracy.predictions
    monkeypatch.setattr(accuracy, "predictions", lambda *given: predicted)
    assert contact.run(HUB, images=validation["images"])  # it is measured then
    top1 = contact.results[HUB].top1
    assert top1["percent"] == pytest.approx(200 / 3) and top1["images"] == 3
    assert top1["published"] is None and top1["real_percent"] is None
    assert "| 66.67 |" in (contact.out / "table.md").read_text()
    assert contact.run(HUB, **validation)
    assert contact.results[HUB].top1["real_percent"] == 50.0
    path = Path(validation["images"]) / "5" / "ILSVRC2012_val_00000003.JPEG"
    path.rename(path.with_name(".hidden"))
    predicted = predicted[:2]
    assert contact.run(HUB, **validation)  # another number of images
    assert contact.results[HUB].top1["percent"] == 100.0
    path.with_name(".hidden").rename(path)
    predicted = np.array([0, 0, 0])
    assert contact.run(HUB, **validation)
    assert "| 66.67, ReaL 50.00 |" in (contact.out / "table.md").read_text()
    # All classes are there: the published accuracy is compared.
    monkeypatch.setattr(accuracy, "CLASSES", 2)
    contact.change(0, top1={"percent": 100.0, "source": "measured by timm"})
    (contact.out / "results" / "TinyViT-sam.json").unlink()
    assert not contact.run(HUB, images=validation["images"])
    result = contact.results[HUB]
    assert result.top1["published"] == 100.0 and not result.top1["passed"]
    assert "| 66.67 (100.00) |" in (contact.out / "table.md").read_text()
    assert "Top-1 is 66.67 % on 3 images; 100.00 %" in result.failure["message"]
    monkeypatch.setattr(accuracy, "predictions", measure)
    path.write_bytes(b"no image")
    (contact.out / "results" / "TinyViT-sam.json").unlink()
    with pytest.raises(ValueError, match="00000003.JPEG.* Replace or remove"):
        contact.run(HUB, images=validation["images"])
    result = contact.results[HUB]
    assert result.failure["kind"] == "images" and result.comparisons[0]["error"] == 0


def test_disputed_names_are_measured_with_each_preprocessing(
    contact, validation, tmp_path, monkeypatch
):
    of_imagenet(contact, tmp_path / "imagenet")
    table = {"preprocessing": {"catalogue": {}, "whole": {"mode": "squash"}}}
    monkeypatch.setattr(disputed, "disputed", lambda: {HUB: table})
    monkeypatch.setattr(checks, "disputed", lambda: {HUB: table})
    images = validation["images"]
    assert contact.run(HUB, images=images)
    measured = disputed.read_measured(contact.out)[HUB]
    assert measured["sha256"] == contact.read()[HUB]["sha256"]
    assert {label: each["images"] for label, each in measured["top1"].items()} == {
        "catalogue": 3,
        "whole": 3,
    }
    record = (contact.out / "results" / "TinyViT-sam.json").read_bytes()
    assert contact.run(HUB, images=images)  # nothing is left to measure
    assert (contact.out / "results" / "TinyViT-sam.json").read_bytes() == record
    table["preprocessing"]["small"] = {"crop": 1.0}
    assert contact.run(HUB, images=images)
    assert len(disputed.read_measured(contact.out)[HUB]["top1"]) == 3
    (Path(images) / "5" / "ILSVRC2012_val_00000003.JPEG").unlink()
    assert contact.run(HUB, images=images)  # with another number of images
    measured = disputed.read_measured(contact.out)[HUB]["top1"].values()
    assert [each["images"] for each in measured] == [2, 2, 2]
    (contact.out / disputed.MEASURED).write_text("{")
    with pytest.raises(ValueError, match="disputed.json"):
        contact.run(HUB, images=images)


def test_a_full_disk_deletes_only_downloads_of_the_command(contact, monkeypatch):
    size = len(contact.files["model.safetensors"])
    free = [1_000_000_000]

    def disk_usage(folder):
        made = (*Path(constants.HF_HUB_CACHE).glob("*/blobs/*"),)
        made += (path_in_cache(contact.tables[1]["source"]),)
        used = sum(path.stat().st_size for path in made if path.exists())
        return types.SimpleNamespace(free=free[0] - used)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    assert contact.run()
    assert list(Path(constants.HF_HUB_CACHE).glob("*/snapshots/*"))
    # Room for one file: the Hub's file is deleted before the next download.
    shutil.rmtree(contact.out)
    contact.empty_caches()
    free[0] = 200_000_000 + size + size // 2
    assert contact.run()
    assert not list(Path(constants.HF_HUB_CACHE).glob("*/snapshots/*"))
    assert path_in_cache(contact.tables[1]["source"]).exists()
    # Nothing is deleted if that does not make enough room.
    before = (contact.out / "downloads.json").read_bytes()
    free[0] = 200_000_000 + size // 2
    (contact.out / "results" / "TinyViT-sam.json").unlink()
    contact.fails(HUB, "space", "this command's downloads there have 0 MB")
    assert (contact.out / "downloads.json").read_bytes() == before
    free[0] = 200_000_000 + size + size // 2
    # Existing files are kept, so there is no room for the other file.
    shutil.rmtree(contact.out)
    contact.fails(HUB, "space", "MB free", "Make room")
    assert path_in_cache(contact.tables[1]["source"]).exists()
    free[0] = 1_000_000_000
    assert contact.run()


def test_a_revision_of_the_user_is_not_deleted(contact):
    repository = contact.hub.repositories["timm/tiny"]
    commit = repository.branches["main"]
    other = hf_hub_download(
        "timm/tiny", "config.json", revision=commit, endpoint=contact.hub.endpoint
    )
    assert contact.run(HUB)
    kept = downloads.Downloads(contact.out)
    kept.delete("timm/tiny")
    assert Path(other).exists() and not (contact.out / downloads.NAME).exists()


def test_a_run_that_was_killed_gives_the_same_table(contact, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(*given):
        raise Killed

    assert contact.run()
    expected = stable(contact)
    shutil.rmtree(contact.out)
    contact.empty_caches()
    contact.write()  # without pins
    process = examine.run_process
    for module, name in (
        (examine, "fetch"),  # before the first download
        (examine, "run_process"),
        (contact_results, "write"),
    ):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(module, name, kill)
            contact.run()
        assert not contact.results
    answers = [process]

    def once(*given):
        return answers.pop()(*given) if answers else kill()

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(examine, "run_process", once)
        contact.run()
    assert [*contact.results] == [HUB]
    assert contact.run()
    assert stable(contact) == expected


def stable(contact):
    """Table and results without dates and durations."""
    lines = (contact.out / "table.md").read_text().splitlines()
    table = [line.rsplit("|", 2)[0] for line in lines]
    results = [
        dataclasses.replace(result, seconds=0.0, date="")
        for result in contact.results.values()
    ]
    return table, results, contact.read()


def test_the_order_begins_with_each_format_and_family():
    entries = names.in_order([*kerasvit.list_weights()])
    kinds = [(entry.format, names.family_of(entry)) for entry in entries]
    count = len(set(kinds))
    assert len(set(kinds[:count])) == count
    first = {(entry.format, entry.model) for entry in entries[:count]}
    assert {("timm", "DeiT3S16"), ("timm", "SwinS3T"), ("timm", "SwinT")} <= first
    for part in (entries[:count], entries[count:]):
        sizes = [entry.megabytes for entry in part]
        assert sizes == sorted(sizes)


def test_a_budget_ends_the_list(contact, capsys):
    assert contact.run(budget="2.5MB")
    assert [*contact.results] == [HUB]
    printed = capsys.readouterr().out
    assert "Not reached with this budget: TinyViT/gsam" in printed
    assert "1 passed, 0 failed, 1 not reached." in printed
    assert contact.run(budget="2.5 mb") and [*contact.results] == [HUB]
    assert contact.run(budget="3MB") and len(contact.results) == 2


def test_wrong_arguments_are_one_line(contact, validation, tmp_path):
    wrong = {
        "No name .* matches 'TinyViT/sma'. Similar .*TinyViT/sam": {
            "only": ["TinyViT/sma"]
        },
        "`--budget` must be a number with a unit": {"budget": "much"},
        "reaches no name: the smallest file has 1 MB": {"budget": "0.5MB"},
        "There is no folder": {"images": str(tmp_path / "nothing")},
        "matches no class": {"images": str(tmp_path)},
        "`--real` needs `--images`": {"real": validation["real"]},
        "must contain a list of lists": {
            **validation,
            "real": str(contact.manifest),
        },
        "cannot be read": {**validation, "real": str(tmp_path / "nothing")},
        "holds manifest.json": {"out": tmp_path},
        "cannot be written": {"out": contact.manifest},
    }
    (tmp_path / "model" / "x.png").write_bytes(b"")
    for message, options in wrong.items():
        given = {"out": contact.out, "manifest": contact.manifest, **options}
        with pytest.raises(ValueError, match=message) as caught:
            first_contact.prepare(**given)
        assert "\n" not in str(caught.value)
    assert not contact.hub.requests
    (tmp_path / "val" / "tench" / "other.JPEG").write_bytes(b"")
    with pytest.raises(ValueError, match="their original names.*other.JPEG"):
        first_contact.prepare(out=contact.out, manifest=contact.manifest, **validation)


def test_damaged_and_newer_files_are_errors(contact):
    content = json.loads(contact.manifest.read_text())
    for text, message in {
        json.dumps({**content, "format_version": 2}): "format_version 2; .* update",
        json.dumps({**content, "weights": [{"model": "x"}]}): "is damaged",
        json.dumps(content).replace("TinyViT", "HugeViT"): "of HugeViT, .* update",
        "{": "Restore it: git checkout",
    }.items():
        contact.manifest.write_text(text)
        with pytest.raises(ValueError, match=message):
            contact.run()
    contact.write()
    assert contact.run()
    path = contact.out / "results" / "TinyViT-sam.json"
    right = json.loads(path.read_text())
    for changes, message in (
        ({"format_version": 2}, "TinyViT-sam.json has format_version 2.*update"),
        ({"loaded": False}, "TinyViT-sam.json is damaged"),
        ({"name": "TinyViT/other"}, "TinyViT-sam.json is damaged"),
        ({"comparisons": [{}]}, "TinyViT-sam.json is damaged"),
        ({"extra": 1}, "TinyViT-sam.json is damaged"),
        ({"photographs": {"coffee": [["cup"]]}}, "TinyViT-sam.json is damaged"),
        (None, "TinyViT-sam.json is damaged.* Remove it"),
    ):
        path.write_text(json.dumps({**right, **changes}) if changes else "{")
        with pytest.raises(ValueError, match=message):
            contact.run()
    (contact.out / "downloads.json").write_text('{"downloads": [1]}')
    path.unlink()
    with pytest.raises(ValueError, match="downloads.json is damaged"):
        contact.run()


@pytest.fixture
def command(hub, tmp_path, monkeypatch):
    """Arguments of a command that checks a small ViT in real processes."""
    model = randomised(kerasvit.ViTTi16(image_size=32, num_classes=10))
    folder = kerasvit.save_pretrained(model, tmp_path / "model")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.add("timm/tiny", {**files, "README.md": CARD})
    table = {"model": "ViTTi16", "tag": "sam", "source": "timm/tiny", "format": "timm"}
    table |= {"classes": 10, "megabytes": 23, "license": "mit"}
    lock.write([{**table, "preprocessing": {"size": 32}}], tmp_path / "manifest.json")
    for name, value in {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HUB_CACHE": constants.HF_HUB_CACHE,
        "HF_HUB_DISABLE_XET": "1",
        "TMPDIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    given = ["--out", tmp_path / "out", "--manifest", tmp_path / "manifest.json"]
    return [*map(str, given)]


def test_a_name_is_checked_in_a_separate_process(command, hub, tmp_path):
    first_contact.main(command)
    found = contact_results.read_all(tmp_path / "out")["ViTTi16/sam"]
    assert found.passed and found.server == hub.endpoint


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_a_command_that_is_killed_continues(command, tmp_path):
    def checks_of_it():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if b"weights.contact.checks\0" + bytes(tmp_path) in path.read_bytes():
                    return True
        return False

    run = [sys.executable, "-m", "weights.first_contact", *command]
    with subprocess.Popen(run, cwd=Path(__file__).parents[2]) as process:
        assert wait_until(checks_of_it)
        process.kill()
    assert wait_until(lambda: not checks_of_it())
    assert not contact_results.read_all(tmp_path / "out")
    done = subprocess.run(run, cwd=Path(__file__).parents[2], timeout=300)
    assert done.returncode == 0
    assert contact_results.read_all(tmp_path / "out")["ViTTi16/sam"].passed


def wait_until(condition, seconds=120):
    """Returns whether a condition becomes true in time."""
    for _ in range(10 * seconds):
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_the_exit_code(contact, capsys):
    files = ["--out", str(contact.out), "--manifest", str(contact.manifest)]
    arguments = ["--only", HUB, *files]
    first_contact.main(arguments)
    assert "1 passed" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="Error: No name"):
        first_contact.main(["--only", "nothing", *files])
    shutil.rmtree(contact.out)
    del contact.hub.repositories["timm/tiny"]
    with pytest.raises(SystemExit) as ended:
        first_contact.main(arguments)
    assert ended.value.code == 1
    assert "TinyViT/sam: name: timm/tiny does not exist" in capsys.readouterr().out
