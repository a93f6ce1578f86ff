"""`resolve` is a pure function: the caller wins, then the files, then the variant."""

import dataclasses

import pytest

import kerasvit
from kerasvit.arguments import ArgumentError, Size
from kerasvit.checkpoints import CheckpointError, Description, Statement, TokenGrid
from kerasvit.loading.request import Request
from kerasvit.loading.resolve import HEADS, resolve
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

pytestmark = on_last_backend

FILE = Description(
    code_base="timm",
    builder="VisionTransformer",
    numbers={**TinyViT.numbers},
    arguments={
        "num_classes": 3,
        "activation": "gelu_tanh",
        "class_token": True,
        "register_tokens": 0,
        "representation_size": 5,
    },
    kernel="bicubic_antialias",
    grid=TokenGrid("pos_embed", rows=17, stride=4, prefix=1),
    label_names=["ant", "bee", "cat"],
    path="vit.safetensors",
)
HALF = kerasvit.Preprocessing(16, mean=0.5, std=0.5)


def transform(size, sized=True):
    config = kerasvit.Preprocessing(size).to_config()
    return Statement("kerasvit", config, sized=sized)


def described(**changes):
    return dataclasses.replace(FILE, **changes)


def plan(description=FILE, variant=TinyViT, **request):
    return resolve(description, variant, Request(**request))


def test_the_files_win_over_the_variants_defaults():
    kwargs = plan().kwargs
    assert kwargs["activation"] == "gelu_tanh" and kwargs["num_classes"] == 3
    assert kwargs["width"] == TinyViT.numbers["width"]
    assert kwargs["epsilon"] == TinyViT.defaults["epsilon"]


def test_the_caller_wins_over_the_files():
    stated = {"activation": "gelu", "image_size": (8, 12), "representation_size": None}
    result = plan(arguments=stated, kernel="bilinear")
    assert {key: result.kwargs[key] for key in stated} == stated
    assert result.kernel == "bilinear" and plan().kernel == "bicubic_antialias"
    assert result.source_size == (16, 16)
    assert result.left_out == ("pre_logits",)
    assert result.record["preprocessing"]["size"] == [8, 12]


@pytest.mark.parametrize(
    ("classes", "new"), [(7, "fresh head of zeros for 7 classes"), (0, "no head")]
)
def test_another_number_of_classes_leaves_the_heads_out(classes, new):
    result = plan(arguments={"num_classes": classes})
    assert result.left_out == HEADS and result.record["label_names"] is None
    assert any(new in note and "the head for 3" in note for note in result.notes)


def test_names_of_classes():
    assert plan().record["label_names"] == ["ant", "bee", "cat"]
    stated = ["x", "y", "z"]
    assert plan(label_names=stated).record["label_names"] == stated
    with pytest.raises(ValueError, match="each class of the head, 3. Received: 2"):
        plan(label_names=["x", "y"])
    for names in (["ant"], "ant", [1, 2, 3], {"0": "ant"}):
        with pytest.raises(CheckpointError, match="must name 3 classes"):
            plan(described(label_names=names))
        assert plan(described(label_names=names), arguments={"num_classes": 5})


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, (16, 16)),
        ({"image_size": Size((8, 32))}, (8, 32)),
        ({"preprocessing": transform((8, 32))}, (8, 32)),
        ({"preprocessing": transform((8, 32), sized=False)}, (16, 16)),
        ({"preprocessing": transform((224, 224))}, (16, 16)),  # not of the table
        ({"image_size": Size((32, 8)), "preprocessing": transform((8, 32))}, (32, 8)),
        ({"grid": None}, (224, 224)),
        ({"grid": None, "image_size": Size((64, 32))}, (64, 32)),
    ],
)
def test_the_size_that_weights_were_made_for(changes, size):
    result = plan(described(**changes))
    assert result.source_size == tuple(result.kwargs["image_size"]) == size


def test_a_stated_grid_wins_and_must_fit():
    assert plan(source_grid=(2, 8)).source_size == (8, 32)
    stated = described(image_size=Size((16, 16)))
    assert plan(stated, source_grid=(8, 2)).source_size == (32, 8)
    with pytest.raises(CheckpointError, match="`source_grid` must have as many cells"):
        plan(source_grid=(3, 3))
    with pytest.raises(CheckpointError, match="16 patch rows.*images of 12 × 12"):
        plan(described(image_size=Size((12, 12))))


def test_the_positions_decide_which_rows_are_patches():
    rows = described(grid=TokenGrid("pos_embed", rows=16, stride=4, prefix=1))
    assert plan(rows, arguments={"positions": "patches"}).source_size == (16, 16)
    with pytest.raises(CheckpointError, match="assumes positions='tokens'"):
        plan(rows)


def test_the_transform_is_the_callers_or_the_files_or_the_code_bases():
    def mean(result):
        return result.record["preprocessing"]["mean"]

    files = described(preprocessing=Statement("kerasvit", HALF.to_config()))
    assert mean(plan(files)) == [0.5] * 3 and not plan(files).transform_note
    assert mean(plan(files, preprocessing={"mean": 0.2})) == [0.2] * 3
    assert "The default of timm" in plan().transform_note
    error = CheckpointError("broken")
    broken = described(preprocessing=Statement("transformers", {}, error=error))
    with pytest.raises(CheckpointError, match="broken"):
        plan(broken)
    assert mean(plan(broken, preprocessing=HALF)) == [0.5] * 3


def test_normalisation_is_inside_or_outside():
    trained = {"mean": [0.1] * 3, "std": [0.2] * 3}
    inside = described(arguments={**FILE.arguments, "normalization": trained})
    assert plan(inside).kwargs["normalization"] == trained
    outside = plan(inside, include_preprocessing=False)
    assert outside.kwargs["normalization"] is None
    assert outside.record["preprocessing"]["mean"] == trained["mean"]
    assert plan(include_preprocessing=True).kwargs["normalization"]


def test_assumptions_are_noted_until_they_are_stated():
    open_file = described(open_arguments=("activation",), assumptions=("no bias",))
    [note] = plan(open_file).notes
    assert "activation='gelu_tanh', no bias" in note and "pass activation=" in note
    [note] = plan(open_file, arguments={"activation": "gelu"}).notes
    assert "Assumed: no bias" in note


def test_weights_of_another_variant_raise():
    other = described(numbers={**TinyViT.numbers, "num_heads": 4})
    with pytest.raises(CheckpointError, match="num_heads 4, not 2"):
        plan(other)
    assert plan(other, arguments={"num_heads": 4}).kwargs["num_heads"] == 4


def test_another_architecture_raises():
    with pytest.raises(CheckpointError, match="holds a MLPMixer"):
        plan(described(builder="MLPMixer"))


def test_an_argument_that_a_newer_version_wrote():
    newer = described(arguments={**FILE.arguments, "spin": 1})
    with pytest.raises(ValueError, match="vit.safetensors, of a newer kerasvit.*spin"):
        plan(newer)


def test_a_wrong_argument_is_the_files_or_the_callers():
    broken = described(grid=None, arguments={**FILE.arguments, "normalization": 7})
    with pytest.raises(CheckpointError, match="kerasvit cannot build"):
        plan(broken)
    with pytest.raises(ArgumentError, match="`normalization`") as caught:
        plan(arguments={"normalization": 7})
    assert not isinstance(caught.value, CheckpointError)
