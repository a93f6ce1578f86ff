"""CSVs of images and labels, and the share of validation images."""

import shutil

import numpy as np
import pytest
import tensorflow_datasets

from kerasvit import data
from kerasvit.data import tfds
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is read before the backend


@pytest.fixture
def table(images):
    """Writes the lines of a CSV beside 12 images of each of cat and dog."""
    images("cat", 12)
    root = images("dog", 12)

    def write(*lines, header="path,label"):
        file = root / "labels.csv"
        file.write_text("\n".join([header, *lines]), encoding="utf-8")
        return file

    return write


def rows(*ends, count=12):
    """Lines for `count` images of both classes, each with further values."""
    names = ("cat", "dog")
    return [
        ",".join([f"{name}/{i}.jpg", name, *ends])
        for name in names
        for i in range(count)
    ]


def test_a_table_is_split_as_the_folder(table):
    file = table(*rows())
    found, folder = data.from_table(file), data.from_folder(file.parent)
    assert found.class_names == ["cat", "dog"]
    assert found.counts == folder.counts
    for part in ("train", "validation", "test"):
        sets = [getattr(each, part) for each in (found, folder)]
        sets = [getattr(each, "images", each) for each in sets]
        assert [*sets[0].names] == [*sets[1].names]
        assert np.array_equal(sets[0].labels, sets[1].labels)
    some, same = (each.of_share(0.5).train.images.names for each in (found, folder))
    assert [*some] == [*same]


@pytest.mark.parametrize(
    "header", ["image,class,note", " File ,Label,x", "path,label,"]
)
def test_names_of_columns_and_quotes(table, header):
    file = table(*rows('"a, ""b"""'), header=header)
    assert sum(data.from_table(file).counts.values()) == 24
    file = table("", *[line.replace("dog/", "./dog/") for line in rows()], "")
    assert sum(data.from_table(file).counts.values()) == 24


def test_a_class_with_a_comma_and_a_byte_order_mark(table):
    file = table(*[line.replace(",dog", ',"dog, brown"') for line in rows()])
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert data.from_table(file).class_names == ["cat", "dog, brown"]


def test_given_splits_are_kept(table):
    lines = rows("train", count=8)
    lines += ["cat/8.jpg,cat,val", "dog/8.jpg,dog,Validation", "dog/9.jpg,dog,test"]
    dataset = data.from_table(table(*lines, header="path,label,split"))
    assert dataset.counts == {"train": 16, "validation": 2, "test": 1}
    assert dataset.test.labels.tolist() == [1]  # the test has no cat
    assert dataset.test_name == "test"


@pytest.mark.parametrize(
    ("lines", "header", "message"),
    [
        (["x/0.jpg,cat"], "path,label", r"line 26: there is no file .*x\W0\.jpg"),
        (["cat/0.txt,cat"], "path,label", r"line 26: 0\.txt has none of the extens"),
        (["cat/0.jpg,dog"], "path,label", r"line 26: cat/0\.jpg is in line 2, too"),
        (["cat/0.jpg,"], "path,label", "line 26: the label is empty"),
        ([",cat"], "path,label", "line 26: the path is empty"),
        (["a,b,cat"], "path,label", "line 26: expected 2 values .* received 3"),
        ([], "cat/1.jpg,cat", "line 1 must be a header .*Received: cat/1.jpg,cat"),
        ([], "path,label,file", "line 1 must be a header .*one column path"),
        (['"cat'], "path,label", "is no CSV in UTF-8: unexpected end of data"),
    ],
)
def test_wrong_tables(table, lines, header, message):
    with pytest.raises(ValueError, match=message):
        data.from_table(table(*rows(), *lines, header=header))


def test_wrong_splits_and_classes(table, images):
    images("cow", 1)
    wrong = {
        "cow/0.jpg,cow,test": "line 18: the class 'cow' is in test, but has no images",
        "cat/9.jpg,cat,tset": "line 18: the split must be .* not 'tset'",
    }
    for line, message in wrong.items():
        lines = [*rows("train", count=8), line]
        with pytest.raises(ValueError, match=message):
            data.from_table(table(*lines, header="path,label,split"))
    with pytest.raises(ValueError, match="has 1 classes for training"):
        data.from_table(table(*rows()[:12]))
    with pytest.raises(ValueError, match="has 0 classes for training"):
        data.from_table(table())
    empty = table()
    empty.write_text("")
    with pytest.raises(ValueError, match="is empty. Expected: a header path,label"):
        data.from_table(empty)
    empty.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is no CSV in UTF-8"):
        data.from_table(empty)


def test_a_damaged_image_of_a_table_is_named(table):
    file = table(*rows())
    (file.parent / "dog" / "3.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"dog\W3\.jpg cannot be read as an image"):
        data.from_table(file)


def test_the_share_of_validation_images(table):
    file = table(*rows())
    found = data.from_folder(file.parent, validation_share=0.25)
    assert found.counts == {"train": 14, "validation": 6, "test": 4}
    assert data.from_table(file, validation_share=0.25).counts == found.counts
    assert data.built_in("digits", validation_share=0.3).counts["validation"] > 500
    with pytest.raises(ValueError, match="leaves no training images.* less than 0.8"):
        data.from_table(file, validation_share=0.8)
    file = table(
        *rows("train", count=8), "cat/9.jpg,cat,val", header="path,label,split"
    )
    with pytest.raises(ValueError, match="has validation images of its own"):
        data.from_table(file, validation_share=0.25)


def test_the_share_of_a_class_leaves_an_image_for_training(table):
    shutil.rmtree(table().parent / "dog")
    lines = [*rows(count=12)[:12]]
    for i in range(3):
        lines[i] = lines[i].replace(",cat", ",dog")
    found = data.from_table(table(*lines), validation_share=0.7)
    for images in (found.train, found.validation, found.test):
        assert set(getattr(images, "images", images).labels) == {0, 1}


def test_the_share_of_tensorflow_datasets():
    parts = tfds.splits_of
    with tensorflow_datasets.testing.mock_data(num_examples=6):
        builder = tensorflow_datasets.builder("mnist")
        chosen = parts(builder, "label", 0.15)
        assert [*chosen.values()] == ["train[:85%]", "train[85%:100%]", "test"]
        default = parts(builder, "label", None)
        assert [*default.values()] == ["train[:98%]", "train[98%:100%]", "test"]
