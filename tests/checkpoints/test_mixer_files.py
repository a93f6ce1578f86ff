"""Files of MLP-Mixers: two code bases, three spellings, any resolution."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.checkpoints.sources.google_mixer import GoogleMixer
from tests.contract import check_key_map, to_numpy
from tests.once import on_last_backend

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
GOOGLE = GOLDEN / "mixer" / "checkpoint.npz"
TIMM = GOLDEN / "timm_mixer" / "model.safetensors"
SIZES = {
    GOOGLE: {
        "patch_size": 4,
        "width": 20,
        "depth": 2,
        "tokens_mlp_dim": 12,
        "channels_mlp_dim": 36,
    },
    TIMM: {
        "patch_size": 8,
        "width": 20,
        "depth": 2,
        "tokens_mlp_dim": 10,
        "channels_mlp_dim": 80,
    },
}


def read(path=GOOGLE, *, source=None, **changes):
    row = kerasvit.Variant("Small", kerasvit.MLPMixer, **SIZES[source or path])
    return row(path, **changes)


def expected(case):
    with np.load(GOLDEN / case / "expected.npz") as arrays:
        return np.load(GOLDEN / case / "input.npy"), arrays["logits_f64"]


def before_linen(numbers=(0, 0, 0, 1), ones=True):
    """The tensors of the golden file with the names of Google's oldest files."""
    tokens, channels, first, second = numbers
    parts = {
        "token_mixing": f"token_mixing_phase_{tokens}",
        "channel_mixing": f"channel_mixing_phase_{channels}",
        "LayerNorm_0": f"LayerNorm_{first}",
        "LayerNorm_1": f"LayerNorm_{second}",
    }
    tensors = {}
    with np.load(GOOGLE) as arrays:
        for name, array in arrays.items():
            block, *rest = name.split("/")
            if block.startswith("MixerBlock_"):
                number, part = block.removeprefix("MixerBlock_"), parts[rest[0]]
                what = rest[-1]
                if len(rest) == 3:
                    what += str(int(rest[1][-1]) + 1)
                    array = array[None] if ones else array
                name = f"Mixer/encoderblock_{number}/{part}/{what}"
            name = name.replace("pre_head_layer_norm", "Mixer/encoder_norm")
            tensors[name.replace("stem/", "embedding/")] = array
    return tensors


@on_last_backend
@pytest.mark.parametrize("prefix", ["", "params/", "opt/target/"])
@pytest.mark.parametrize(
    "spelling", [{}, {"ones": False}, {"numbers": (0, 1, 0, 2)}], ids=str
)
def test_the_spelling_before_linen(spelling, prefix, tmp_path):
    tensors = before_linen(**spelling)
    path = tmp_path / "old.npz"
    np.savez(path, **{prefix + name: array for name, array in tensors.items()})
    x, logits = expected("mixer")
    model = read(path, source=GOOGLE)
    np.testing.assert_allclose(to_numpy(model(x)), logits, atol=1e-5)
    assert model.record["kwargs"] == read().record["kwargs"]
    shapes = {name: array.shape for name, array in tensors.items()}
    key_map = GoogleMixer().key_map(model.record["kwargs"], shapes)
    written = check_key_map(key_map, model)
    assert {name: array.shape for name, array in written.items()} == shapes


@on_last_backend
def test_files_determine_their_settings():
    google, timm = read().record, read(TIMM).record
    assert google["origin"] == "vision_transformer"
    assert google["kwargs"]["activation"] == "gelu_tanh"
    assert google["kwargs"]["image_size"] == [16, 16]
    assert google["preprocessing"]["mode"] == "squash"
    assert timm["origin"] == "timm"
    assert timm["kwargs"]["activation"] == "gelu"
    assert timm["kwargs"]["num_classes"] == 6


@on_last_backend
def test_a_bare_timm_file_is_evaluated_as_timms_mixers():
    row = kerasvit.Variant(
        "Small",
        kerasvit.MLPMixer,
        evaluation=kerasvit.MixerB16.evaluation,
        **SIZES[TIMM],
    )
    assert row(TIMM).record["preprocessing"]["crop"] == 0.875


@pytest.mark.parametrize("path", [GOOGLE, TIMM], ids=["google", "timm"])
@pytest.mark.parametrize("size", [(32, 48), 24, 8])
def test_another_size_is_the_model_resized(path, size):
    at_once, later = read(path, image_size=size), kerasvit.resize(read(path), size)
    assert (
        at_once.record["kwargs"]["image_size"] == later.record["kwargs"]["image_size"]
    )
    for one, other in zip(at_once.weights, later.weights, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6)


def rectangle(tmp_path):
    """A timm file of a grid of 2 × 6."""
    tensors = load_file(TIMM)
    for name, array in tensors.items():
        if "mlp_tokens.fc1.weight" in name:
            tensors[name] = np.ascontiguousarray(array[:, :12])
        elif "mlp_tokens.fc2" in name:
            tensors[name] = np.ascontiguousarray(array[:12])
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@on_last_backend
def test_a_grid_that_is_not_square_must_be_stated(tmp_path):
    path = rectangle(tmp_path)
    with pytest.raises(CheckpointError, match="12 patch rows.*source_grid"):
        read(path, source=TIMM)
    with pytest.raises(CheckpointError, match="12. Received: 3 × 3"):
        read(path, source=TIMM, source_grid=(3, 3))
    model = read(path, source=TIMM, source_grid=(2, 6))
    assert model.record["kwargs"]["image_size"] == [16, 48]
    same = read(path, source=TIMM, image_size=(16, 48))
    for one, other in zip(model.weights, same.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    square = read(path, source=TIMM, source_grid=(2, 6), image_size=32)
    kernel = square.get_layer("mixer_block_0").token_mixing.dense_0.kernel
    assert tuple(kernel.shape) == (16, 10)


@on_last_backend
def test_the_kernel_is_the_better_one_for_a_mixer_of_google_too():
    default = read(image_size=24).get_weights()
    for kernel, same in (("bicubic_antialias", True), ("corner_linear", False)):
        other = read(image_size=24, kernel=kernel).get_weights()
        far = max(np.abs(a - b).max() for a, b in zip(default, other, strict=True))
        assert (far == 0) == same


@on_last_backend
def test_another_number_of_classes_and_none():
    x, _ = expected("mixer")
    assert np.abs(to_numpy(read(num_classes=3)(x))).max() == 0
    assert read(num_classes=0).output_shape == (None, 20)


@on_last_backend
def test_the_variant_that_fits_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="patch_size 4, not 16"):
        kerasvit.MixerB16(GOOGLE)
    with pytest.raises(CheckpointError, match="holds a MLPMixer.*not the Vision"):
        kerasvit.ViTB16(TIMM)


@on_last_backend
def test_a_mixer_with_gates_raises(tmp_path):
    tensors = load_file(TIMM)
    for name in [name for name in tensors if name.endswith("fc2.weight")]:
        half = tensors[name].shape[1] // 2
        tensors[name] = np.ascontiguousarray(tensors[name][:, :half])
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="gMixer"):
        read(tmp_path / "model.safetensors", source=TIMM)


@on_last_backend
def test_part_of_a_model(tmp_path):
    for name, spelling in (("old.npz", before_linen()), ("new.npz", np.load(GOOGLE))):
        tensors = {
            key: array
            for key, array in spelling.items()
            if "channel_mixing" not in key and "LayerNorm_1" not in key
        }
        np.savez(tmp_path / name, **tensors)
        with pytest.raises(CheckpointError, match="not a complete model"):
            read(tmp_path / name, source=GOOGLE)


@on_last_backend
def test_a_pooling_of_timm_that_is_not_built(tmp_path):
    shutil.copy(TIMM, tmp_path)
    (tmp_path / "config.json").write_text('{"model_args": {"global_pool": ""}}')
    with pytest.raises(CheckpointError, match="pooling ''"):
        read(tmp_path, source=TIMM)
