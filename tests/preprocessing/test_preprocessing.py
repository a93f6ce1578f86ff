import json
from pathlib import Path

import numpy as np
import pytest

from kerasvit.preprocessing.transform import MODES, ORIGINS, Preprocessing
from tests.once import on_last_backend

pytestmark = on_last_backend


GOLDEN = Path(__file__).parents[1] / "golden" / "preprocess"
IMAGE = np.load(GOLDEN / "image_uint8.npy")  # 61 × 97
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
IMAGENET = dict(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@pytest.fixture(scope="module")
def expected():
    with np.load(GOLDEN / "expected.npz") as arrays:
        return dict(arrays)


def case(name):
    _, size, crop = name.split("_")[:3]
    return Preprocessing(int(size), float(crop[4:].replace("p", ".")))


@pytest.mark.parametrize(
    "name",
    ["timm_32_crop0p9", "timm_32_crop0p875", "timm_32_crop1", "timm_96_crop0p9"],
)
def test_pixels_are_timms_to_the_bit(name, expected):
    pixels = case(name)(IMAGE, normalize=False)
    np.testing.assert_array_equal(pixels, expected[name + "_uint8"])


@pytest.mark.parametrize(
    "name", ["timm_32_crop0p9", "timm_32_crop0p875", "timm_32_crop1"]
)
def test_normalised_values_are_timms_to_the_bit(name, expected):
    np.testing.assert_array_equal(case(name)(IMAGE), expected[name])


def test_imagenets_mean_and_deviation(expected):
    # The recorded array differs from the output of timm's transform by 2.4e-7.
    np.testing.assert_allclose(
        Preprocessing(32, **IMAGENET)(IMAGE),
        expected["timm_32_crop0p9_imagenet_norm"],
        rtol=0,
        atol=5e-7,
    )


@pytest.mark.parametrize(
    "name, size, tolerance",
    [
        ("vit_jax_32", 32, 1e-5),
        ("vit_jax_96", 96, 1e-5),
        ("vit_jax_32_f64", 32, 2e-7),
    ],
)
def test_values_are_googles(name, size, tolerance, expected):
    found = Preprocessing.of_origin("vision_transformer", size)(IMAGE)
    np.testing.assert_allclose(found, expected[name], rtol=0, atol=tolerance)


def test_a_file_equals_its_pixels():
    transform = Preprocessing(32)
    np.testing.assert_array_equal(transform(GOLDEN / "image.png"), transform(IMAGE))


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(8, 8), (5, 9), (40, 3), (120, 130)])
def test_every_image_gets_the_requested_size(mode, size, antialias):
    transform = Preprocessing(size, 0.9, mode, "bilinear", antialias)
    for shape in ((61, 97), (3, 90), (90, 3), (1, 1)):
        image = transform(np.full(shape, 127, "uint8"))
        assert image.shape == (*size, 3)
        assert image.dtype == "float32"


def test_center_keeps_the_middle():
    image = np.zeros((4, 8), "uint8")
    image[:, 2:6] = 200
    pixels = Preprocessing(4, 1.0)(image, normalize=False)
    np.testing.assert_array_equal(pixels, np.full((4, 4, 3), 200))


def test_squash_keeps_the_whole():
    image = np.zeros((4, 8), "uint8")
    image[:, 4:] = 200
    pixels = Preprocessing(4, 1.0, "squash", "box")(image, normalize=False)
    np.testing.assert_array_equal(pixels[0, :, 0], [0, 0, 200, 200])


def test_border_has_the_colour_of_the_mean():
    image = np.full((4, 8), 200, "uint8")
    pixels = Preprocessing(8, 1.0, "border", mean=(0.2, 0.4, 2))(image, normalize=False)
    np.testing.assert_array_equal(
        pixels[:2], np.broadcast_to([51, 102, 255], (2, 8, 3))
    )
    np.testing.assert_array_equal(pixels[2:6], np.full((4, 8, 3), 200))


def test_config_round_trips_through_json():
    transform = Preprocessing((9, 7), 0.8, "squash", "bilinear", False, **IMAGENET)
    config = json.loads(json.dumps(transform.to_config()))
    assert Preprocessing.from_config(config) == transform


@pytest.mark.parametrize("change", [{"colour": "red"}, None])
def test_a_config_with_other_fields_raises(change):
    config = {**Preprocessing(8).to_config(), **change} if change else {"size": 8}
    with pytest.raises(ValueError, match="must be a dict of antialias, crop, kernel"):
        Preprocessing.from_config(config)


def test_with_size_changes_the_size_only():
    transform = Preprocessing(224, 0.875, **IMAGENET)
    assert transform.with_size((384, 192)) == Preprocessing(
        (384, 192), 0.875, **IMAGENET
    )


def test_timm_config_round_trips():
    config = {
        "input_size": [3, 384, 256],
        "interpolation": "bicubic",
        "crop_pct": 0.95,
        "crop_mode": "squash",
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    }
    transform = Preprocessing.from_timm({"tag": "x", **config})
    assert transform == Preprocessing((384, 256), 0.95, "squash", **IMAGENET)
    assert transform.to_timm() == config


def test_gaps_of_a_timm_config_are_filled_as_timm_does():
    assert Preprocessing.from_timm({"crop_pct": None}) == Preprocessing(
        224, 0.875, **IMAGENET
    )


def test_a_timm_config_with_one_channel():
    transform = Preprocessing.from_timm({"input_size": [1, 28, 28], "mean": [0.1]})
    assert transform.channels == 1 and transform.mean == (0.1,)
    with pytest.raises(ValueError, match="must be \\(channels, height, width\\)"):
        Preprocessing.from_timm({"input_size": [28, 28]})


@pytest.mark.parametrize("config", [None, "224", [3, 224, 224]])
def test_a_config_that_is_no_dict_raises(config):
    for read in (Preprocessing.from_timm, Preprocessing.from_transformers):
        with pytest.raises(ValueError, match="must be a dict"):
            read(config)


@pytest.mark.parametrize(
    "config, transform",
    [
        ({}, Preprocessing(224, 1.0, "squash", "bilinear")),
        (
            {"size": {"height": 8, "width": 9}, "image_mean": 3 * [0.5]},
            Preprocessing((8, 9), 1.0, "squash", "bilinear"),
        ),
        (  # facebook/deit-base-patch16-224
            {
                "size": 256,
                "do_center_crop": True,
                "crop_size": {"height": 224, "width": 224},
                "resample": 3,
                "image_mean": IMAGENET["mean"],
                "image_std": IMAGENET["std"],
            },
            Preprocessing(224, 0.875, "squash", **IMAGENET),
        ),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True},
            Preprocessing(224, 0.875, "center", "bilinear"),
        ),
        (  # google/bit-50; from here on, gaps are those of the processor named
            {
                "image_processor_type": "BitImageProcessor",
                "size": {"shortest_edge": 480},
                "crop_size": {"height": 480, "width": 480},
                "image_mean": [0.5] * 3,
                "image_std": [0.5] * 3,
            },
            Preprocessing(480, 1.0),
        ),
        (
            {"feature_extractor_type": "CLIPFeatureExtractor", "size": 256},
            Preprocessing(224, 0.875, mean=CLIP_MEAN, std=CLIP_STD),
        ),
        (
            {"image_processor_type": "DeiTImageProcessorFast", "do_pad": None},
            Preprocessing(224, 0.875, "squash"),
        ),
        (
            {"image_processor_type": "ViTImageProcessorPil", "do_center_crop": None},
            Preprocessing(224, 1.0, "squash", "bilinear"),
        ),
        (
            {"do_normalize": False},
            Preprocessing(224, 1.0, "squash", "bilinear", mean=0, std=1),
        ),
    ],
)
def test_reads_a_transformers_config(config, transform):
    assert Preprocessing.from_transformers(config) == transform


WHOLE = {
    "size": {"height": 24, "width": 24},
    "resample": 3,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


def test_siglips_processor_is_read(caplog):
    siglip = {"image_processor_type": "SiglipImageProcessor"}
    expected = Preprocessing(24, 1.0, "squash")
    assert Preprocessing.from_transformers({**WHOLE, **siglip}) == expected
    assert not caplog.text
    for key in set(WHOLE) - {"size"}:
        gap = {k: v for k, v in WHOLE.items() if k != key}
        assert Preprocessing.from_transformers({**gap, **siglip}) == expected
    short = Preprocessing.from_transformers({**siglip, "size": 24})
    assert short == Preprocessing(24, 1.0, "center")


@pytest.mark.parametrize(
    "name",
    ["EfficientNetImageProcessor", "BeitImageProcessor", "Siglip2ImageProcessor"],
)
@pytest.mark.parametrize("whole", [WHOLE, {}], ids=["whole", "gaps"])
def test_another_processor_of_transformers_raises(name, whole):
    message = f"ViT, DeiT, Bit, CLIP, Siglip. Received: '{name}'.*`preprocessing="
    with pytest.raises(ValueError, match=message):
        Preprocessing.from_transformers({"image_processor_type": name, **whole})


@pytest.mark.parametrize(
    "config, message",
    [
        ({"image_processor_type": "ConvNextImageProcessor"}, "ConvNextImageProcessor"),
        ({"feature_extractor_type": 3}, "Received: 3"),
        ({"crop_pct": 0.875, "size": {"shortest_edge": 224}}, "crop_pct"),
        ({"do_resize": False}, "do_resize"),
        ({"do_pad": True}, "do_pad"),
        ({"rescale_offset": True}, "rescale_offset.*`preprocessing="),
        ({"size": {"longest_edge": 64}}, "`size`"),
        ({"size": {"shortest_edge": 24, "longest_edge": 48}}, "`size`"),
        ({"resample": 9}, "`resample`"),
        ({"image_mean": "grey"}, "`image_mean`"),
        (
            {"size": 30, "do_center_crop": True, "crop_size": {"height": 24}},
            "`crop_size`",
        ),
        ({"size": (30, 30), "do_center_crop": True, "crop_size": (24, 12)}, "share"),
    ],
    ids=str,
)
def test_unsupported_processors_of_transformers_raise(config, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing.from_transformers(config)


@pytest.mark.parametrize(
    "model_type, mode, size",
    [("bit", "center", 224), ("swin", "squash", 224), ("dinov2", "center", 224)],
)
def test_without_a_name_a_processor_is_the_models(model_type, mode, size):
    transform = Preprocessing.from_transformers({}, model_type)
    assert (transform.mode, transform.size) == (mode, (size, size))


def test_transformers_rescaling_is_kept():
    config = {"rescale_factor": 1 / 127.5, "image_mean": 1.0, "image_std": 1.0}
    image = Preprocessing.from_transformers({"size": 8, **config})(IMAGE)
    plain = Preprocessing(8, 1.0, "squash", "bilinear")(IMAGE, normalize=False)
    np.testing.assert_allclose(image, plain / 127.5 - 1, atol=1e-6)


@pytest.mark.parametrize("resized, size", [(438, 384), (249, 224), (248, 224)])
def test_transformers_sizes_round_trip(resized, size):
    config = {"size": resized, "do_center_crop": True, "crop_size": size}
    transform = Preprocessing.from_transformers(config)
    assert transform._resized(50, 60) == (resized, resized)


@pytest.mark.parametrize("origin", ORIGINS)
def test_every_origin_has_a_transform(origin):
    assert Preprocessing.of_origin(origin, 32)(IMAGE).shape == (32, 32, 3)


@pytest.mark.parametrize(
    "field, value",
    [
        ("size", 0),
        ("size", 20000),
        ("size", (8, 8, 3)),
        ("size", 8.5),
        ("size", "224"),
        ("size", None),
        ("crop", 0),
        ("crop", 1.1),
        ("crop", float("nan")),
        ("crop", "0.9"),
        ("mode", "centre"),
        ("mode", ["center"]),
        ("kernel", "cubic"),
        ("antialias", "no"),
        ("mean", (0.5, 0.5)),
        ("mean", float("inf")),
        ("mean", "0.5"),
        ("std", 0),
        ("std", (0.5, 0.5, -0.5)),
        ("std", (0.5, 0.5, None)),
    ],
)
def test_field_out_of_range_is_named(field, value):
    config = {**Preprocessing(8).to_config(), field: value}
    with pytest.raises(ValueError, match=f"`{field}` must be .*Received: "):
        Preprocessing.from_config(config)


def test_without_antialias_there_is_one_kernel():
    with pytest.raises(ValueError, match="take `kernel='bilinear'`"):
        Preprocessing(8, antialias=False)


def test_an_image_too_narrow_for_the_memory_raises():
    with pytest.raises(ValueError, match="1 × 5000 pixels would become 248 × 1240000"):
        Preprocessing(224, 0.9)(np.zeros((1, 5000), "uint8"))
