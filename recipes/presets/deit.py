"""DeiT, its distillation and its fine-tuning.

Touvron et al. 2021, "Training data-efficient image transformers", arXiv 2012.12877.
"""

from .preset import Result, finetuning, pretraining

CODE = "facebookresearch/deit main.py"
TABLE = "arXiv 2012.12877, facebookresearch/deit README_deit.md"
EMA = (
    "the code also tracks averaged weights, momentum 0.99996, but reports those of the "
    "training; cubic interpolation of crops"
)
TEACHER = (
    "the teacher of the paper, RegNetY-16GF, is not in keras.applications: "
    "ConvNeXtSmall, another convolutional network of ImageNet-1k, takes its place. "
    "--teacher FILE.keras takes any"
)
SETTINGS = {
    "dataset": "imagenet2012",
    "augment": "deit",
    "batch_size": 1024,
    "epochs": 300,
    "learning_rate": 1e-3,  # 5e-4 per 512 images
    "schedule": "cosine",
    "final_rate": 0.01,
    "warmup_steps": 6_131,  # 5 epochs of 98 % of the images
    "warmup_from": 1e-3,
    "weight_decay": 0.05,
    "clip": 0.0,
    "loss": "softmax",
    "label_smoothing": 0.1,
    "stochastic_depth": 0.1,
}
SOURCES = {
    "augment epochs learning_rate schedule final_rate warmup_steps warmup_from "
    "weight_decay clip loss label_smoothing stochastic_depth": CODE,
    "batch_size": "facebookresearch/deit README_deit.md",
}

PRESETS = {
    "deit": pretraining(
        {**SETTINGS, "model": "DeiTS16"},
        sources=SOURCES,
        hardware="4 GPUs with 256 images each for Ti and S, 16 GPUs with 64 each for B",
        differs=EMA,
        results=(
            Result(TABLE, "DeiT-Ti", "--model DeiTTi16", "72.2"),
            Result(TABLE, "DeiT-S", "--model DeiTS16", "79.9"),
            Result(TABLE, "DeiT-B", "--model DeiTB16", "81.8"),
        ),
    ),
    "deit_distilled": pretraining(
        {
            **SETTINGS,
            "model": "DeiTS16Distilled",
            "teacher": "ConvNeXtSmall",
            "distill": "hard",
            "alpha": 0.5,
        },
        sources={
            **SOURCES,
            "distill": "README_deit.md there",
            "alpha": "arXiv 2012.12877, equation 3",
        },
        unconfirmed={"teacher": TEACHER},
        hardware="16 GPUs of 32 GB, for B",
        differs=EMA,
        results=(
            Result(TABLE, "DeiT-Ti, distilled", "--model DeiTTi16Distilled", "74.5"),
            Result(TABLE, "DeiT-S, distilled", "--model DeiTS16Distilled", "81.2"),
            Result(TABLE, "DeiT-B, distilled", "--model DeiTB16Distilled", "83.4"),
            Result(
                TABLE,
                "DeiT-B, distilled, 1,000 epochs, then 384 pixels",
                "--model DeiTB16Distilled --epochs 1000",
                "85.2",
                "deit_384 --model None --weights FOLDER --teacher ConvNeXtSmall",
            ),
        ),
    ),
}
FINETUNE = {
    "deit_384": finetuning(
        {
            "model": "DeiTB16",
            "weights": "imagenet",
            "dataset": "imagenet2012",
            "image_size": (384,),
            "augment": "deit",
            "batch_size": 512,
            "epochs": 30,
            "optimizer": "adamw",
            "learning_rate": 5e-6,
            "schedule": "cosine",
            "final_rate": 1.0,
            "warmup_steps": 12_261,  # 5 epochs of 98 % of the images
            "warmup_from": 0.2,
            "weight_decay": 1e-8,
            "decayed": "kernels",
            "clip": 0.0,
            "label_smoothing": 0.1,
            "linear_head": False,
            "rho": 0.0,
        },
        sources={
            "weights image_size batch_size epochs learning_rate weight_decay "
            "final_rate": "facebookresearch/deit README_deit.md",
            "augment optimizer schedule warmup_steps warmup_from decayed clip "
            "label_smoothing rho linear_head": CODE,
        },
        hardware="16 GPUs of 32 GB, 32 images on each",
        differs="stochastic depth is off",
        results=(Result(TABLE, "DeiT-B with 384 pixels", "", "82.9"),),
    )
}
