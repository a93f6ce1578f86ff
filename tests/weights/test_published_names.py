"""Every entry of the catalogue builds its model and maps the names of its file.

Each file is written with zeros, which take no space, and loaded by the functions that
load real files. Only the values are missing: a model is an outline, and a tensor is
read as zeros of its shape.
"""

import pytest

import kerasvit
from kerasvit.hub.manifest import entries
from kerasvit.loading import find
from tests.weights import published_files
from tests.weights.outlines import outlines

SOON = ("ViTTi16/augreg_in21k", "ViTB32/imagenet21k_ft_in1k_384", "MixerS32/gsam")
SOON += ("BiTR50x1/distilled_in1k_160", "ViTB16/clip_openai", "ViTS14/dinov2_reg4")
SOON += ("ViTL14/eva", "DINOv3S16/lvd1689m_qkvb", "RoPEMixedViTS16/ape_naver_in1k")
SOON += ("PECoreTi16/fb", "EVA02Ti14/mim_in22k_ft_in1k", "ViTM16/sbb_in1k_reg1")


@pytest.fixture
def without_values(alike):
    with outlines():
        yield


def cases():
    for entry in entries():
        for layout in range(len(published_files.layouts(entry))):
            name = published_files.name_of(entry)
            soon = name in SOON and layout == 0
            marks = pytest.mark.slow if soon else pytest.mark.long
            list_name = published_files.layouts(entry)[layout][0]
            yield pytest.param(entry, layout, id=f"{name}-{list_name}", marks=marks)


@pytest.mark.parametrize(("entry", "layout"), [*cases()])
def test_the_names_of_a_published_file_are_mapped(
    entry, layout, without_values, tmp_path, monkeypatch, caplog
):
    path = tmp_path / entry.filename
    published_files.write(path, entry, layout=layout, random=False)
    for name, content in published_files.json_files(entry).items():
        (tmp_path / name).write_bytes(content)
    folder = tmp_path if entry.on_hub else path
    monkeypatch.setattr(find, "fetch", lambda entry: folder)
    classes = 0 if entry.head == "zeroed" else None

    by_name = getattr(kerasvit, entry.model)(entry, num_classes=classes)
    by_path = kerasvit.from_pretrained(folder, num_classes=classes)

    assert by_path.record["variant"] == entry.model
    if entry.on_hub:  # an .npz does not state the size of BiT's images
        size = entry.preprocessing["size"]
        assert by_path.record["kwargs"]["image_size"] == [size, size]
    for model in (by_name, by_path):
        assert {weight.path: weight.assigned for weight in model.weights} == {
            weight.path: 1 for weight in model.weights
        }
        assert model.record["origin"] == entry.format
        kwargs = model.record["kwargs"]
        assert kwargs["num_classes"] == (entry.classes if classes is None else 0)
    by_path.record["kwargs"]["image_size"] = [entry.preprocessing["size"]] * 2
    by_path.record["kwargs"] |= entry.arguments or {}
    assert by_name.record["kwargs"] == by_path.record["kwargs"]
    assert by_name.record["base"] == {"source": entry.source, "license": entry.license}
