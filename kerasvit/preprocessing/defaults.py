"""The evaluation transform that each code base uses by default."""

# Fields of `kerasvit.Preprocessing`. Mean and deviation of ImageNet's colours, in 0…1.
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
# Of CIFAR-100's; ops/datasets.py of how-do-vits-work.
CIFAR100 = {"mean": (0.5071, 0.4867, 0.4408), "std": (0.2675, 0.2565, 0.2761)}

ORIGINS = {  # by `ORIGIN` in checkpoints/sources/
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
    "transformers": {"crop": 1.0, "mode": "squash", "kernel": "bilinear"},
    "kerasvit": {},  # its configuration always says
}
