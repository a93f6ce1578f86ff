"""The names of public weights."""

import dataclasses
import json
import tomllib

import pytest
from huggingface_hub import constants

import kerasvit
from kerasvit import Preprocessing
from kerasvit.checkpoints import CODE_BASES, SOURCES
from kerasvit.hub import errors
from kerasvit.hub.download import fetch
from kerasvit.hub.manifest import MANIFEST, Entry, Weights, entries, published
from kerasvit.loading.transforms import transform_of
from weights import lock
from weights.originals import first

from . import accidents, some_weights


def test_the_manifest_equals_the_locked_sources():
    written = json.loads(MANIFEST.read_text())
    content = {"recipes": lock.recipes(), "weights": lock.lock()}
    assert written == {"format_version": 1, **content}


LICENCES = ("apache-2.0", "mit", "cc-by-nc-4.0", "apple-ascl", "dinov3-license")
LICENCES += ("fair-noncommercial-research-license", "bsd-3-clause")


def test_every_entry_is_of_a_variant_and_its_transform_can_be_made():
    for entry in entries():
        assert entry.model in kerasvit.list_models()
        assert entry.format in CODE_BASES
        assert isinstance(transform_of(entry), Preprocessing)
        assert entry.on_hub or entry.source.startswith("https://")
        assert entry.filename.endswith((".safetensors", ".npz"))
        assert entry.tag.islower() and entry.license in LICENCES


# Files that hold more than the variant, by the reason.
LARGER = {
    ("ViTS16", "sam"): "the optimizer's state",
    ("ViTB8", "imagenet21k"): "pre-logits",
    ("R26ViTB32", "imagenet21k"): "pre-logits",
    ("R50ViTL32", "imagenet21k"): "pre-logits",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [*entries(), some_weights.OURS],
    ids=lambda e: f"{e.model} {e.tag} of {e.source}",
)
def test_an_entry_is_of_a_file_that_its_variant_can_be_in(entry):
    row = getattr(kerasvit, entry.model)
    format = first(entry).format  # kerasvit's format can hold any variant
    readers = [source for source in SOURCES if source.code_base == format]
    assert any(row.builder.__name__ == source.builder for source in readers)
    size = entry.preprocessing["size"]
    numbers = {**row.defaults, **row.numbers}
    stride = numbers.get("patch_size", 32)
    stages = len(numbers.get("resnet_depths") or numbers.get("depths") or ())
    if "resnet_depths" in numbers:
        stride *= 4 * 2 ** max(stages - 1, 0)
    elif stages and "patch_size" in numbers:
        stride *= 2 ** (stages - 1)
    any_size = entry.model.startswith(("ResNeXt", "PiT"))
    cut = (entry.model, size) == ("ViTSo400M14", 384)
    assert size % stride == 0 or any_size or cut
    # The size of the file is that of the variant with a head of so many classes.
    features = numbers.get("width") or int(256 * numbers["width_factor"])
    features *= 2 ** (stages - 1) if "depths" in numbers else 1
    heads = 1 + ("Distilled" in entry.model)
    weights = row.parameters + heads * (features + 1) * (entry.classes - 1000)
    # Attention pooling with its MLP.
    if entry.tag.startswith("siglip") and "gap" not in entry.tag:
        mlp_dim = numbers["mlp_dim"]
        weights += 4 * features * (features + 1) + 2 * features * mlp_dim
    least, most = (0.97, 1.03) if (entry.model, entry.tag) not in LARGER else (1, 3.1)
    assert least * 4e-6 * weights - 1 < entry.megabytes < most * 4e-6 * weights + 1


def test_names():
    assert {"sam", "gsam", "augreg_in21k_ft_in1k"} <= published("ViTB16").keys()
    assert published("ViTB16")["sam"].source == "timm/vit_base_patch16_224.sam_in1k"
    assert published("AlterNet50") == {}
    assert "weights: distilled_in1k" in repr(kerasvit.BiTR50x1)
    assert kerasvit.ViTB16.preprocessing("sam") == Preprocessing(224, crop=0.9)


def test_experimental_and_zeroed_weights_are_marked():
    reasons = {e.model: e.experimental or "" for e in entries() if e.tag == "gsam"}
    assert len(reasons) == 9 and all(reasons.values())
    for model, reason in reasons.items():  # only ViTs were measured
        assert ("measured far less" in reason) == model.startswith("ViT")
    zeroed = {entry.model for entry in entries() if entry.head}
    assert "ViTB8" in zeroed and not zeroed & {"R26ViTB32", "R50ViTL32"}


def test_the_list_is_a_table():
    weights = kerasvit.list_weights("vitb16")
    text = repr(weights)
    assert len(weights) == len(published("ViTB16")) and {e.model for e in weights} == {
        "ViTB16"
    }
    for part in ("sam ", "80.25", "apache-2.0", "gsam (experimental)", "licence"):
        assert part in text
    assert "77.36: leondgarse" in repr(kerasvit.list_weights("MixerB16"))
    assert "no public weights of AlterNet*" in repr(kerasvit.list_weights("AlterNet*"))
    assert "measured by timm" in text
    assert len(repr(weights[:2]).splitlines()) == 4 and weights[0].model == "ViTB16"
    unmeasured = [e for e in entries() if not e.top1]
    assert "measured by timm" not in repr(Weights(unmeasured))


def test_a_wrong_name_lists_the_right_ones():
    with pytest.raises(
        ValueError, match="weights 'same'. Did you mean 'sam'.*\"gsam\""
    ):
        kerasvit.ViTB16("same")
    with pytest.raises(
        ValueError, match="AlterNet50 has no public weights. Train it: python recip"
    ):
        kerasvit.AlterNet50("imagenet")
    with pytest.raises(ValueError, match="Did you mean 'sam'"):
        kerasvit.ViTB16("SAM")
    with pytest.raises(ValueError, match="Did you mean 'ViTB16/sam'"):
        kerasvit.from_pretrained("vitb16/sam")
    with pytest.raises(ValueError, match="must be a name in quotes"):
        kerasvit.list_weights(kerasvit.ViTB16)


@pytest.mark.parametrize(
    ("model", "tag", "calls"),
    [
        ("ViTB16", "dinov3", ["DINOv3B16"]),
        ("ViTL16", "dinov3_sat493m", ["DINOv3L16"]),
        ("ViTL14", "eva02", ["EVA02L14", "EVA02CLIPL14"]),
        ("ViTB16", "pe", ["PECoreB16", "PESpatialB16"]),
        ("ViTS16", "rope", ["RoPEAxialViTS16", "RoPEMixedViTS16"]),
        ("ViTH14", "DINOv3", ["DINOv3Ti16", "DINOv3S16", "DINOv37B16"]),
    ],
)
def test_a_method_with_models_of_its_own_names_them(model, tag, calls):
    with pytest.raises(ValueError, match=f"{model} has no weights '{tag}': ") as info:
        getattr(kerasvit, model)(tag)
    for name in calls:
        assert f'kerasvit.{name}("' in str(info.value)
    with pytest.raises(ValueError, match=f"kerasvit.{calls[0]}"):
        kerasvit.from_pretrained(f"{model}/{tag}")


def test_features_of_a_dinov3_are_the_class_token():
    for entry in entries():
        token = entry.arguments == {"pool": "token"}
        of_dinov3 = "_dinov3" in entry.source
        assert token == of_dinov3, entry


def test_licences_differ_between_the_weights_of_a_variant():
    licences = {tag: each.license for tag, each in published("DINOv3B16").items()}
    assert licences["lvd1689m"] == "dinov3-license"
    assert licences["eupe"] == "fair-noncommercial-research-license"
    assert licences["lingbot"] == "apache-2.0"
    assert published("PECoreB16")["fb"].license == "apache-2.0"
    assert "dinov3-license" in repr(kerasvit.list_weights("DINOv3B16"))


@pytest.mark.parametrize("wrong", ["augreg.in21k", "sam.v2", "vit_b16"])
def test_a_missing_file_gives_the_hints_of_a_wrong_tag(wrong):
    with pytest.raises(ValueError, match=f"no weights '{wrong}'.* Published: .*gsam"):
        kerasvit.ViTB16(wrong)


def test_a_folder_with_the_name_of_weights_gives_a_hint(tmp_path, monkeypatch):
    (tmp_path / "imagenet").mkdir()
    monkeypatch.chdir(tmp_path)
    message = "The folder imagenet has no model.safetensors of save_pretrained. "
    with pytest.raises(ValueError, match=message + "ViTB16 has no weights 'imagenet'"):
        kerasvit.ViTB16("imagenet")
    with pytest.raises(ValueError, match=message + "Build public weights"):
        kerasvit.from_pretrained("imagenet")
    with pytest.raises(ValueError, match="no folder 'pets': give the path of one that"):
        kerasvit.from_pretrained("pets")
    with pytest.raises(ValueError, match="no model.safetensors. Give a folder"):
        kerasvit.ViTB16("./imagenet")


def test_a_repository_name_suggests_the_tag():
    name, call = "vit_base_patch16_224.sam_in1k", r'kerasvit.ViTB16\("sam"\)'
    for model in (kerasvit.ViTB16, kerasvit.ViTS16):
        with pytest.raises(ValueError, match=f"Did you mean {call}"):
            model(name)
    with pytest.raises(ValueError, match=f"as in {call}"):
        kerasvit.from_pretrained(name)


def test_an_invalid_folder_gives_a_hint():
    with pytest.raises(ValueError, match=r'kerasvit.ViTB16\("sam"\)'):
        kerasvit.from_pretrained("sam")
    with pytest.raises(ValueError, match='write "hf://timm/vit.sam_in1k"'):
        kerasvit.from_pretrained("timm/vit.sam_in1k")


def test_lock_keeps_pins_and_prints_errors(tmp_path):
    one = {"model": "ViTB16", "tag": "sam", "source": "a/b", "format": "timm"}
    one |= {
        "classes": 2,
        "megabytes": 1,
        "license": "mit",
        "preprocessing": {"size": 1},
    }

    def toml(*entries):
        path = tmp_path / "sources.toml"
        lines = []
        for entry in entries:
            lines += ["[[weights]]", *(f"{k} = {inline(v)}" for k, v in entry.items())]
        path.write_text("\n".join(lines))
        assert tomllib.loads(path.read_text())["weights"] == list(entries)
        return path

    def inline(value):
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{k} = {v}" for k, v in value.items()) + " }"
        return json.dumps(value)

    manifest = tmp_path / "manifest.json"
    lock.write([{**one, "sha256": "f" * 64}], manifest)
    assert lock.lock(toml(one), manifest)[0]["sha256"] == "f" * 64
    moved = {**one, "source": "a/c"}
    assert "sha256" not in lock.lock(toml(moved), manifest)[0]
    (locked,) = lock.lock(toml({**one, "revision": "a", "sha256": "e" * 64}), manifest)
    assert (locked["revision"], locked["sha256"]) == ("a", "e" * 64)  # of another file
    lock.write([{**one, "revision": "b", "size": 3, "sha256": "e" * 64}], manifest)
    (locked,) = lock.lock(toml({**one, "revision": "a", "sha256": "e" * 64}), manifest)
    assert locked["revision"] == "a" and "size" not in locked  # published again
    with pytest.raises(ValueError, match="twice"):
        lock.lock(toml(one, one), manifest)
    with pytest.raises(ValueError, match="'sam'.*sise"):
        lock.lock(toml({**one, "sise": 3}), manifest)


def test_pinning(hub, tmp_path):
    manifest = tmp_path / "manifest.json"
    files = {"model.safetensors": b"tensors", "config.json": b"{}"}
    commit = hub.add("timm/vit", files).branches["main"]
    hub.files["x.npz"] = b"arrays"
    rest = {"format": "timm", "classes": 2, "megabytes": 1, "license": "mit"}
    rest["preprocessing"] = {"size": 1}
    found = [
        {"model": "A", "tag": "a", "source": "timm/vit", **rest},
        {"model": "B", "tag": "b", "source": hub.address("x.npz"), **rest},
        {"model": "C", "tag": "c", "source": "timm/gone", **rest},
    ]
    problems = lock.pin_all(found, again=False, manifest=manifest)
    assert len(problems) == 1 and problems[0].startswith("C/c: ")
    first, second, third = json.loads(manifest.read_text())["weights"]
    assert (first["revision"], first["size"]) == (commit, 7)
    assert second["size"] == 6 and len(second["sha256"]) == 64
    assert "sha256" not in third
    before = len(hub.requests)
    lock.pin_all(found[:2], again=False, manifest=manifest)
    assert len(hub.requests) == before  # pins are kept
    hub.repositories["timm/vit"].commit({**files, "model.safetensors": b"others"})
    (changed,) = lock.pin_all(found[:1], again=True, manifest=manifest)
    assert "has changed" in changed and found[0]["revision"] == commit


def test_an_internal_error_is_not_a_problem_of_an_entry(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "pin", lambda *_: None.size)
    found = [dataclasses.asdict(some_weights.entry("me/vit"))]
    with pytest.raises(AttributeError):
        lock.pin_all(found, again=False, manifest=tmp_path / "manifest.json")


def test_pinning_retries_and_needs_no_token(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "stale")
    commit = hub.add("me/vit", some_weights.FILES).branches["main"]
    hub.faults = 2 * [accidents.status(503, ("api",))]
    assert lock.pin(some_weights.entry("me/vit"))["revision"] == commit
    hub.faults = []
    before = len(hub.requests)
    with pytest.raises(OSError, match="404|401"):
        lock.pin(some_weights.entry("me/gone"))
    assert len(hub.requests) == before + 1  # not retried
    pauses = []
    monkeypatch.setattr(errors.time, "sleep", pauses.append)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="offline"):
        lock.pin(some_weights.entry("me/vit"))
    assert not pauses  # no pause without a request


def at_addresses(hub, *models):
    """Entries, each of a file of its own."""
    rest = {"format": "vision_transformer", "classes": 2, "megabytes": 1}
    rest |= {"license": "mit", "preprocessing": {"size": 1}, "tag": "a"}
    for model in models:
        hub.files[f"{model}.npz"] = model.encode() * 1000
    return [{"model": m, "source": hub.address(f"{m}.npz"), **rest} for m in models]


@pytest.mark.parametrize("accident", [accidents.ended, accidents.portal])
def test_failed_downloads_are_not_pinned(hub, tmp_path, accident):
    (entry,) = found = at_addresses(hub, "A")
    manifest = tmp_path / "manifest.json"
    hub.faults = accidents.always(accident)
    (problem,) = lock.pin_all(found, again=False, manifest=manifest)
    assert problem.startswith("A/a: http") and found == [entry]
    assert not manifest.exists()
    hub.faults = [accident]  # a single fault is retried
    assert lock.pin_all(found, again=False, manifest=manifest) == []
    assert found[0]["size"] == 1000
    before = hub.count("GET")
    assert fetch(Entry(**found[0])).read_bytes() == hub.files["A.npz"]
    assert hub.count("GET") == before  # the pinned files are cached


def test_again_finds_changed_files(hub, tmp_path):
    found, manifest = at_addresses(hub, "A"), tmp_path / "manifest.json"
    lock.pin_all(found, again=False, manifest=manifest)
    old = dict(found[0])
    assert lock.pin_all(found, again=True, manifest=manifest) == []
    assert hub.count("GET") == 2 and found == [old]
    hub.files["A.npz"] = b"others"
    (changed,) = lock.pin_all(found, again=True, manifest=manifest)
    assert "it was replaced" in changed and "old pin is kept" in changed
    assert found == [old] == json.loads(manifest.read_text())["weights"]


def test_only_the_given_names_are_pinned(hub, tmp_path, monkeypatch, capsys):
    found, manifest = at_addresses(hub, "A", "B", "C"), tmp_path / "manifest.json"
    assert lock.pin_all(found, False, ["B/a"], manifest) == []
    assert ["sha256" in entry for entry in found] == [False, True, False]
    assert {path for _, path in hub.requests} == {"/files/B.npz"}
    monkeypatch.setattr(lock, "write", None)  # nothing is written before an error
    with pytest.raises(SystemExit, match="'ViTB16/same'. Similar .*: ViTB16/sam"):
        lock.main(["--pin", "ViTB16/same"])
    with pytest.raises(SystemExit):
        lock.main(["ViTB16/sam"])
    assert "names and --again need --pin" in capsys.readouterr().err
