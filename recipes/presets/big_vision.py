"""Mixer, BiT and a ViT baseline of google-research/big_vision, and ViT on ImageNet-21k.

In big_vision, the weight decay is multiplied by the schedule but not by the rate: its
1e-4 at the rate 1e-3 is 0.1 here.
"""

from .preset import Result, pretraining

MIXER = "big_vision configs/mlp_mixer_i1k.py"
BIT = "big_vision configs/bit_i1k.py"
BIT_21K = "big_vision configs/bit_i21k.py"
BIT_TABLE = "arXiv 1912.11370 (BiT), from scratch"
BIT_SIZES = "R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4"
BASELINE = "big_vision configs/vit_s16_i1k.py"
ISSUE = "google-research/vision_transformer#2"
# What a user must have for ImageNet-21k: tensorflow-datasets does not have it.
IMAGENET_21K = (
    "tensorflow-datasets has no ImageNet-21k. Give class folders with --data, or "
    "prepare a dataset imagenet21k with the splits train and validation in "
    "TFDS_DATA_DIR. The published trainings have 21,843 classes (release of autumn "
    "2011, with two empty ones: 21,841) and all images but 51,200"
)


def _bit(name: str) -> tuple[Result, ...]:
    """Returns a row for each size of google-research/big_transfer."""
    return tuple(
        Result(BIT_TABLE, f"{name} {size}", f"--model BiT{size}", "–")
        for size in BIT_SIZES
    )


PRESETS = {
    "mixer": pretraining(
        {
            "dataset": "imagenet2012",
            "model": "MixerB16",
            "augment": "photo_mixed",
            "batch_size": 4096,
            "epochs": 300,
            "learning_rate": 1e-3,
            "schedule": "linear",
            "warmup_steps": 10_000,
            "weight_decay": 0.1,  # 1e-4 in big_vision
            "clip": 1.0,
            "loss": "sigmoid",
            "stochastic_depth": 0.1,
        },
        sources={
            "augment batch_size epochs learning_rate schedule warmup_steps "
            "weight_decay clip loss stochastic_depth": MIXER
        },
        hardware="TPU v3-128, 2 h 11 min",
        differs="stochastic depth divides a kept branch by the rate at which it is "
        "kept; that of big_vision does not",
        results=(Result(MIXER, "Mixer-B/16", "", "76.3"),),
    ),
    "bit": pretraining(
        {
            "dataset": "imagenet2012",
            "model": "BiTR50x1",
            "augment": "photo",
            "batch_size": 4096,
            "epochs": 90,
            "optimizer": "sgd",
            "learning_rate": 1.6,  # 0.1 per 256 images
            "schedule": "cosine",
            "warmup_steps": 1_000,
            "weight_decay": 1e-3,  # 1.6e-3 in big_vision
            "clip": 1.0,
            "loss": "softmax",
        },
        sources={
            "augment batch_size epochs optimizer learning_rate schedule warmup_steps "
            "weight_decay clip loss": BIT
        },
        hardware="TPU v3-128, 32 min for R50x1",
        differs="the ResNet of that file is post-activation (ResNet-v1) with group "
        "normalisation; BiTR50x1 is that of the paper",
        results=_bit("BiT-S"),
    ),
    "bit_i21k": pretraining(
        {
            "dataset": "imagenet21k",
            "model": "BiTR50x1",
            "augment": "photo",
            "batch_size": 4096,
            "epochs": 90,
            "optimizer": "sgd",
            "learning_rate": 0.48,  # 0.03 per 256 images
            "schedule": "cosine",
            "warmup_steps": 5_000,
            "weight_decay": 1e-3,  # 4.8e-4 in big_vision
            "clip": 1.0,
            "loss": "sigmoid",
        },
        sources={
            "augment batch_size epochs optimizer learning_rate schedule warmup_steps "
            "weight_decay clip loss": BIT_21K
        },
        hardware="not stated",
        differs=f"{IMAGENET_21K}. The paper's own schedule divides the rate by 10 "
        "after 30, 60 and 80 epochs",
        results=_bit("BiT-M"),
    ),
    "vit_i21k": pretraining(
        {
            "dataset": "imagenet21k",
            "model": "ViTB16",
            "model_options": ("representation_size=768",),
            "augment": "photo",
            "batch_size": 4096,
            "epochs": 90,
            "learning_rate": 1e-3,
            "schedule": "linear",
            "final_rate": 0.01,
            "warmup_steps": 10_000,
            "weight_decay": 0.03,
            "clip": 1.0,
            "loss": "sigmoid",
            "dropout": 0.1,
        },
        sources={
            "model_options batch_size epochs learning_rate schedule final_rate "
            "warmup_steps weight_decay dropout": ISSUE,
            "clip loss augment": "big_vision configs/vit_i21k.py",
        },
        hardware="TPUv3, 230 core-days for ViT-L/16 (arXiv 2010.11929, Table 2)",
        differs=IMAGENET_21K,
        results=(Result("arXiv 2010.11929, on ImageNet-21k", "ViT-B/16", "", "–"),),
    ),
    "vit_s16_90": pretraining(
        {
            "dataset": "imagenet2012",
            "model": "ViTS16",
            "model_options": (
                "pool=average",
                "positions=sincos2d",
                "representation_size=384",
            ),
            "augment": "augreg_light2",
            "batch_size": 1024,
            "epochs": 90,
            "learning_rate": 1e-3,
            "schedule": "cosine",
            "warmup_steps": 10_000,
            "weight_decay": 0.1,  # 1e-4 in big_vision
            "clip": 1.0,
            "loss": "softmax",
        },
        sources={
            "model_options augment batch_size epochs learning_rate schedule "
            "warmup_steps weight_decay clip loss": BASELINE
        },
        hardware="TPU v3-8, 6 to 7 hours",
        results=(Result(f"arXiv 2205.01580, {BASELINE}", "ViT-S/16", "", "76.5"),),
    ),
}
