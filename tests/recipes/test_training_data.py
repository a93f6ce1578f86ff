"""The images of a training: what the settings say of them, and its steps."""

import sys

import finetune
import numpy as np
import pretrain
import pytest
from command import command_line, names
from devices import devices
from pretrain import Config
from training import progress, stages, training_data

from kerasvit import data
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is tf.data


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan")])
def test_a_share_out_of_range(share):
    with pytest.raises(ValueError, match="`share` must be at least .* at most 1"):
        command_line.check(Config(share=share))


@pytest.mark.slow
def test_same_steps_are_those_of_all_images():
    dataset = training_data.find("mnist_subset", share=0.1)
    config = Config(share=0.1, epochs=6, batch_size=50)
    count = stages.planned_images(config, dataset)
    assert count == 100 and np.prod(stages.rounds_of(config, count)) == 12
    config = Config(share=0.1, epochs=6, batch_size=50, same_steps=True)
    count = stages.planned_images(config, dataset)
    assert count == 1000 and np.prod(stages.rounds_of(config, count)) == 120
    whole = training_data.find("mnist_subset")
    assert stages.planned_images(config, whole) == 1000


def test_steps_replace_epochs_and_validations_limit_the_rounds():
    assert stages.rounds_of(Config(steps=900, validations=1), 1000) == (1, 900)
    assert stages.rounds_of(Config(steps=90), 1000) == (9, 10)
    config = finetune.Config(steps=600, batch_size=10)
    assert stages.rounds_of(config, 100) == (50, 12)


@pytest.mark.parametrize("settings", [finetune, pretrain])
def test_a_missing_table_is_found_before_the_imports(settings, images):
    table = images("cat", 1) / "labels.csv"
    table.write_text("path,label\ncat/0.jpg,cat\n")
    command_line.check(settings.Config(data=str(table)))
    with pytest.raises(ValueError, match=r"there is no file none\.csv"):
        command_line.check(settings.Config(data="none.csv"))
    with pytest.raises(ValueError, match="`validation_share` must be at least"):
        command_line.check(settings.Config(validation_share=0.0))


def test_a_file_that_another_process_cannot_read_ends_all(images):
    class OtherFailed(devices.Devices):
        def any(self, condition):
            return True

    images("cat", 10)
    config = Config(data=str(images("dog", 10)))
    with pytest.raises(ValueError, match="another process cannot read it"):
        training_data.find_data(config, OtherFailed(2, 1, 2))


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_a_name_with_a_lone_surrogate_raises(images):
    folder = images("dog", 3) / "caf\udce9"
    folder.mkdir()
    with pytest.raises(ValueError, match="`weights`.* is not UTF-8"):
        command_line.check(finetune.Config(weights=str(folder)))


def test_the_built_in_data_sets_are_known_before_the_imports():
    assert set(names.BUILT_IN) == set(data.BUILT_IN)


def test_a_folder_overrides_a_dataset_name(images):
    images("cat", 10)
    found = training_data.find("digits", images("dog", 10))
    assert found.class_names == ["cat", "dog"]


def test_built_in_overrides_tensorflow_datasets():
    assert training_data.find("digits").counts["test"] < 400


def test_one_image_and_several():
    found = [progress.counted(count) for count in (0, 1, 2, 1234)]
    assert found == ["0 images", "1 image", "2 images", "1,234 images"]
