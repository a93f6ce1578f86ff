"""Lists and checks the images in a folder of class folders.

given_splits(root)     # {} or {"train": root/train, "validation": …}
classes(root)          # {"cat": [root/cat/0.jpg, …], "dog": […]}
check_images(paths)    # reads every image
"""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import track

from kerasvit.preprocessing import ChannelsError, read_bands, read_image

#: Endings of the files that are images, in lower case.
SUFFIXES = {
    *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".avif", ".bmp", ".gif", ".tif"),
    *(".tiff", ".npy"),
}
#: Sentence of an error for HEIC files, which are not read.
CONVERT_HEIC = (
    "Convert HEIC to JPEG, for example with ImageMagick, `magick mogrify -format jpg "
    "*.heic`."
)
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid"),
    "test": ("test", "testing"),
}


def existing(path: str | os.PathLike, *, table: bool) -> Path:
    """Returns the path of an existing folder, or table; else raises a `ValueError`."""
    found = Path(os.path.expanduser(path))
    if not str(path) or not (found.is_file() if table else found.is_dir()):
        raise ValueError(
            f"There is no {'file' if table else 'folder'} {path} (working "
            f"directory: {Path.cwd()}). Give a folder that contains one folder of "
            "images per class to `from_folder`, or a CSV with the columns path and "
            "label to `from_table`."
        )
    return found


def given_splits(root: Path) -> dict[str, Path]:
    """Returns {part: folder}, train first; empty if the folder has no splits."""
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


def classes(root: Path) -> dict[str, list[Path]]:
    """Returns {name of the class folder: sorted image paths}."""
    found = {}
    for child in _folders(root):
        images = [p for p in files_in(child) if p.suffix.lower() in SUFFIXES]
        _check_name(child)
        found[child.name] = sorted(images)
    if not any(found.values()):
        raise ValueError(
            f"{root} holds no folders of images. Expected: CLASS/IMAGE.jpg in it, or "
            f"the same in train, validation and test. {CONVERT_HEIC}"
        )
    if empty := [name for name, files in found.items() if not files]:
        raise ValueError(
            f"{root}: no images in {', '.join(empty)}. Remove it, or add images. "
            f"Extensions: {', '.join(sorted(SUFFIXES))}. {CONVERT_HEIC}"
        )
    return found


def unread_files(root: Path) -> str:
    """Returns counts of the files that `classes` does not read; "" for none."""
    # Images are read from class folders, which are in the root or in split folders.
    parents = list(given_splits(root).values()) or [root]
    beside = [p for folder in [root, *parents] for p in folder.iterdir() if p.is_file()]
    inside = [p for parent in parents for c in _folders(parent) for p in files_in(c)]
    others = [p for p in inside if p.suffix.lower() not in SUFFIXES]
    others += {p for p in beside if p.suffix.lower() in SUFFIXES}
    kinds = Counter(p.suffix.lower() or "without an extension" for p in others)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5))


def files_in(folder: Path) -> Iterator[Path]:
    """Yields all files below a folder that are not hidden; follows links."""
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(parent)) in seen:  # links may form a cycle
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if name[0] != ".")
        yield from (Path(parent, name) for name in names if name[0] != ".")


def check_images(paths: list[Path], channels: int = 3) -> None:
    """Decodes every image, in threads.

    Args:
        paths: Files.
        channels: Number of channels that they must have; with three, all become RGB.

    Raises:
        ChannelsError: A file has another number of channels.
        ValueError: Files are damaged or no images; the message lists them.
    """

    def problem(path: Path) -> str | None:
        try:
            if channels == 3:
                read_image(path)
            else:
                read_bands(path, channels, (0, 1))  # whatever the range
        except ChannelsError:  # maybe of all files
            raise
        except ValueError as error:
            return str(error)
        return None

    with ThreadPoolExecutor() as threads:
        results = threads.map(problem, paths)
        label = f"Checking {len(paths):,} image{'s' if len(paths) != 1 else ''}"
        console = Console(force_jupyter=False)  # whose bar needs ipywidgets
        bar = track(results, label, total=len(paths), console=console)
        found = [p for p in bar if p]
    if found:
        raise ValueError("\n".join([f"{len(found)} damaged:", *found[:10]]))


def _folders(root: Path) -> list[Path]:
    children = (c for c in root.iterdir() if c.is_dir() and c.name[0] not in "._")
    return sorted(children, key=lambda child: child.name)


def _check_name(path: Path) -> None:
    """Raises a `ValueError` for a path whose name is not UTF-8, as a card needs."""
    try:
        path.name.encode("utf-8")
    except UnicodeEncodeError as error:  # from an old archive or another system
        raise ValueError(
            f"The name {path.name!r} is not UTF-8 and cannot be written into a "
            "model's card. Rename it."
        ) from error
