"""Tables with several labels per image, and splits that keep groups together."""

import json

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit import data
from kerasvit.data.splits import split, with_validation
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is read before the backend
LABELS = ["cat|dog", "cat", "", "dog", "cat|dog|cow", "cow"]


@pytest.fixture
def write(images):
    """Writes a table beside 30 images; returns its path."""
    root = images("pets", 30)

    def write(*lines, name="labels.csv"):
        file = root / name
        file.write_text("\n".join(lines), encoding="utf-8")
        return file

    return write


def rows(labels=LABELS, count=30, end=""):
    return [f"pets/{i}.jpg,{labels[i % len(labels)]}{end}" for i in range(count)]


def tables(write):
    """The same labels in all forms."""
    sets = [set(LABELS[i % 6].split("|")) - {""} for i in range(30)]
    columns = [
        ",".join([f"pets/{i}.jpg", *(str(int(n in s)) for n in ("cat", "cow", "dog"))])
        for i, s in enumerate(sets)
    ]
    lines = [
        json.dumps({"path": f"pets/{i}.jpg", "labels": sorted(s)})
        for i, s in enumerate(sets)
    ]
    return [
        write("path,label", *rows()),
        write("file,cat,cow,dog", *columns, name="columns.csv"),
        write(*lines, "", name="labels.jsonl"),
    ]


def parts_of(found):
    return [found.train.images, found.validation, found.test]


def test_all_forms_are_alike(write):
    found = [data.from_table(file, task="multilabel") for file in tables(write)]
    for each in found:
        assert each.class_names == ["cat", "cow", "dog"]
        assert each.task == "multilabel"
        assert sum(each.counts.values()) == 30
        for part, first in zip(parts_of(each), parts_of(found[0])):
            assert list(part.names) == list(first.names)
            np.testing.assert_array_equal(part.labels, first.labels)
            assert part.labels.any(axis=0).all()  # each part has all classes
    for part in parts_of(found[0]):
        for name, labels in zip(part.names, part.labels):
            expected = LABELS[int(name.split("/")[1][:-4]) % 6].split("|")
            assert [c for c, y in zip(("cat", "cow", "dog"), labels) if y] == sorted(
                filter(None, expected)
            )


@pytest.mark.slow
def test_batches_have_a_column_for_each_class(write):
    found = data.from_table(tables(write)[0], task="multilabel")
    transform = kerasvit.Preprocessing(16)
    train = found.train.batches(transform, 8, augment="shift")
    assert train.element_spec[1].shape.as_list() == [8, 3]
    x, y = next(iter(train))
    assert (y.dtype.name, set(np.unique(y))) == ("float32", {0.0, 1.0})
    seen = [*found.test.batches(transform, 4, pad=True).as_numpy_iterator()]
    y = np.concatenate([each[1] for each in seen])
    np.testing.assert_array_equal(y[: len(found.test)], found.test.labels)
    assert not y[len(found.test) :].any()
    mixed = found.train.batches(transform, 8, augment="photo_mixed")
    y = np.asarray(next(iter(mixed))[1])
    assert y.dtype == "float32" and ((y > 0) & (y < 1)).any()


@pytest.mark.slow
def test_a_model_learns_several_labels_with_keras_losses(write):
    found = data.from_table(tables(write)[0], task="multilabel")
    model = keras.Sequential(
        [keras.layers.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile("sgd", loss=loss)
    transform = kerasvit.Preprocessing(8)
    before = model.evaluate(found.test.batches(transform, 4), verbose=0)
    model.fit(found.train.batches(transform, 8), verbose=0)
    after = model.evaluate(found.test.batches(transform, 4), verbose=0)
    assert np.isfinite([before, after]).all()


def test_some_classes_and_a_share(write):
    found = data.from_table(tables(write)[0], task="multilabel")
    some = found.of_classes(["dog", "cat"])
    assert some.class_names == ["dog", "cat"] and some.counts == found.counts
    np.testing.assert_array_equal(some.test.labels, found.test.labels[:, [2, 0]])
    assert found.of_classes(["cow"]).test.labels.shape[1] == 1
    half, quarter = found.of_share(0.5), found.of_share(0.25)
    assert len(half.train) == round(len(found.train) / 2)
    assert set(quarter.train.images.names) < set(half.train.images.names)
    with pytest.raises(ValueError, match="leaves no image of the class"):
        found.of_share(0.01)


def test_images_of_a_test_need_no_training(write):
    file = write("path,cat,dog,split", "pets/0.jpg,1,0,test", "pets/1.jpg,0,0,test")
    found = data.read_table(file, "multilabel", training=False)
    assert found.class_names == ["cat", "dog"] and len(found.rows) == 2
    with pytest.raises(ValueError, match="no images in train"):
        data.read_table(file, "multilabel")


def test_a_split_is_in_all_lines_or_in_none(write):
    lines = [
        json.dumps({"path": f"pets/{i}.jpg", "labels": ["a"], **split})
        for i, split in enumerate(({"split": "train"}, {}, {"split": "test"}))
    ]
    file = write(*lines, name="labels.jsonl")
    with pytest.raises(ValueError, match="line 2: give a split in all lines, or in no"):
        data.from_table(file, task="multilabel")


def test_groups_stay_together(write):
    lines = [f"{row},p{i // 3}" for i, row in enumerate(rows(["a", "b", "a|b"]))]
    file = write("path,label,group", *lines)
    found = data.from_table(file, task="multilabel")
    seen = [
        {int(name.split("/")[1][:-4]) // 3 for name in part.names}
        for part in parts_of(found)
    ]
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]
    assert sum(map(len, seen)) == 10
    single = write("path,label,group", *[r.replace("a|b", "a") for r in lines])
    counts = data.from_table(single).counts
    assert sum(counts.values()) == 30 and counts["train"] >= 18


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (
            ["path,label", *rows(["a", "b", "a|b"])],
            {},
            "line 4: expected one label, received a|b",
        ),
        (["path,cat", "pets/0.jpg,2"], {}, "line 1 must be a header"),
        (["path,cat", "pets/0.jpg,2"], {"task": "multilabel"}, "line 2: .*0 or 1, not"),
        (["path,cat,cat", "pets/0.jpg,1,1"], {"task": "multilabel"}, "of its own"),
        (["path", "pets/0.jpg"], {"task": "multilabel"}, "each column besides path"),
        (
            ["path,cat,dog", "pets/0.jpg,1,0", "pets/1.jpg,1,0"],
            {"task": "multilabel"},
            "no image has the class 'dog'. Remove its column",
        ),
        (
            ["path,label,split", "pets/0.jpg,a,train", "pets/1.jpg,b,test"],
            {"task": "multilabel"},
            "line 3: the class 'b' is in test, but has no images in train",
        ),
        (["path,label", "pets/0.jpg,a|a"], {"task": "multilabel"}, "is there twice"),
        (["path,label", "pets/0.jpg,a|"], {"task": "multilabel"}, "a label is empty"),
        (
            ["path,label", "pets/0.jpg,", "pets/1.jpg,"],
            {"task": "multilabel"},
            "has 0 classes for training. A classifier needs one or more",
        ),
        (
            ["path,label,group,split", "pets/0.jpg,a,p,train", "pets/1.jpg,a,p,test"],
            {"task": "multilabel"},
            "line 3: the group 'p' is in test, and in line 2 in train",
        ),
        (
            ["path,label,group", *[f"{r},p{i % 2}" for i, r in enumerate(rows())]],
            {"task": "multilabel"},
            "class cat are in 2 groups, and train, validation, test need one each",
        ),
        (["path,label", *rows()], {"task": "several"}, "`task` must be"),
    ],
)
def test_wrong_tables(write, lines, options, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        data.from_table(write(*lines), **options)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: this is no JSON"),
        ("[1]", 'line 1: expected {"path"'),
        ('{"path": 1, "labels": []}', "line 1: `path` must be a text, not 1"),
        ('{"path": "pets/0.jpg"}', "line 1: `labels` must be a list of texts"),
        ('{"path": "pets/0.jpg", "labels": [1]}', "line 1: `labels` must be a list"),
        ('{"path": "pets/0.jpg", "labels": "a|b"}', "`labels` must be a list of texts"),
        ('{"path": "pets/0.jpg", "labels": [""]}', r"without labels has the list \[\]"),
        ('{"labels": ["a"]}', "line 1: the path is empty"),
    ],
)
def test_wrong_lines(write, line, message):
    with pytest.raises(ValueError, match=message):
        data.from_table(write(line, name="labels.jsonl"), task="multilabel")


def test_each_part_holds_every_class_with_three_examples():
    random = np.random.default_rng(0)
    for seed in range(30):
        labels = random.random((200, 12)) < 0.02 * np.arange(1, 13)
        labels[:3, 0] = True
        parts = split(labels, seed=seed)
        assert sorted(np.concatenate([*parts.values()])) == [*range(200)]
        for numbers in parts.values():
            held, whole = labels[numbers].sum(0), labels.sum(0)
            assert (held[whole >= 3] > 0).all()
        sizes = [len(numbers) for numbers in parts.values()]
        np.testing.assert_allclose(sizes, [140, 20, 40], atol=12)
        again = split(labels, seed=seed)
        assert all(np.array_equal(again[k], v) for k, v in parts.items())


def test_groups_of_many_sizes_are_split():
    for seed in (7, 21, 23):  # with orders by size alone none is found
        random = np.random.default_rng(seed)
        labels = random.integers(0, 8, 200)
        groups = [str(i) for i in random.integers(0, 40, 200)]
        for numbers in split(labels, groups=groups).values():
            assert set(labels[numbers]) == set(range(8))
    for share in (0, -1, np.nan):
        with pytest.raises(ValueError, match="`validation_share` must be above 0"):
            with_validation({"validation": 0.1}, share)


def test_classes_with_one_or_two_examples_are_trained_on():
    labels = np.zeros((40, 3), int)
    labels[:, 0] = np.arange(40) % 2
    labels[0, 1] = labels[1, 2] = labels[2, 2] = 1
    parts = split(labels)
    assert labels[parts["train"]].sum(axis=0)[1:].tolist() == [1, 2]
