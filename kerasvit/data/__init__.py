"""Labelled images as batches for `fit` and `evaluate`, with tf.data on every backend.

    images = kerasvit.data.from_folder("pets")
    train = images.train.batches(model, 32, augment="photo")
    model.fit(train, validation_data=images.validation.batches(model, 64), epochs=4)

The images are decoded, rotated and resized as `kerasvit.classify` does.
"""

from kerasvit import installed

installed.check_extra(
    "data", ("tensorflow", "tensorflow_datasets", "importlib_resources")
)

from .augmentations import AUGMENTATIONS as AUGMENTATIONS  # noqa: E402
from .augmentations import Augmentation as Augmentation  # noqa: E402
from .folders import CONVERT_HEIC as CONVERT_HEIC  # noqa: E402
from .folders import SUFFIXES as SUFFIXES  # noqa: E402
from .folders import check_images as check_images  # noqa: E402
from .folders import files_in as files_in  # noqa: E402
from .folders import unread_files as unread_files  # noqa: E402
from .from_files import find_files as find_files  # noqa: E402
from .from_files import from_folder as from_folder  # noqa: E402
from .from_files import from_table as from_table  # noqa: E402
from .images import Images as Images  # noqa: E402
from .images import IndexedImages as IndexedImages  # noqa: E402
from .images import TransformedImages as TransformedImages  # noqa: E402
from .installed_sets import BUILT_IN as BUILT_IN  # noqa: E402
from .labelled_images import SAMPLE as SAMPLE  # noqa: E402
from .labelled_images import LabelledImages as LabelledImages  # noqa: E402
from .labelled_images import TrainingImages as TrainingImages  # noqa: E402
from .labelled_images import built_in as built_in  # noqa: E402
from .labelled_images import from_tfds as from_tfds  # noqa: E402
from .shards import Rows as Rows  # noqa: E402
from .streamed_images import StreamedImages as StreamedImages  # noqa: E402
from .tables import read_table as read_table  # noqa: E402
from .tfds import tfds_builder as tfds_builder  # noqa: E402
from .training_batches import TrainingBatches as TrainingBatches  # noqa: E402
from .training_batches import training_batches as training_batches  # noqa: E402
