"""Kernels, colours of data sets, and the default transform of each code base."""

from typing import Any

# Pillow's filters in the order of its numbers, which transformers' files contain.
KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
# Fields of `kerasvit.Preprocessing`: mean and standard deviation of the colours of
# ImageNet's images, for values 0 to 1.
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
# The same for CIFAR-100; ops/datasets.py of how-do-vits-work.
CIFAR100 = {"mean": (0.5071, 0.4867, 0.4408), "std": (0.2675, 0.2565, 0.2761)}

# What errors on settings of other libraries advise.
STATE_IT = (
    "State the preprocessing in the call: `preprocessing=kerasvit.Preprocessing(...)`."
)

ORIGINS: dict[str, dict[str, Any]] = {  # by `Source.code_base`
    "timm": {"crop": 0.9, "mode": "center", "kernel": "bicubic"},  # models/…py `_cfg`
    # vit_jax/input_pipeline.py
    "vision_transformer": {
        "crop": 1.0,
        "mode": "squash",
        "kernel": "bilinear",
        "antialias": False,
    },
    # input_pipeline_tf2_or_jax.py
    "big_transfer": {
        "crop": 1.0,
        "mode": "squash",
        "kernel": "bilinear",
        "antialias": False,
    },
    # ops/datasets.py
    "how_do_vits_work": {
        "crop": 0.875,
        "mode": "center",
        "kernel": "bilinear",
        **IMAGENET,
    },
    # transforms/_presets.py `ImageClassification`
    "torchvision": {
        "crop": 0.875,
        "mode": "center",
        "kernel": "bilinear",
        **IMAGENET,
    },
    # layers/preprocessing/image_converter.py
    "keras_hub": {
        "crop": 1.0,
        "mode": "center",
        "kernel": "bilinear",
        "antialias": False,
    },
    "transformers": {"crop": 1.0, "mode": "squash", "kernel": "bilinear"},
    "kerasvit": {},  # the configuration contains all fields
}
