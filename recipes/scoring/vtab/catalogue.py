"""The 19 tasks of VTAB-1k, as data.

    catalogue.TASKS["vtab/dsprites_location"].classes     # 16
    catalogue.GROUPS["vtab/natural"]                      # names of its seven tasks
    catalogue.tasks(["vtab/natural", "vtab/kitti"])       # eight tasks

Zhai et al. 2019, arXiv 1910.04867. Splits, labels and numbers of classes and images are
those of google-research/task_adaptation, the paper's code: task_adaptation/data/*.py
and *_test.py. This module imports neither Keras nor TensorFlow, so that a command is
parsed first.
"""

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from command import names
from command.names import check_name, data_location, located

from ..catalogue import PACKAGES

NAME = "vtab"
TRAIN, VALIDATION = 800, 200  # images
FIRST = f"train[:{TRAIN}]"  # split of the training images
MANUAL = "~/tensorflow_datasets/downloads/manual/"


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
        supervised: Published top-1 in % of a ResNet-50 of ImageNet, the best of four
            fine-tunings of all weights: "Sup-100%" in docs/data/results.csv.
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


def has(name: str) -> bool:
    """Returns whether a name of `--on` is one of VTAB, and no file or folder."""
    return name.split("/")[0] == NAME and not Path(os.path.expanduser(name)).exists()


def tasks(names: Sequence[str]) -> list[VtabTask]:
    """Returns the tasks among the names of `--on`, each once.

    Args:
        names: "vtab", "vtab/natural" (a group), "vtab/dtd" (a task), or others, which
            are left out.

    Raises:
        ValueError: A name begins with "vtab/" and is neither a task nor a group.
    """
    known = {NAME: list(TASKS), **GROUPS, **{name: [name] for name in TASKS}}
    own = [name for name in names if has(name)]
    for name in own:
        check_name("on", name, known)
    found = {each for name in own for each in known[name]}
    return [task for name, task in TASKS.items() if name in found]


def check(wanted: Sequence[VtabTask]) -> None:
    """Raises a `ValueError` that lists the tasks which cannot be prepared, and why."""
    sources = {task.source for task in wanted}
    with ThreadPoolExecutor(len(TASKS)) as pool:  # a server may not answer
        problems = dict(zip(sources, pool.map(_problem, sources), strict=True))
    wrong = [task for task in wanted if problems[task.source]]
    if not wrong:
        return
    lines = [f"`on`: {len(wrong)} of {len(wanted)} tasks of VTAB cannot be prepared:"]
    lines += [f"  {task.set}: {problems[task.source]}" for task in wrong]
    lines.append(
        "Prepare them where the files are and servers answer, such as\n"
        '    python -c "import tensorflow_datasets as t; '
        f't.load({wrong[0].source.tfds!r})"\n'
        f"and copy their folders into {data_location()}."
    )
    if rest := " ".join(task.set for task in wanted if task not in wrong):
        lines.append(f"The others can be scored: --on {rest}")
    raise ValueError("\n".join(lines))


def _problem(source: Source) -> str:
    """Returns why a data set cannot be prepared; "" if it is or can be."""
    root = Path(os.path.expanduser(data_location()))
    if any(root.glob(f"{source.tfds}/**/dataset_info.json")):
        return ""
    if source.manual and not (root / "downloads/manual" / source.manual).exists():
        return f"{source.tfds} must be downloaded by hand: {located(source.download)}."
    if source.package and not importlib.util.find_spec(source.package):
        name = PACKAGES.get(source.package, source.package)
        return (
            f"{source.tfds} cannot be prepared without a package: pip install {name}."
        )
    if hosts := names.missing_hosts(source.tfds):
        return f"no server that has {source.tfds} answers: {', '.join(hosts)}."
    return ""
