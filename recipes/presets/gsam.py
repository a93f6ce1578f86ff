"""GSAM, without augmentation.

Zhuang et al. 2022, "Surrogate Gap Minimization Improves Sharpness-Aware Training",
arXiv 2203.08065, with the settings of its authors in google-research/big_vision.
"""

from .preset import Result, pretraining

CODE = "big_vision configs/proj/gsam/vit_i1k_gsam_no_aug.py"

PRESETS = {
    "gsam": pretraining(
        {
            "dataset": "imagenet2012",
            "model": "ViTB32",
            "model_options": ("pool=average",),
            "augment": "photo",
            "batch_size": 4096,
            "epochs": 300,
            "learning_rate": 3e-3,
            "schedule": "linear",
            "final_rate": 0.01,
            "warmup_steps": 10_000,
            "weight_decay": 1 / 3,  # 0.001 in big_vision
            "clip": 1.0,
            "loss": "sigmoid",
            "method": "gsam",
            "rho": 0.6,
            "rho_min": 0.1,
            "sam_alpha": 0.6,
        },
        sources={
            "model_options augment batch_size epochs learning_rate schedule final_rate "
            "warmup_steps weight_decay clip loss method rho rho_min sam_alpha": CODE
        },
        hardware="not stated",
        differs="the bias of the head begins at −6.9, not −10",
        results=(
            Result(
                "arXiv 2203.08065, abstract",
                "ViT-B/32, GSAM",
                "",
                "5.4 more than AdamW, 3.2 more than SAM",
            ),
        ),
    )
}
