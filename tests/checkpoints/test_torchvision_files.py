"""torchvision's ViTs and Swins: state dicts as it writes them, and own classifiers."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.checkpoints.config import Config, Shapes
from kerasvit.checkpoints.sources import source_of
from kerasvit.pretrained import fitting_variant
from tests.contract import to_numpy
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
VIT = {
    "image_size": 16, "patch_size": 4, "num_layers": 2, "num_heads": 2,
    "hidden_dim": 16, "mlp_dim": 24, "num_classes": 5,
}  # fmt: skip
SWIN = {
    "patch_size": [2, 2], "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4],
    "window_size": [4, 4], "num_classes": 5,
}  # fmt: skip
HEADS = {"VisionTransformer": ("heads", 16), "SwinTransformer": ("head", 16)}
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.fixture(scope="module")
def torchvision(timm):
    return sys.modules["torchvision"]  # which timm has imported


def small(torchvision, builder, **changes):
    """A small model of random weights, in evaluation."""
    import torch

    torch.manual_seed(0)
    own = VIT if builder == "VisionTransformer" else SWIN
    model = getattr(torchvision.models, builder)(**{**own, **changes}).eval()
    return filled(model)


def filled(model):
    import torch

    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def saved(model, path):
    import torch

    torch.save(model.state_dict(), path)
    return path


def options(builder):
    # No file states the number of heads of a ViT.
    return {"num_heads": 2} if builder == "VisionTransformer" else {}


def check_logits(model, reference):
    import torch

    images = np.random.default_rng(0).normal(size=(2, *model.input_shape[1:]))
    images = images.astype("float32")
    with torch.no_grad():
        right = reference(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    np.testing.assert_allclose(
        to_numpy(model(images)), right, rtol=0, atol=1e-5 * np.abs(right).max()
    )


@pytest.mark.parametrize("builder", HEADS)
def test_a_state_dict_is_read_saved_and_read_by_timm(
    torchvision, timm, builder, tmp_path
):
    reference = small(torchvision, builder)
    path = saved(reference, tmp_path / "x.pth")
    model = kerasvit.from_pretrained(path, **options(builder))
    assert model.record["origin"] == "torchvision"
    check_logits(model, reference)
    kerasvit.save_pretrained(model, tmp_path / "folder")
    check_logits(kerasvit.from_pretrained(tmp_path / "folder"), reference)
    name = f"local-dir:{tmp_path / 'folder'}"
    check_logits(model, timm.create_model(name, pretrained=True).eval())


def test_tanh_before_the_head_and_other_sizes(torchvision, tmp_path):
    reference = small(torchvision, "VisionTransformer", representation_size=12)
    path = saved(reference, tmp_path / "x.pth")
    model = kerasvit.from_pretrained(path, num_heads=2)
    check_logits(model, reference)
    other = kerasvit.from_pretrained(path, num_heads=2, image_size=(24, 16))
    assert other.output_shape == (None, 5)


@pytest.mark.parametrize("builder", HEADS)
@pytest.mark.parametrize("layers", ["one", "after dropout", "two"])
def test_classifiers_of_own_trainings(torchvision, builder, layers, tmp_path):
    from torch import nn

    reference = small(torchvision, builder)
    name, width = HEADS[builder]
    last = nn.Linear(width, 3)
    heads = {
        "one": last,
        "after dropout": nn.Sequential(nn.Dropout(0.5), last),
        "two": nn.Sequential(nn.Linear(width, width), nn.ReLU(), last),
    }
    setattr(reference, name, heads[layers])
    filled(reference).eval()
    path = saved(reference, tmp_path / "x.pth")
    if layers != "two":
        model = kerasvit.from_pretrained(path, **options(builder))
        check_logits(model, reference)
    else:
        with pytest.raises(CheckpointError, match="classifier of 3 classes has 2 lay"):
            kerasvit.from_pretrained(path, **options(builder))
    setattr(reference, name, nn.Identity())
    model = kerasvit.from_pretrained(path, num_classes=0, **options(builder))
    check_logits(model, reference)


def test_names_of_the_first_versions(tmp_path):
    tensors = load_file(GOLDEN / "torchvision_vit" / "model.safetensors")
    old = {".mlp.0.": ".mlp.linear_1.", ".mlp.3.": ".mlp.linear_2."}
    for new, before in old.items():
        tensors = {k.replace(new, before): v for k, v in tensors.items()}
    assert any("linear_2" in name for name in tensors)
    save_file(tensors, tmp_path / "x.safetensors")
    models = [
        kerasvit.from_pretrained(path, num_heads=3)
        for path in (tmp_path / "x.safetensors", GOLDEN / "torchvision_vit")
    ]
    for ours, right in zip(*(model.weights for model in models), strict=True):
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(right))


def shapes_of(torchvision, name, **arguments):
    import torch

    with torch.device("meta"):
        model = getattr(torchvision.models, name)(**arguments)
    return {key: tuple(value.shape) for key, value in model.state_dict().items()}


def described(shapes):
    source = source_of(shapes, Config())
    kept = {k: v for k, v in shapes.items() if not source.dropped(k, set(shapes))}
    return source.describe(Shapes(kept), Config())


PUBLISHED = {
    "vit_b_16": ("ViTB16", 256, "bilinear", 224),
    "vit_b_32": ("ViTB32", 256, "bilinear", 224),
    "vit_l_16": ("ViTL16", 242, "bilinear", 224),
    "vit_l_32": ("ViTL32", 256, "bilinear", 224),
    "vit_h_14": ("ViTH14", 224, "bicubic", 224),
    "swin_t": ("SwinT", 232, "bicubic", 224),
    "swin_s": ("SwinS", 246, "bicubic", 224),
    "swin_b": ("SwinB", 238, "bicubic", 224),
    "vit_b_16_swag": ("ViTB16", 384, "bicubic", 384),
    "vit_l_16_swag": ("ViTL16", 512, "bicubic", 512),
    "vit_h_14_swag": ("ViTH14", 518, "bicubic", 518),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_are_variants_with_torchvisions_transform(torchvision, name):
    variant, resized, kernel, size = PUBLISHED[name]
    swag = {"image_size": size} if "swag" in name else {}
    found = described(shapes_of(torchvision, name.removesuffix("_swag"), **swag))
    assert fitting_variant(found).name == variant
    assert found.label_names == "imagenet1k"
    weights = torchvision.models.get_model_weights(name.removesuffix("_swag"))
    tag = "IMAGENET1K_SWAG_E2E_V1" if swag else "IMAGENET1K_V1"
    tag = "IMAGENET1K_SWAG_LINEAR_V1" if name == "vit_h_14" else tag
    right = weights[tag].transforms()
    transform = kerasvit.Preprocessing.of_origin("torchvision", size, **found.transform)
    assert right.resize_size == [resized] and right.crop_size == [size]
    assert transform._resized(1000, 1000) == (resized, resized)
    assert transform.kernel == right.interpolation.value == kernel
    assert (tuple(right.mean), tuple(right.std)) == (transform.mean, transform.std)


def test_what_is_assumed_is_said(torchvision, tmp_path, caplog):
    path = saved(small(torchvision, "VisionTransformer"), tmp_path / "x.pth")
    with caplog.at_level(logging.WARNING, "kerasvit"):
        model = kerasvit.from_pretrained(path, num_heads=2)
    assert "The default of torchvision is used" in caplog.text
    transform = model.record["preprocessing"]
    assert (tuple(transform["mean"]), tuple(transform["std"])) == IMAGENET
    with pytest.raises(CheckpointError, match="does not state num_heads"):
        kerasvit.from_pretrained(path)


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("swin_v2_t", {}, "kerasvit has no Swin V2"),
        ("SwinTransformer", {**SWIN, "window_size": [2, 4]}, "no squares of one size"),
    ],
)
def test_models_that_are_not_built(torchvision, name, arguments, what):
    with pytest.raises(CheckpointError, match=what):
        described(shapes_of(torchvision, name, **arguments))


def test_a_stem_of_convolutions_is_not_built(torchvision):
    from torchvision.models.vision_transformer import ConvStemConfig

    stem = [ConvStemConfig(8, 3, 2), ConvStemConfig(8, 3, 2)]
    shapes = shapes_of(torchvision, "VisionTransformer", **VIT, conv_stem_configs=stem)
    with pytest.raises(CheckpointError, match="conv_stem_configs"):
        described(shapes)


def test_a_wrong_number_of_names_and_of_classes(torchvision, tmp_path, caplog):
    path = saved(small(torchvision, "SwinTransformer"), tmp_path / "x.pth")
    with pytest.raises(ValueError, match="label_names"):
        kerasvit.from_pretrained(path, label_names=["a", "b"])
    model = kerasvit.from_pretrained(path, num_classes=2)
    assert "a fresh head of zeros for 2 classes" in caplog.text
    assert not to_numpy(model(np.ones((1, *model.input_shape[1:])))).any()


def test_a_missing_tensor_is_named(tmp_path):
    tensors = load_file(GOLDEN / "torchvision_swin" / "model.safetensors")
    del tensors["features.2.norm.bias"]
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match=r"features\.2\.norm\.bias"):
        kerasvit.from_pretrained(tmp_path / "x.safetensors")
