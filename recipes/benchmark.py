"""Time kerasvit beside other libraries, on this machine.

    python recipes/benchmark.py forward     # ViT-B/16 at 224, inference
    python recipes/benchmark.py train       # ViT-S/16 at 224, one AdamW step
    python recipes/benchmark.py sam         # the same step, plain and with SAM
    python recipes/benchmark.py train --model BiTR50x1      # or any other

The rivals are keras-hub's ViT, for BiT and its like the ResNet-50 v2 of
keras.applications, with batch normalisation, and timm's model under torch, where they
are installed. All run in one process and take turns: a round times one step of each,
and the ratio to a rival is the median over rounds of (our time / its time), so that a
machine that slows down slows all. The backend is that of KERAS_BACKEND. Measured
ratios: README.md.
"""

import dataclasses
import os
import statistics
import time
from typing import Annotated, Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tyro  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import kerasvit  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Config:
    """What to time."""

    what: Annotated[Literal["forward", "train", "sam"], tyro.conf.Positional]
    model: str | None = None
    """One of kerasvit.list_models(); default ViTB16 for forward, ViTS16 else."""
    image_size: int | None = None
    """Pixels; default the model's own."""
    batch_size: int = 8
    """Images a step."""
    rounds: int = 7
    """Timed steps of each contender."""
    warmup: int = 2
    """Steps of each before, which compile."""
    dtype: Literal["float32", "mixed_bfloat16"] = "float32"
    """Precision of the Keras models; timm runs in float32 or under autocast."""


# What timm calls the models that its plain ViT does not cover.
TIMM = {
    **{f"BiTR{size}": f"resnetv2_{size}_bit" for size in ("50x1", "101x1", "152x2")},
    **{f"Mixer{n}{p}": f"mixer_{n.lower()}{p}_224" for n in "SBL" for p in (16, 32)},
    "SwinT": "swin_tiny_patch4_window7_224",
    "SwinS": "swin_small_patch4_window7_224",
    "SwinB": "swin_base_patch4_window7_224",
    "RViTTi16": "vit_tiny_r_s16_p8_224",
    "R26ViTS32": "vit_small_r26_s32_224",
    "R50ViTB16": "vit_base_r50_s16_224",
    "R50ViTL32": "vit_large_r50_s32_224",
    "DeiTB16Distilled": "deit_base_distilled_patch16_224",
}
RESNET50 = ("BiTR50x1", "PreActResNet50", "AlterNet50")  # what ResNet-50 v2 is like


def main(config: Config) -> None:
    """Builds all contenders, times them in turns and prints the table."""
    keras.config.set_dtype_policy(config.dtype)
    name = config.model or ("ViTB16" if config.what == "forward" else "ViTS16")
    variant = getattr(kerasvit, name)
    size = config.image_size or variant.defaults["image_size"]
    config = dataclasses.replace(config, model=name, image_size=size)
    rng = np.random.default_rng(0)
    shape = (config.batch_size, size, size, 3)
    images = rng.normal(size=shape).astype("float32")
    labels = rng.integers(0, variant.defaults["num_classes"], config.batch_size)

    steps = {}
    for rival, build in contenders(config).items():
        steps[rival] = build(config, variant.numbers, images, labels)
    times = {rival: [] for rival in steps}
    for turn in range(config.warmup + config.rounds):
        for rival, step in steps.items():
            start = time.perf_counter()
            step()
            if turn >= config.warmup:
                times[rival].append(time.perf_counter() - start)
    report(config, name, times)


def contenders(config):
    """Builders of a step, ours first."""
    if config.what == "sam":
        return {"kerasvit": sam, "plain step": ours}
    found = {"kerasvit": ours}
    vit = config.model.startswith("ViT") and "CIFAR" not in config.model
    if vit and _installed("keras_hub"):
        found["keras-hub"] = keras_hub_vit
    if config.model in RESNET50:
        found["ResNet50V2"] = keras_resnet
    torch = keras.backend.backend() == "torch"
    if torch and (vit or config.model in TIMM) and _installed("timm"):
        found["timm"] = timm_model
    return found


def ours(config, numbers, images, labels):
    """A step of ours."""
    model = getattr(kerasvit, config.model)(image_size=config.image_size)
    return _keras_step(config, model, images, labels)


def sam(config, numbers, images, labels):
    """A step of ours with SAM around it."""
    model = getattr(kerasvit, config.model)(image_size=config.image_size)
    return _keras_step(config, kerasvit.SAM(model, rho=0.05), images, labels)


def keras_resnet(config, numbers, images, labels):
    """A step of the ResNet-50 v2 of keras.applications."""
    model = keras.applications.ResNet50V2(
        weights=None, input_shape=images.shape[1:], classifier_activation=None
    )
    return _keras_step(config, model, images, labels)


def keras_hub_vit(config, numbers, images, labels):
    """A step of keras-hub's ViT of the same size."""
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    backbone = ViTBackbone(
        image_shape=(config.image_size, config.image_size, 3),
        patch_size=numbers["patch_size"],
        num_layers=numbers["depth"],
        num_heads=numbers["num_heads"],
        hidden_dim=numbers["width"],
        mlp_dim=numbers["mlp_dim"],
    )
    model = ViTImageClassifier(backbone=backbone, num_classes=1000, pooling="token")
    return _keras_step(config, model, images, labels)


def _keras_step(config, model, images, labels):
    if config.what == "forward":
        return lambda: model.predict_on_batch(images)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-4), loss)
    return lambda: model.train_on_batch(images, labels)


def timm_model(config, numbers, images, labels):
    """A step of timm's model of the same size, in plain torch."""
    import timm
    import torch

    if config.model in TIMM:
        size = {} if "BiT" in config.model else {"img_size": config.image_size}
        model = timm.create_model(TIMM[config.model], num_classes=1000, **size)
    else:
        model = timm.models.VisionTransformer(
            img_size=config.image_size,
            patch_size=numbers["patch_size"],
            embed_dim=numbers["width"],
            depth=numbers["depth"],
            num_heads=numbers["num_heads"],
            mlp_ratio=numbers["mlp_dim"] / numbers["width"],
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    # Copied to the device in every step, as Keras does with its arrays.
    x = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    y = torch.from_numpy(labels)
    half = config.dtype == "mixed_bfloat16"
    cast = torch.autocast(device, torch.bfloat16, enabled=half)

    def forward():
        with torch.no_grad(), cast:
            return model(x.to(device)).float().cpu().numpy()

    if config.what == "forward":
        model.eval()
        return forward
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def train():
        optimizer.zero_grad()
        with cast:
            logits = model(x.to(device))
        loss = torch.nn.functional.cross_entropy(logits.float(), y.to(device))
        loss.backward()
        optimizer.step()
        return loss.item()

    return train


def _installed(package):
    try:
        __import__(package)
    except ImportError:
        return False
    except Exception as error:
        Console(stderr=True).print(f"{package} is left out, its import fails: {error}")
        return False
    return True


def report(config, name, times):
    """Prints median and spread of each contender, and our ratio to it."""
    backend = keras.backend.backend()
    table = Table(
        title=f"{name} {config.what}, {config.image_size} px, batch "
        f"{config.batch_size}, {config.dtype}, {backend}, {config.rounds} rounds"
    )
    for column in ("", "median s", "least s", "most s", "kerasvit / it"):
        table.add_column(column, justify="left" if not column else "right")
    for rival, seconds in times.items():
        turns = zip(times["kerasvit"], seconds, strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in turns)
        numbers = (statistics.median(seconds), min(seconds), max(seconds), ratio)
        said = "" if rival == "kerasvit" else f"{ratio:.2f}"
        table.add_row(rival, *(f"{n:.3f}" for n in numbers[:3]), said)
    Console(width=100).print(table)


if __name__ == "__main__":
    main(tyro.cli(Config))
