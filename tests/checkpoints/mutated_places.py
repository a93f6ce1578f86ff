"""Mutates a folder: its files, and other files beside them."""

import os
from pathlib import Path

from tests.checkpoints import mutated_json

STRANGE = ("a\nb", "\x1b[31m", "é", "x" * 200, "model.safetensors.index.json")


def mutate(dice, folder, relative):
    """Changes the files of a folder; returns the allowed change."""
    ways = (_beside, _card, _link, _folder, _pipe, _gone, _hole, _forbidden, _renamed)
    return dice.choice(ways)(dice, folder)


def _file(dice, folder):
    return dice.choice([path for path in folder.iterdir() if path.is_file()] or [None])


def _beside(dice, folder):
    path = folder / dice.choice(["", ".kerasvit-saved", ".kerasvit-saving-1", "x"])
    if path.exists() and not path.is_dir():
        return "same"
    path.mkdir(exist_ok=True)
    name = dice.choice([*STRANGE, "config.json", "model.safetensors", ".bashrc"])
    if not (path / name).exists():
        (path / name).write_bytes(dice.randbytes(100))
    return "config" if path == folder else "same"  # beside a bare file


def _card(dice, folder):
    path = folder / "README.md"
    if path.exists() and not path.is_file():
        return "same"
    page = path.read_bytes() if path.is_file() else b"---\nlicense: mit\n---\n# x\n"
    anchors = "".join(f"a{i}: &a{i} [{f'*a{i - 1},' * 9}]\n" for i in range(1, 7))
    path.write_bytes(
        dice.choice(
            [
                page[: dice.randrange(len(page) + 1)],
                f"---\na0: &a0 x\n{anchors}---\n".encode(),
                b"---\n" + b"[" * 10_000 + b"\n---\n",
                b"---\n!!python/object/apply:os.system [true]\n---\n",
                dice.randbytes(5000),
            ]
        )
    )
    return "same"


def _link(dice, folder):
    if path := _file(dice, folder):
        aim = dice.choice([path.name, "nothing", "/dev/zero", "/dev/null", None])
        if aim is None:  # as the Hub's cache does
            aim = folder.parent / f"{path.name}.blob"
            path.rename(aim)
        else:
            path.unlink()
        path.symlink_to(aim)
    return "same"


def _folder(dice, folder):
    if path := _file(dice, folder):
        path.unlink()
        path.mkdir()
        (path / "config.json").write_bytes(mutated_json.text(dice, {}))
    return "same"


def _pipe(dice, folder):
    if path := _file(dice, folder):
        path.unlink()
        os.mkfifo(path)
    return "same"


def _gone(dice, folder):
    path = _file(dice, folder)
    if path:
        path.unlink()
    return "config"  # without its config.json it is a bare file


def _hole(dice, folder):
    if path := _file(dice, folder):
        size = dice.choice([0, 1, 2**30, 2**40])
        with path.open("r+b") as file:
            file.truncate(size)
    return "bytes"


def _forbidden(dice, folder):
    if path := _file(dice, folder):
        path.chmod(0)
    return "same"


def _renamed(dice, folder):
    if path := _file(dice, folder):
        names = ("model.safetensors", "config.json", "model.bin", "x.npz", "README.md")
        name = folder / dice.choice(names)
        if not name.is_dir():  # an earlier mutation may have made it
            path.replace(name)
    return "bytes"


def permit(folder):
    """Lets everything in a folder be deleted."""
    for path in Path(folder).rglob("*"):
        if not path.is_symlink():
            path.chmod(0o700)
