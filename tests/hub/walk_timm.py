"""Walks timm's registry: which pretrained models kerasvit opens, and why not others.

    python -m tests.hub.walk_timm                       all models of the modules
    python -m tests.hub.walk_timm 'vit_*dinov3*'        those whose names match

No weights are needed. timm builds each model on torch's device "meta" and writes its
config.json; kerasvit loads a file with the names and shapes of its tensors. A model
opens if each tensor is assigned, and each variable once.
"""

import argparse
import fnmatch
import functools
import json
import os
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")

import kerasvit
from recipes.benchmarks.import_timm import import_timm
from tests.weights import published_files
from tests.weights.outlines import outlines
from tests.weights.published.timm_files import timm_files

# gMLP, ResMLP and ResNets of version 2 that are no BiT are refused.
MODULES = (
    *("vision_transformer", "vision_transformer_hybrid", "deit", "beit", "eva"),
    *("mlp_mixer", "pit", "resnetv2", "swin_transformer"),
)


def names():
    """Returns the names of all pretrained models, with their tags.

    Of timm's ResNets only those of ResNeXt.
    """
    timm = import_timm()
    names = [n for m in MODULES for n in timm.list_models(pretrained=True, module=m)]
    return names + timm.list_models("resnext*", pretrained=True, module="resnet")


def refusal(name):
    """Returns why kerasvit refuses a model of timm; None if it opens."""
    files, config = timm_files(f"timm/{name}")
    known = {key: config[key] for key in ("architecture", "global_pool", "num_classes")}
    tensors = tuple(files[-1].tensors.items())  # as this version of timm writes them
    return _refusal(tensors, json.dumps(known), json.dumps(config["pretrained_cfg"]))


@functools.cache
def _refusal(tensors, config, pretrained_cfg):
    stated = {**json.loads(config), "pretrained_cfg": json.loads(pretrained_cfg)}
    with tempfile.TemporaryDirectory() as folder, outlines():
        published_files.write_zeros(Path(folder, "model.safetensors"), dict(tensors))
        Path(folder, "config.json").write_text(json.dumps(stated))
        try:
            model = kerasvit.from_pretrained(folder)
        except ValueError as error:
            return " ".join(str(error).removeprefix(folder).split())
    left = [weight.path for weight in model.weights if weight.assigned != 1]
    return f"not assigned once: {', '.join(left)}" if left else None


def main(arguments=None):
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hub.walk_timm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pattern", nargs="?", default="*")
    pattern = parser.parse_args(arguments).pattern
    chosen = fnmatch.filter(names(), pattern)
    verdicts = Counter()
    for name in chosen:
        why = refusal(name)
        verdicts[why is None] += 1
        print(f"{'opens' if why is None else 'refused'}  {name}", flush=True)
        if why:
            print(f"         {why}")
    share = verdicts[True] / max(len(chosen), 1)
    print(f"{verdicts[True]} of {len(chosen)} open ({share:.1%})")


if __name__ == "__main__":
    main()
