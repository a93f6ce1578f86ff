"""Which images a folder of class folders holds.

folders.given_splits(root)     {} or {"train": root/train, "validation": …}
folders.classes(root)          {"cat": [root/cat/0.jpg, …], "dog": […]}
folders.check_images(paths)    reads them all
"""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from command_line import check_name_of
from rich.progress import track

from kerasvit.preprocessing.images import read_image

SUFFIXES = {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid"),
    "test": ("test", "testing"),
}


def given_splits(root):
    """Part → its folder, train first; none where the folder is not split."""
    given = {}
    for part, spellings in SPLITS.items():
        named = [f for f in _folders(root) if f.name.lower() in spellings]
        folders = [f for f in named if _folders(f)]
        if len(folders) > 1:
            raise ValueError(f"{folders[0]} and {folders[1]}: keep one for {part}.")
        if folders:
            given[part] = folders[0]
    if given and "train" not in given:
        names = ", ".join(f.name for f in given.values())
        raise ValueError(f"{root} holds {names} but no train.")
    return given


def classes(root):
    """Name of each class folder → its images."""
    found = {}
    for child in _folders(root):
        images = [p for p in files_in(child) if p.suffix.lower() in SUFFIXES]
        check_name_of("data", child)
        found[child.name] = sorted(images)
    if not any(found.values()):
        raise ValueError(
            f"{root} holds no folders of images. Expected: CLASS/IMAGE.jpg in it, or "
            "train, validation and test that hold the same."
        )
    if empty := [name for name, files in found.items() if not files]:
        raise ValueError(
            f"{root}: no images in {', '.join(empty)}. Remove it, or add some that end "
            f"in {', '.join(sorted(SUFFIXES))}."
        )
    return found


def left_out(root) -> str:
    """Which files below a folder `classes` does not read; "" for none."""
    # An image needs a class folder, which lies in the folder of a split or in the root.
    places = list(given_splits(root).values()) or [root]
    beside = [p for place in [root, *places] for p in place.iterdir() if p.is_file()]
    inside = [p for place in places for c in _folders(place) for p in files_in(c)]
    others = [p for p in inside if p.suffix.lower() not in SUFFIXES]
    others += {p for p in beside if p.suffix.lower() in SUFFIXES}
    kinds = Counter(p.suffix.lower() or "without an ending" for p in others)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5))


def files_in(folder):
    """All files below a folder, through links too, but hidden ones."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in seen:  # links may go in circles
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if name[0] != ".")
        yield from (Path(place, name) for name in names if name[0] != ".")


def check_images(paths: list[Path]) -> None:
    """Reads every file in full, in threads.

    Raises:
        ValueError: Some are damaged or no images; names them.
    """

    def problem(path):
        try:
            read_image(path)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor() as threads:
        results = threads.map(problem, paths)
        label = f"Checking {len(paths):,} images"
        found = [p for p in track(results, label, total=len(paths)) if p]
    if found:
        raise ValueError("\n".join([f"{len(found)} damaged:", *found[:10]]))


def _folders(root):
    children = (c for c in root.iterdir() if c.is_dir() and c.name[0] not in "._")
    return sorted(children, key=lambda child: child.name)
