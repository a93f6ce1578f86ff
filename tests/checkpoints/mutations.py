"""Makes mutated checkpoints, configurations, cards and folders from a seed.

`python -m tests.checkpoints.mutations FIRST COUNT` loads those of COUNT seeds and ends
with one line of JSON: how many loaded, how many were refused, and what failed.
"""

import gc
import hashlib
import json
import os
import random
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from contextlib import nullcontext
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import load_file

import kerasvit
from tests.checkpoints import mutated_bytes, mutated_json, mutated_places
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
SECONDS = 5  # of CPU time of this process
HANGS = 120  # seconds of wall time after which a case is stopped
# The files have kilobytes. Memory that a load may take beyond 1.5 times the file:
# 500,000 values of a configuration (config.py) are 32 MB of empty lists; and
# allocators keep freed memory.
FLOOR = 64 * 2**20

WIDE = {"patch_size": 4, "width": 24, "depth": 2, "num_heads": 3}
VITS = {
    "timm_vit": {**WIDE, "mlp_dim": 96},
    "hf_vit": {**WIDE, "mlp_dim": 40},
    "vit_token": {**WIDE, "width": 16, "num_heads": 2, "mlp_dim": 32},
}


def vit(name):
    return kerasvit.Variant("Small", kerasvit.VisionTransformer, **VITS[name])


def bare(case, load):
    """The tensors of a golden model and its configuration, without other files."""

    def make(folder):
        for name in ("model.safetensors", "checkpoint.npz", "config.json"):
            if (GOLDEN / case / name).exists():
                shutil.copyfile(GOLDEN / case / name, folder / name)
        archive = folder / "checkpoint.npz"
        return archive if archive.exists() else folder

    return make, load


def saved_model(builder, **kwargs):
    def make(folder):
        model = builder(image_size=16, num_classes=3, **kwargs)
        randomised(model, scale=0.2)
        return kerasvit.save_pretrained(model, folder, label_names=["a", "b", "c"])

    return make, kerasvit.from_pretrained


def timm_folder(folder):
    """A folder in timm's format: without kerasvit's section of config.json."""
    saved_model(TinyViT)[0](folder)
    config = json.loads((folder / "config.json").read_text())
    del config["kerasvit"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


SWIN = {"width": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 2}
MIXER = {"patch_size": 4, "width": 16, "depth": 1}
MIXER |= {"tokens_mlp_dim": 8, "channels_mlp_dim": 16}
SEEDS = {
    "our ViT": saved_model(TinyViT),
    "our ViT with sines": saved_model(TinyViT, positions="sincos2d"),
    "our Swin": saved_model(kerasvit.SwinTransformer, patch_size=4, **SWIN),
    "our Mixer": saved_model(kerasvit.MLPMixer, **MIXER),
    "timm's folder": (timm_folder, kerasvit.from_pretrained),
    "timm's file": bare("timm_vit", vit("timm_vit")),
    "timm's Swin": bare("timm_swin", kerasvit.from_pretrained),
    "transformers' ViT": bare("hf_vit", vit("hf_vit")),
    "transformers' Swin": bare("hf_swin", kerasvit.from_pretrained),
    "Google's ViT": bare("vit_token", vit("vit_token")),
    "Google's Mixer": bare("mixer", kerasvit.from_pretrained),
    "big_transfer": bare("bit_x0p5", kerasvit.from_pretrained),
}


class Seeds:
    """The files to mutate, which are made once, and their models."""

    def __init__(self, parent):
        self.made, self.most_memory = {}, 0
        for name, (make, load) in SEEDS.items():
            folder = Path(parent) / name
            folder.mkdir(parents=True)
            weights = make(folder)
            self.made[name] = folder, weights.relative_to(folder), load, load(weights)

    def case(self, seed, parent):
        """Returns (path, loader, model of the original files, allowed change).

        The last is "same", "config" or "bytes": the loaded model must be unchanged, may
        have other arguments, or may have other weights.
        """
        dice = random.Random(seed)
        folder, relative, load, model = self.made[dice.choice(list(self.made))]
        case = Path(parent) / "case"
        shutil.copytree(folder, case)
        kinds = [mutated_bytes, mutated_json, mutated_places]
        allowed = "same"
        for _ in range(dice.choice([1, 1, 1, 2])):
            kind = dice.choices(kinds, [4, 4, 2])[0]
            found = kind.mutate(dice, case, relative)
            allowed = max(allowed, found, key=["same", "config", "bytes"].index)
        return case / relative, load, model, allowed


def arrays(model):
    return {v.path: np.asarray(keras.ops.convert_to_numpy(v)) for v in model.weights}


def differences(found, expected, allowed, path):
    """How a loaded model differs from the expected one, or None."""
    actual, others = found.record["kwargs"], expected.record["kwargs"]
    if allowed == "same" and actual != others:
        return f"arguments {actual} in place of {others}"
    after, before = arrays(found), arrays(expected)
    if not all(np.isfinite(array).all() for array in after.values()):
        return "a weight is not finite"
    if allowed == "bytes":
        return other_values(after, path)
    for name, array in after.items():
        resized = name in before and before[name].shape != array.shape
        if not resized and not np.array_equal(array, before.get(name)):
            return f"{name} has other values"
    return None


def other_values(after, path):
    """How weights differ from the numbers that another reader finds, or None."""
    path = path / "model.safetensors" if path.is_dir() else path
    beside = path.parent / "config.json"
    text = beside.read_text(errors="replace") if beside.is_file() else ""
    hashes = re.findall(r'"weights_sha256": "(\w+)"', text)
    if hashes and _hash(path) not in hashes:
        return "tensors that config.json is not of"
    npz = path.suffix == ".npz"
    with np.load(path) if npz else nullcontext(load_file(path)) as read:
        held = [np.asarray(read[name], "float32").ravel() for name in read]
    held = np.sort(np.concatenate(held))
    made = np.sort(np.concatenate([array.ravel() for array in after.values()]))
    if len(held) == len(made) and not np.array_equal(held, made):
        return "weights that are not the numbers in the file"
    return None


def saved_beside(folder, model, load):
    """What is wrong with saving into a folder with any README.md, or None."""
    before, start = listing(folder), time.process_time()
    measured, used = forget_the_peak(), memory("VmRSS")
    try:
        kerasvit.save_pretrained(model, folder)
    except ValueError as error:
        if listing(folder) != before:
            return f"refused, and the folder changed: {error}"
    else:
        same = zip(load(folder).weights, model.weights, strict=True)
        if not all(np.array_equal(*map(keras.ops.convert_to_numpy, p)) for p in same):
            return "what was saved is another model"
    if measured and memory("VmHWM") - used > FLOOR:
        return f"saved with {(memory('VmHWM') - used) / 2**20:.0f} MB of memory"
    return "saved too slowly" if time.process_time() - start > SECONDS else None


def listing(folder):
    """Mode, size, time of change and content of all files in a folder."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else None
        if stat.S_ISREG(about.st_mode):
            content = _hash(path)
        found[str(path)] = about.st_mode, about.st_size, about.st_mtime_ns, content
    return found


def _hash(path):
    if path.stat().st_size > 2**28:  # a file with a hole
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()


def memory(key):
    """Bytes of this process: `VmRSS` now, `VmHWM` at most; None where unknown."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def forget_the_peak():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _stop(*_):
    raise TimeoutError(f"waits for more than {HANGS} seconds")


def attempt(seeds, seed, folder):
    """Returns ("loaded" or "refused", None) or ("failed", reason) for one seed."""
    path, load, expected, allowed = seeds.case(seed, folder)
    before = listing(folder)
    files = [about[1] for name, about in before.items() if about[3] is not None]
    measured = forget_the_peak()
    start, used = time.process_time(), memory("VmRSS")
    signal.alarm(HANGS)
    try:
        model, outcome = load(path), "loaded"
    except ValueError as error:
        model, outcome, text = None, "refused", str(error)
        if not text.replace("\n", "").isprintable():
            return "failed", f"a message that does not print: {text!r:.300}"
        if isinstance(error, UnicodeError):
            return "failed", traceback.format_exc()[-1500:]
    except Exception:
        return "failed", traceback.format_exc()[-1500:]
    finally:
        signal.alarm(0)
    if (seconds := time.process_time() - start) > SECONDS:
        return "failed", f"{outcome} after {seconds:.1f} seconds"
    if listing(folder) != before:
        return "failed", f"{outcome}, and the folder changed"
    more = memory("VmHWM") - used if measured else 0
    if more > FLOOR + 1.5 * max(files, default=0):
        return "failed", f"{outcome}, with {more / 2**20:.0f} MB of memory"
    seeds.most_memory = max(seeds.most_memory, more)
    wrong = model and differences(model, expected, allowed, path)
    if model and not wrong and (folder / "case" / "README.md").is_file():
        wrong = saved_beside(folder / "case", model, load)
    return ("failed", wrong) if wrong else (outcome, None)


def run(first, count, parent):
    """{"loaded", "refused": numbers, "failed": {seed: why}} of so many seeds.

    And "megabytes": the most memory that any of the loaded or refused took.
    """
    signal.signal(signal.SIGALRM, _stop)
    seeds = Seeds(Path(parent) / "seeds")
    outcomes = {"loaded": 0, "refused": 0, "failed": {}}
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            try:
                outcome, why = attempt(seeds, seed, Path(folder))
            except Exception:  # in saving or in this script
                why = traceback.format_exc()[-1500:]
            mutated_places.permit(folder)
        if why:
            outcomes["failed"][seed] = why
        else:
            outcomes[outcome] += 1
        if seed % 100 == 0:
            keras.backend.clear_session()
            gc.collect()
    return {**outcomes, "megabytes": seeds.most_memory / 2**20}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as top:
        print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), top)))
