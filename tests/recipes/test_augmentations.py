"""Augmentations by name, and as options change them."""

import finetune
import numpy as np
import pretrain
import pytest
from command.command_line import check
from training import settings, training_data

from kerasvit.data import AUGMENTATIONS
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is tf.data
NAMES = settings.AUGMENT.__args__


def numbers(chosen):
    """Area, magnitude, erasing, mixup, cutmix and repeats."""
    names = ("area", "magnitude", "erasing", "mixup", "cutmix", "repeats")
    return tuple(getattr(chosen, name) for name in names)


def of(**options):
    return training_data.augmentation(pretrain.Config(**options))


def test_the_options_name_all_augmentations():
    assert set(NAMES) == set(AUGMENTATIONS)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "augreg_none": (0.05, None, 0, 0, 0, 1),
        "augreg_light1": (0.05, 0, 0, 0, 0, 1),
        "augreg_light2": (0.05, 10, 0, 0.2, 0, 1),
        "augreg_medium1": (0.05, 15, 0, 0.2, 0, 1),
        "augreg_medium2": (0.05, 15, 0, 0.5, 0, 1),
        "augreg_strong1": (0.05, 20, 0, 0.5, 0, 1),
        "augreg_strong2": (0.05, 20, 0, 0.8, 0, 1),
        "photo_mixed": (0.05, 15, 0, 0.5, 0, 1),
        "cifar_mixed": (1, 9, 0, 1.0, 0.8, 1),
        "deit": (0.08, 9, 0.25, 0.8, 1.0, 3),
        "swin": (0.08, 9, 0.25, 0.8, 1.0, 1),
        "imagenet_vit": (0.08, 9, 0.25, 1.0, 0.8, 1),
        "resize_crop": (1, None, 0, 0, 0, 1),
    }.items(),
)
def test_numbers_are_those_of_the_sources(name, expected):
    assert numbers(of(augment=name)) == expected


def test_options_change_the_named_augmentation():
    changed = of(augment="deit", rand_augment=5.0, mixup=0.0, erasing=0.5, repeats=1)
    assert numbers(changed) == (0.08, 5.0, 0.5, 0, 1.0, 1)
    assert len(changed.mixing) == 1
    assert of(augment="deit", rand_augment=0.0).magnitude is None
    assert numbers(of(augment="none", cutmix=1.0)) == (1, None, 0, 0, 1.0, 1)


@pytest.mark.slow
def test_magnitude_zero_is_not_without_effect():
    light, none = (of(augment=f"augreg_{name}") for name in ("light1", "none"))
    assert len(light.changes) == len(none.changes) + 2
    ramp = np.tile(np.linspace(0, 255, 16, dtype="float32")[:, None, None], (1, 16, 3))
    solarized = light.changes[-1](ramp, np.float32([0.85, 0.5, 0.5]))
    np.testing.assert_allclose(solarized, 255 - ramp)


def test_the_size_before_a_crop():
    chosen = of(augment="resize_crop")
    assert chosen.larger((224, 224)) == (256, 256)
    assert chosen.larger((112, 224)) == (128, 256)
    for resize, size in ((160, 128), (512, 480)):
        assert of(augment="resize_crop", resize=resize).larger((size, size)) == (
            resize,
            resize,
        )
    assert of(augment="deit").larger((224, 224)) is None
    with pytest.raises(ValueError, match="`resize` must be at least 128 pixels"):
        of(augment="resize_crop", resize=100).larger((128, 128))


@pytest.mark.parametrize("script", [finetune, pretrain])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rand_augment": -1.0}, "`rand_augment` must be at least 0"),
        ({"mixup": -0.1}, "`mixup` must be at least 0"),
        ({"cutmix": float("inf")}, "`cutmix` must be at least 0"),
        ({"erasing": 1.5}, "`erasing` must be at least 0 and at most 1"),
        ({"repeats": 0}, "`repeats` must be at least 1"),
        ({"resize": 160, "augment": "photo"}, "give --augment resize_crop with"),
        ({"label_smoothing": 1.0}, "`label_smoothing` must be at least 0"),
    ],
)
def test_wrong_options_are_found_before_the_imports(script, changes, message):
    with pytest.raises(ValueError, match=message):
        check(script.Config(**changes))
