"""The 19 tasks of VTAB-1k, as data.

    catalogue.TASKS["vtab/dsprites_location"].classes     # 16
    catalogue.GROUPS["vtab/natural"]                      # names of its seven tasks

Zhai et al. 2019, arXiv 1910.04867. Splits, labels and numbers of classes and images are
those of google-research/task_adaptation, the paper's code: task_adaptation/data/*.py
and *_test.py. This module imports neither Keras nor TensorFlow, so that a command is
parsed first.
"""

import dataclasses

NAME = "vtab"
TRAIN, VALIDATION = 800, 200  # images
FIRST = f"train[:{TRAIN}]"  # split of the training images
MANUAL = "~/tensorflow_datasets/downloads/manual/"
# "Sup-100%" in docs/data/results.csv of task_adaptation, for 1,000 images.
SUPERVISED = "a ResNet-50 of ImageNet, the best of four fine-tunings of all weights"


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set of tensorflow-datasets, and how VTAB splits it.

    Attributes:
        tfds: Name in tensorflow-datasets.
        published: Its version in the paper's code.
        images: Number of test images.
        download: What is downloaded, or which files go where by hand.
        validation, test: Splits of validation and test images.
        manual: Name of a file or folder that must be downloaded by hand, or "".
        package: Package that tensorflow-datasets imports to prepare it, or "".
    """

    tfds: str
    published: str
    images: int
    download: str
    validation: str = f"validation[:{VALIDATION}]"
    test: str = "test"
    manual: str = ""
    package: str = ""


@dataclasses.dataclass(frozen=True)
class VtabTask:
    """A task: 1,000 images with labels to learn from, and test images.

    Attributes:
        name: Name after "vtab/".
        group: "natural", "specialized" or "structured".
        source: Its data set.
        classes: Number of classes.
        supervised: Published top-1 in % of `SUPERVISED`.
        label: Name of a feature with the class, or key of `images.LABELS`.
    """

    name: str
    group: str
    source: Source
    classes: int
    supervised: float
    label: str = "label"

    @property
    def set(self) -> str:
        """Name in the tables."""
        return f"{NAME}/{self.name}"


def _after(count):
    """Returns the split of the validation images after `count` training images."""
    return f"train[{count}:{count + VALIDATION}]"


CALTECH = Source("caltech101", "3.*.*", 6_084, "0.1 GB", _after(2_754))
CIFAR = Source("cifar100", "3.*.*", 10_000, "0.2 GB", _after(45_000))
DTD = Source("dtd", "3.*.*", 1_880, "0.6 GB")
FLOWERS = Source("oxford_flowers102", "2.*.*", 6_149, "0.3 GB", package="scipy")
PETS = Source("oxford_iiit_pet", "3.*.*", 3_669, "0.8 GB", _after(2_944))
SUN = Source("sun397/tfds", "4.*.*", 21_750, "39.1 GB", package="cv2")
SVHN = Source(
    "svhn_cropped", "3.*.*", 26_032, "1.6 GB", _after(65_931), package="scipy"
)
EUROSAT = Source(
    "eurosat/rgb", "2.*.*", 5_400, "0.1 GB", _after(16_200), "train[21600:]"
)
RESISC = Source(
    "resisc45",
    "3.*.*",
    6_300,
    "unpack NWPU-RESISC45.rar, from https://1drv.ms/u/s!AmgKYzARBl5ca3HNaHIlzp_IXjs, "
    f"into {MANUAL}, so that it has the folder NWPU-RESISC45",
    _after(18_900),
    "train[25200:]",
    manual="NWPU-RESISC45",
)
CAMELYON = Source("patch_camelyon", "2.*.*", 32_768, "8.0 GB", package="h5py")
RETINOPATHY = Source(
    "diabetic_retinopathy_detection/btgraham-300",
    "3.*.*",
    42_670,
    "unpack trainLabels.csv and the folders train, test and sample, from "
    "https://www.kaggle.com/c/diabetic-retinopathy-detection/data (needs an account), "
    f"into {MANUAL}",
    manual="trainLabels.csv",
    package="cv2",
)
CLEVR = Source("clevr", "3.*.*", 15_000, "19.0 GB", _after(63_000), "validation")
DMLAB = Source("dmlab", "2.0.1", 22_735, "3.0 GB")
KITTI = Source("kitti", "3.1.0", 711, "12.6 GB", package="cv2")
DSPRITES = Source(
    *("dsprites", "2.*.*", 73_728, "0.03 GB", _after(589_824), "train[663552:]"),
    package="h5py",
)
SMALLNORB = Source(
    *("smallnorb", "2.*.*", 12_150, "0.3 GB", f"test[:{VALIDATION}]", "test[50%:]")
)
TASKS = {  # {"vtab/caltech101": task}
    each.set: each
    for each in (
        VtabTask("caltech101", "natural", CALTECH, 102, 91.0),
        VtabTask("cifar100", "natural", CIFAR, 100, 57.0),
        VtabTask("dtd", "natural", DTD, 47, 66.0),
        VtabTask("oxford_flowers102", "natural", FLOWERS, 102, 88.6),
        VtabTask("oxford_iiit_pet", "natural", PETS, 37, 89.9),
        VtabTask("sun397", "natural", SUN, 397, 34.4),
        VtabTask("svhn", "natural", SVHN, 10, 87.3),
        VtabTask("eurosat", "specialized", EUROSAT, 10, 95.3),
        VtabTask("resisc45", "specialized", RESISC, 45, 80.8),
        VtabTask("patch_camelyon", "specialized", CAMELYON, 2, 80.6),
        VtabTask("diabetic_retinopathy", "specialized", RETINOPATHY, 5, 73.2),
        VtabTask("clevr_count", "structured", CLEVR, 8, 41.0, "count"),
        VtabTask("clevr_distance", "structured", CLEVR, 6, 56.1, "distance"),
        VtabTask("dmlab", "structured", DMLAB, 6, 36.3),
        VtabTask("dsprites_location", "structured", DSPRITES, 16, 85.7, "location"),
        VtabTask(
            "dsprites_orientation", "structured", DSPRITES, 16, 46.0, "orientation"
        ),
        VtabTask("kitti", "structured", KITTI, 4, 70.6, "vehicle"),
        VtabTask(
            "smallnorb_azimuth", "structured", SMALLNORB, 18, 45.7, "label_azimuth"
        ),
        VtabTask(
            "smallnorb_elevation", "structured", SMALLNORB, 9, 35.4, "label_elevation"
        ),
    )
}
GROUPS = {  # {"vtab/natural": names of its tasks}
    f"{NAME}/{group}": [name for name, each in TASKS.items() if each.group == group]
    for group in ("natural", "specialized", "structured")
}
