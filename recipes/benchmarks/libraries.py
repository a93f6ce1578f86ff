"""Measures `forward` and `train`: the same step of kerasvit and other libraries.

The others, if installed, are keras-hub's ViT, for BiT and similar models the ResNet-50
v2 of keras.applications, with batch normalisation, and timm's model in plain torch.
"""

from collections.abc import Callable

import keras
import numpy as np
from rich.console import Console

import kerasvit

from .import_timm import import_timm
from .results import Result
from .settings import Config
from .timing import SPREAD, in_turns, kerasvit_ratio, spread

# Names in timm of the models that are not built with timm's VisionTransformer.
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
RESNET50 = ("BiTR50x1", "PreActResNet50", "AlterNet50")  # similar to ResNet-50 v2


def measure(config: Config, backend: str) -> Result:
    """Times kerasvit and other libraries, and computes the ratios."""
    times = in_turns(steps(config), config)
    rows = [
        [name, *spread(seconds), kerasvit_ratio(times, name)]
        for name, seconds in times.items()
    ]
    return Result.of(config, backend, [*SPREAD, "kerasvit / it"], rows, times)


def steps(config: Config) -> dict[str, Callable]:
    """Returns {name: step} of all installed libraries, kerasvit first."""
    numbers = getattr(kerasvit, config.model).numbers
    images, labels = batch(config)
    return {
        name: build(config, numbers, images, labels)
        for name, build in builders(config).items()
    }


def batch(config):
    """Returns random images and labels."""
    rng = np.random.default_rng(0)
    classes = getattr(kerasvit, config.model).defaults["num_classes"]
    shape = (config.batch_size, config.image_size, config.image_size, 3)
    images = rng.normal(size=shape).astype("float32")
    return images, rng.integers(0, classes, config.batch_size)


def builders(config):
    """Returns {name: function that builds a step}, kerasvit first."""
    found = {"kerasvit": kerasvit_model}
    vit = config.model.startswith("ViT") and "CIFAR" not in config.model
    if vit and installed("keras_hub"):
        found["keras-hub"] = keras_hub_vit
    if config.model in RESNET50:
        found["ResNet50V2"] = keras_resnet
    torch = keras.backend.backend() == "torch"
    if torch and (vit or config.model in TIMM) and installed("timm"):
        found["timm"] = timm_model
    return found


def kerasvit_model(config, numbers, images, labels):
    """Returns a step of kerasvit's model."""
    model = getattr(kerasvit, config.model)(image_size=config.image_size)
    return keras_step(config, model, images, labels)


def keras_resnet(config, numbers, images, labels):
    """Returns a step of the ResNet-50 v2 of keras.applications."""
    model = keras.applications.ResNet50V2(
        weights=None, input_shape=images.shape[1:], classifier_activation=None
    )
    return keras_step(config, model, images, labels)


def keras_hub_vit(config, numbers, images, labels):
    """Returns a step of keras-hub's ViT of the same size."""
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
    return keras_step(config, model, images, labels)


def keras_step(config, model, images, labels, optimizer=None):
    """Returns a step of a Keras model or trainer, by default with AdamW."""
    if config.what == "forward":
        return lambda: model.predict_on_batch(images)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.AdamW(1e-4), loss)
    return lambda: model.train_on_batch(images, labels)


def timm_model(config, numbers, images, labels):
    """Returns a step of timm's model of the same size, in plain torch."""
    import torch

    timm = import_timm()
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


def installed(package):
    """Returns whether a package can be imported; prints the error of its import."""
    try:
        import_timm() if package == "timm" else __import__(package)
    except ImportError:
        return False
    except Exception as error:
        Console(stderr=True).print(
            f"{package} is skipped, because its import fails: {error}"
        )
        return False
    return True
