"""The lines of `.github/site/gallery.md` run, and it shows every measurement."""

import dataclasses
import re
from pathlib import Path

import pytest
from PIL import Image

from kerasvit import inspection
from tests.once import on_last_backend
from tests.test_snippets import blocks

SITE = Path(__file__).parents[1] / ".github/site"
PAGE = (SITE / "gallery.md").read_text("utf-8")
BLOCKS = blocks(PAGE)
# Measurements that the page does not draw, and why.
NOT_DRAWN = {
    **dict.fromkeys(["layer_calls", "layers_in", "integer_layers"], "find layers"),
    **dict.fromkeys(["attention_layers", "components_of"], "find layers"),
    **dict.fromkeys(["patch_kernel", "position_vectors"], "in `embeddings`"),
    **dict.fromkeys(["random_direction", "normalized_direction"], "in `landscape`"),
    **dict.fromkeys(["eigenpairs", "hessian_vector_product"], "vectors of weights"),
    "largest_eigenvalue": "that of all weights is in `sharpness_table`",
    "Activations": "the features, of which the page draws measures",
    "as_rgb": "makes the colours of an image",
    "rollout": "`attention_maps` returns it",
    "norm_landscape": "a term that is added to a landscape",
    "LossAt": "what the landscapes are computed by",
}
pytestmark = on_last_backend


@pytest.mark.long
def test_lines_make_the_pictures_below_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, before = {}, set()
    for block in BLOCKS:
        exec(block, names)
        drawn = {path.stem for path in tmp_path.iterdir()}
        below = PAGE[PAGE.index(block) :].split("```")[1]
        assert sorted(drawn - before) == sorted(shown_in(below))
        before = drawn


def shown_in(text):
    return re.findall(r"!\[[^]]+\]\(gallery/(\w+)\.png\)", text)


def test_the_pictures_are_small_and_all_shown():
    files = {path.stem: path.stat().st_size for path in (SITE / "gallery").iterdir()}
    assert sorted(shown_in(PAGE)) == sorted(files)
    assert max(files.values()) <= 60_000
    for name in files:
        with Image.open(SITE / f"gallery/{name}.png") as picture:
            assert 390 <= picture.width <= 900


def test_every_measurement_is_on_the_page():
    public = {
        name
        for name, value in vars(inspection).items()
        if callable(value) and not dataclasses.is_dataclass(value)
    }
    drawn = set(re.findall(r"look\.(\w+)", "".join(BLOCKS)))
    assert drawn <= public
    assert public - drawn == set(NOT_DRAWN)
