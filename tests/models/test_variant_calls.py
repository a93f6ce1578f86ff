"""Names of arguments and models, and the repr of variants and models."""

import keras
import pytest

import kerasvit
from tests.models.tiny import TINY, tiny
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

pytestmark = on_last_backend


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"classes": 10}, "write num_classes=10"),
        ({"include_top": False}, "write num_classes=0"),
        ({"include_top": True}, "`include_top`: leave it out"),
        ({"input_shape": (96, 64, 3)}, r"write image_size=\(96, 64\)"),
        ({"input_shape": [3, 96, 64]}, r"write image_size=\(96, 64\)"),
        ({"input_tensor": keras.Input((8, 8, 3))}, r"then call it: model\(tensor\)"),
        ({"pooling": "avg"}, 'write pool="average"; num_classes=0 returns'),
        ({"classifier_activation": None}, r"return logits; put keras.layers.Softmax()"),
        ({"pretrained": True}, r'write weights="sam"; kerasvit.list_weights\(\)'),
        ({"pretrained": False}, "`pretrained`: leave it out"),
        ({"img_size": 96}, "write image_size=96"),
        ({"drop_path_rate": 0.1}, "write stochastic_depth=0.1"),
        ({"in_chans": 1}, "write channels=1"),
        ({"global_pool": "map"}, 'write pool="attention"'),
        ({"pooling": "max"}, "`pooling`: there is no max pooling"),
        ({"pooling": None}, "`pooling`: leave it out"),
        ({"global_pool": ["map"]}, 'write pool="average"'),
        ({"num_labels": 7}, "write num_classes=7"),
        ({"hidden_size": 16}, "write width=16"),
        ({"id2label": {0: "cat"}}, r'`id2label`: label_names=\["cat", "dog"'),
        ({"stochastic_dept": 0.1}, "did you mean stochastic_depth"),
        ({"weigths": "sam"}, "did you mean weights"),
        (
            {"nonsense": 0.1},
            "no argument has a similar name. It takes activation, .*weights",
        ),
        ({"classes": 3, "pooling": "max"}, "`classes`.*num_classes.*`pooling`.*pool="),
    ],
)
def test_arguments_of_other_libraries_give_a_hint(argument, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        kerasvit.ViTS16(**argument)
    kerasvit.save_pretrained(TinyViT(num_classes=3, image_size=8), tmp_path)
    with pytest.raises(ValueError, match=message):
        kerasvit.from_pretrained(tmp_path, **argument)


@pytest.mark.parametrize("name", TINY)
def test_builders_raise_the_errors_of_variants(name):
    with pytest.raises(ValueError, match=f"{name} has no .*num_classes=10"):
        getattr(kerasvit, name)(classes=10)


def test_hints_name_only_arguments_of_the_model():
    with pytest.raises(ValueError, match="pools in one way; num_classes=0"):
        kerasvit.SwinT(pooling="avg")
    with pytest.raises(
        ValueError, match="`init_values`: no argument has a similar name"
    ):
        kerasvit.MixerB16(init_values=0.1)


def test_a_part_of_a_name_is_found_anywhere():
    names = kerasvit.list_models("vit")
    assert {"ViTB16", "R50ViTL32", "ViTTi4CIFAR"} <= set(names)
    assert kerasvit.list_models("VITS1") == kerasvit.list_models("*vits1*")
    assert kerasvit.list_models("vits?") == ["ViTS8"]
    assert kerasvit.list_models("vit[ls]32") == ["ViTL32", "ViTS32"]
    assert kerasvit.list_models("") == kerasvit.list_models()
    assert isinstance(names, list) and repr(names) == repr(list(names))
    with pytest.raises(ValueError, match="must be a name in quotes"):
        kerasvit.list_models(kerasvit.ViTB16)


def test_an_empty_list_of_models_prints_all_names():
    names = kerasvit.list_models("vitb17")
    assert names == [] and not names
    assert "no model matches 'vitb17'. Nearest: ViTB16" in repr(names)
    assert "MixerB16" in str(names)


def test_a_part_of_a_name_lists_weights():
    models = {entry.model for entry in kerasvit.list_weights("mixer")}
    assert models == {entry.model for entry in kerasvit.list_weights("*mixer*")}
    assert {entry.model for entry in kerasvit.list_weights("vitb")} >= {
        *("ViTB16", "R50ViTB16")
    }
    # The full name of a variant selects only this variant.
    assert {entry.model for entry in kerasvit.list_weights("ViTB16")} == {"ViTB16"}
    text = repr(kerasvit.list_weights("vitb17"))
    assert "no public weights of vitb17. Did you mean ViTB16" in text


def test_repr_of_a_model_shows_its_configuration(tmp_path):
    model = TinyViT(image_size=(32, 48), num_classes=7)
    size = f"{model.count_params():,}"
    assert repr(model) == (
        f"<ImageModel vit: TinyViT, 32 × 48 pixels to 7 classes, {size} parameters, "
        "random initial weights>"
    )
    assert str(model) == repr(model)
    model.record["origin"] = "timm"
    assert "weights from a file of timm>" in repr(model)
    model.record["base"] = {"source": "timm/vit_tiny", "license": None}
    assert "weights from timm/vit_tiny>" in repr(model)
    kerasvit.save_pretrained(model, tmp_path)
    half = kerasvit.from_pretrained(tmp_path, num_classes=0, dtype="mixed_bfloat16")
    assert "to 16 features" in repr(half) and "mixed_bfloat16" in repr(half)
    assert "weights from timm/vit_tiny>" in repr(half)
    half.trainable = False
    assert f"{half.count_params():,} not trainable" in repr(half)


def test_a_model_without_a_record_shows_itself_as_keras_does():
    model = tiny("VisionTransformer")
    for record in (None, {}, {"kwargs": {}}, {"kwargs": {"image_size": 3}}):
        model.record = record
        assert repr(model) == "<ImageModel name=vit, built=True>"
