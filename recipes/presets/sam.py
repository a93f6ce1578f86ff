"""ViT, Mixer and ResNet from scratch, with and without SAM and augmentation.

Chen et al. 2022, "When Vision Transformers Outperform ResNets without Pre-training or
Strong Data Augmentations", arXiv 2106.01548. Its appendix was not available.
"""

from .preset import Preset, Result, pretraining

PAPER = "arXiv 2106.01548"
TABLE_1, TABLE_2, TABLE_3, TABLE_4 = (f"{PAPER}, Table {i}" for i in range(1, 5))
GSAM = "big_vision configs/proj/gsam/vit_i1k_gsam_no_aug.py"
BIT = "big_vision configs/bit_i1k.py"

# Table 2: ImageNet's accuracy with SAM, and its gain over the training without.
ACCURACIES = {
    "resnet": {
        "BiTR50x1": ("ResNet-50", 76.7, 0.7),
        "BiTR101x1": ("ResNet-101", 78.6, 0.8),
        "BiTR152x1": ("ResNet-152", 79.3, 0.8),
        "BiTR50x2": ("ResNet-50x2", 79.6, 1.5),
        "BiTR101x2": ("ResNet-101x2", 80.9, 2.4),
        "BiTR152x2": ("ResNet-152x2", 81.1, 1.8),
    },
    "vit": {
        "ViTS32": ("ViT-S/32", 70.5, 2.1),
        "ViTS16": ("ViT-S/16", 78.1, 3.7),
        "ViTS14": ("ViT-S/14", 78.8, 4.0),
        "ViTS8": ("ViT-S/8", 81.3, 5.3),
        "ViTB32": ("ViT-B/32", 73.6, 4.1),
        "ViTB16": ("ViT-B/16", 79.9, 5.3),
    },
    "mixer": {
        "MixerS32": ("Mixer-S/32", 66.7, 2.8),
        "MixerS16": ("Mixer-S/16", 72.9, 4.1),
        "MixerS8": ("Mixer-S/8", 75.9, 5.7),
        "MixerB32": ("Mixer-B/32", 72.4, 9.9),
        "MixerB16": ("Mixer-B/16", 77.4, 11.0),
        "MixerB8": ("Mixer-B/8", 79.0, 10.4),
    },
}
# Table 4: accuracies by the share of the training images.
SHARES = {
    "all images": "",
    "1/2": "--share 0.5 --same-steps",
    "1/4": "--share 0.25 --same-steps",
    "1/10": "--share 0.1 --same-steps",
}
BY_SHARE = {
    "resnet": ("BiTR152x1", (78.5, 74.2, 68.0, 54.6)),
    "resnet_sam": ("BiTR152x1", (79.3, 75.6, 70.3, 57.1)),
    "vit": ("ViTB16", (74.6, 64.9, 52.4, 32.8)),
    "vit_sam": ("ViTB16", (79.9, 75.4, 66.8, 46.1)),
    "vit_aug": ("ViTB16", (79.6, 73.1, 63.2, 38.5)),
    "vit_sam_aug": ("ViTB16", (81.5, 75.8, 65.6, 45.7)),
    "mixer_vanilla": ("MixerB16", (66.4, 53.9, 37.2, 21.0)),
    "mixer_sam": ("MixerB16", (77.4, 71.0, 62.8, 43.5)),
    "mixer_aug": ("MixerB16", (76.5, 70.4, 61.0, 43.0)),
    "mixer_sam_aug": ("MixerB16", (78.1, 73.1, 65.8, 51.0)),
}
# Largest eigenvalue of the Hessian, in Tables 1 and 3, of trainings of Table 2.
EIGENVALUES = {
    ("resnet", "BiTR50x1"): 122.9,
    ("resnet", "BiTR152x1"): 179.8,
    ("vit", "ViTB16"): 738.8,
    ("vit_sam", "ViTB16"): 20.9,
    ("mixer_vanilla", "MixerB16"): 1644.4,
    ("mixer_sam", "MixerB16"): 22.5,
}


def results(preset: str) -> tuple[Result, ...]:
    """Returns the rows of the paper's tables that a preset trains."""
    family, _, kind = preset.partition("_")
    methods = {"sam": ", SAM", "aug": ", AUG", "sam_aug": ", SAM + AUG"}
    method, rows = methods.get(kind, ""), []

    def add(table, model, value, images="", options=""):
        row = f"{ACCURACIES[family][model][0]}{method}{images}"
        options = f"--model {model} {options}".rstrip()
        rows.append(Result(table, row, options, value))

    if "aug" not in kind:
        for model, (_, accuracy, gain) in ACCURACIES[family].items():
            value = f"{accuracy if kind == 'sam' else accuracy - gain:.1f}"
            add(TABLE_2, model, value)
            if eigenvalue := EIGENVALUES.get((preset, model)):
                add(TABLE_1, model, f"{value}, λ {eigenvalue}")
                if family != "resnet":
                    add(TABLE_3, model, f"λ {eigenvalue}")
    model, values = BY_SHARE[preset]
    for (share, options), value in zip(SHARES.items(), values, strict=True):
        add(TABLE_4, model, f"{value}", f", {share}", options)
    return tuple(rows)


SETTINGS = {
    "vit": {
        "dataset": "imagenet2012",
        "model": "ViTB16",
        "augment": "photo",
        "batch_size": 4096,
        "epochs": 300,
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "warmup_steps": 10_000,
        "weight_decay": 0.3,
        "clip": 1.0,
        "loss": "sigmoid",
        "dropout": 0.1,
    },
    "mixer": {
        "dataset": "imagenet2012",
        "model": "MixerB16",
        "augment": "photo",
        "batch_size": 4096,
        "epochs": 300,
        "learning_rate": 3e-3,
        "schedule": "linear",
        "warmup_steps": 10_000,
        "weight_decay": 0.3,
        "clip": 1.0,
        "loss": "sigmoid",
        "stochastic_depth": 0.1,
    },
    "resnet": {
        "dataset": "imagenet2012",
        "model": "BiTR50x1",
        "augment": "photo",
        "batch_size": 4096,
        "epochs": 90,
        "optimizer": "sgd",
        "learning_rate": 1.6,  # 0.1 per 256 images
        "schedule": "cosine",
        "warmup_steps": 5_000,
        "weight_decay": 1e-3,  # 1.6e-3 in big_vision, not multiplied by the rate
        "clip": 1.0,
        "loss": "softmax",
    },
}
CROPS = {"augment": f"{TABLE_2}: the crops of Inception, 224 pixels"}
SOURCES = {
    "vit": {
        "batch_size epochs learning_rate warmup_steps weight_decay clip loss": GSAM
    },
    "mixer": {"batch_size epochs clip loss": "big_vision configs/mlp_mixer_i1k.py"},
    "resnet": {
        "batch_size epochs optimizer learning_rate schedule weight_decay clip loss": BIT
    },
}
MEMORY = "recalled from the appendix, not confirmed by another source"
UNCONFIRMED = {
    "vit": {"schedule dropout": MEMORY},
    "mixer": {
        "learning_rate schedule warmup_steps weight_decay stochastic_depth": MEMORY
    },
    "resnet": {"warmup_steps": MEMORY},
}
RADIUS = {
    "rho": f"{MEMORY}, but for ViT-B/16 (google-research/vision_transformer#153). Use "
    "it as the starting point of a search; on one device with a large batch the author "
    "recommends a larger one"
}
STRENGTH = {
    "augment": "the paper states RandAugment and Mixup; the strengths are those of "
    "big_vision configs/vit_i1k.py, level medium2"
}


def _preset(family: str, sam: bool = False, aug: bool = False) -> Preset:
    name = f"{family}{'_sam' * sam}{'_aug' * aug}"
    name = {"mixer": "mixer_vanilla"}.get(name, name)
    changes = {"rho": None} if sam else {}  # None: that of the model in RADII
    changes |= {"augment": "photo_mixed"} if aug else {}
    unconfirmed = {**UNCONFIRMED[family]}
    unconfirmed |= (RADIUS if sam else {}) | (STRENGTH if aug else {})
    return pretraining(
        {**SETTINGS[family], **changes},
        sources={**CROPS, **SOURCES[family]},
        unconfirmed=unconfirmed,
        hardware="64 TPU chips, 64 images on each "
        "(google-research/vision_transformer#153)",
        results=results(name),
    )


PRESETS = {
    "vit": _preset("vit"),
    "vit_sam": _preset("vit", sam=True),
    "vit_aug": _preset("vit", aug=True),
    "vit_sam_aug": _preset("vit", sam=True, aug=True),
    "mixer_vanilla": _preset("mixer"),
    "mixer_sam": _preset("mixer", sam=True),
    "mixer_aug": _preset("mixer", aug=True),
    "mixer_sam_aug": _preset("mixer", sam=True, aug=True),
    "resnet": _preset("resnet"),
    "resnet_sam": _preset("resnet", sam=True),
}
