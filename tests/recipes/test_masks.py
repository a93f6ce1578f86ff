"""Masks of objects in the report of `inspection.py`."""

from pathlib import Path

import inspection
import numpy as np
import pytest
from command import command_line
from PIL import Image
from reporting import subjects
from scoring import sets

from kerasvit.inspection import attention_maps, segmentation_score
from tests.once import on_last_backend

from .inspected import config, save

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(images):
    """Images of 20 × 24 pixels: images/1/0.jpg, …, images/2/4.jpg."""
    images("1", 5)
    return images("2", 5)


def mask(name, rows=slice(0, 10), size=(20, 24), kind="L"):
    pixels = np.zeros(size, "uint8")
    pixels[rows] = 1  # an index of classes, as in sets of segmentation
    path = Path("masks", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(kind).save(path)


def settings(photos, **options):
    options = {"image_set": str(photos), "masks": "masks", **options}
    return config("model", **options)


@on_last_backend
def test_a_mask_is_cropped_and_resized_as_its_image(photos):
    save("model", image_size=16)
    mask("1/3.png", slice(0, 8))
    [subject] = subjects.load(settings(photos))
    np.testing.assert_array_equal(subject.masks.numbers, [3])
    # 8 of 20 rows are 6.8 of 17, of which the crop keeps the first 16.
    upper = np.repeat(np.arange(16)[:, None] < 7, 16, axis=1)
    np.testing.assert_array_equal(subject.masks.masks, [upper])


@on_last_backend
def test_the_score_of_images_with_masks(photos):
    save("model", image_size=16)
    mask("1/3.png")
    mask("2/0.png", slice(5, 20))
    found = inspection.inspect(settings(photos, only=("segmentation",)))
    numbers = found["measures"]["segmentation"]["models"]["model"]["numbers"]
    [subject] = subjects.load(settings(photos))
    chosen = np.array([3, 5])
    maps = attention_maps(subject.model, subject.x[chosen])
    object_ = subject.masks.masks
    score = segmentation_score(maps.heat, object_).mean()
    heads = segmentation_score(maps.layers["encoder_block_0/attention"].heat, object_)
    assert numbers["images"] == 2
    assert numbers["mean_of_heads"] == pytest.approx(score, rel=1e-5)
    assert numbers["best_head"] == pytest.approx(heads.max(1).mean(), rel=1e-5)
    assert numbers["heads"]["encoder_block_0/attention"] == pytest.approx(
        heads.mean(0).tolist(), rel=1e-5
    )
    assert numbers["whole_image"] == pytest.approx(object_.mean(), rel=1e-5)
    page = Path("inspected/inspection.html").read_text(encoding="utf-8")
    assert 'id="segmentation"' in page and "IoU of each head" in page


@on_last_backend
def test_other_masks_are_measured_again(photos):
    save("model", image_size=16)
    mask("1/3.png")

    def score():
        found = inspection.inspect(settings(photos, only=("segmentation",)))
        return found["measures"]["segmentation"]["models"]["model"]["numbers"]

    first = score()
    mask("1/3.png", slice(10, 20))
    assert score()["shown"] != first["shown"]


@on_last_backend
@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            [{"name": "1/3.png", "size": (20, 20)}],
            "1/3.png has 20 × 20 pixels, and its",
        ),
        ([{"name": "1/9.png"}], "1/9.png has the name of no image"),
        ([{"name": "3.png"}], "3.png has the name of .*1/3.jpg and of .*2/3.jpg"),
        ([{"name": "1/3.png"}, {"name": "1/3.bmp"}], "1/3.bmp and .*3.png are both of"),
        ([{"name": "1/3.jpg"}], "1/3.jpg must be one of .bmp, .gif, .png"),
        ([{"name": "1/3.png", "rows": slice(0)}], "1/3.png is black where the model"),
        ([], "masks has no masks"),
    ],
)
def test_wrong_masks(photos, files, message):
    save("model", image_size=16)
    Path("masks").mkdir()
    for each in files:
        mask(**each)
    with pytest.raises(command_line.BadInput, match=f"`masks`: .*{message}"):
        inspection.inspect(settings(photos))


@on_last_backend
def test_images_without_a_mask_among_those_that_are_drawn(photos):
    save("model", image_size=16)
    left_out = {*range(10)} - {*sets.find(str(photos)).sample(8).numbers}
    for number in left_out:
        mask(f"{1 + number // 5}/{number % 5}.png")
    with pytest.raises(command_line.BadInput, match="none of the 8 images has a mask"):
        inspection.inspect(settings(photos, images=8))
