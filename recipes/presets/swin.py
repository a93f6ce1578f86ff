"""Swin Transformers.

Liu et al. 2021, arXiv 2103.14030, with the settings of microsoft/Swin-Transformer.
"""

from .preset import Preset, Result, pretraining

CODE = "microsoft/Swin-Transformer config.py"
TABLE = "arXiv 2103.14030, Table 1: ImageNet-1k"
SETTINGS = {
    "dataset": "imagenet2012",
    "augment": "swin",
    "batch_size": 1024,
    "epochs": 300,
    "learning_rate": 1e-3,  # 5e-4 per 512 images
    "schedule": "cosine",
    "final_rate": 0.01,
    "warmup_steps": 24_522,  # 20 epochs of 98 % of the images
    "warmup_from": 1e-3,
    "weight_decay": 0.05,
    "clip": 5.0,
    "loss": "softmax",
    "label_smoothing": 0.1,
}


def _preset(model: str, name: str, depth: float, file: str, value: str) -> Preset:
    return pretraining(
        {**SETTINGS, "model": model, "stochastic_depth": depth},
        sources={
            " ".join(k for k in SETTINGS if k not in ("dataset", "batch_size")): CODE,
            "batch_size": "microsoft/Swin-Transformer get_started.md",
            "stochastic_depth": f"configs/swin/{file}.yaml there",
        },
        hardware="8 GPUs",
        differs="cubic interpolation of crops",
        results=(Result(TABLE, name, "", value),),
    )


PRESETS = {
    "swin_t": _preset("SwinT", "Swin-T", 0.2, "swin_tiny_patch4_window7_224", "81.3"),
    "swin_s": _preset("SwinS", "Swin-S", 0.3, "swin_small_patch4_window7_224", "83.0"),
    "swin_b": _preset("SwinB", "Swin-B", 0.5, "swin_base_patch4_window7_224", "83.5"),
}
