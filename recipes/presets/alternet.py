"""AlterNet, its twin without attention, and ablations of ViT.

Park and Kim 2022, "How Do Vision Transformers Work?", arXiv 2202.06709. The paper shows
accuracies of AlterNet in figures only.
"""

from .preset import Result, pretraining

PAPER = "arXiv 2202.06709"
CODE = "xxxnell/how-do-vits-work configs/"
FIGURE_12 = f"{PAPER}, Figure 12: AlterNet"
ABLATIONS = f"{PAPER}, ablations of ViT on CIFAR-100"
FIGURE_4 = f"{PAPER}, Figure 4: eigenvalues of the Hessian"
ON_CIFAR = {
    "AlterNet50CIFAR100": "Alter-ResNet-50",
    "PreActResNet50CIFAR": "ResNet-50, without attention",
    "SwinTiCIFAR": "Swin-Ti",
}
OF_VIT = {
    "ViTTi4CIFAR": "ViT-Ti",
    "ViTTi4CIFARLocal3": "windows of 3 × 3 patches",
    "ViTTi4CIFARLocal5": "windows of 5 × 5 patches",
    "ViTTi4CIFARAverage": "mean of the patches, no class token",
    "ViTTi4CIFARPostNorm": "normalisation after the branches",
}
OF_SHARE = {
    "ViTTi4CIFAR": "ViT-Ti",
    "ViTTi4CIFAR --share 0.06": "ViT-Ti, 6 % of the images",
    "PreActResNet50CIFAR": "ResNet-50",
}
DEPTHS = 18, 34, 50, 101, 152
ON_IMAGENET = {
    **{f"AlterNet{depth}": f"Alter-ResNet-{depth}" for depth in DEPTHS},
    **{f"PreActResNet{n}": f"ResNet-{n}, without attention" for n in DEPTHS},
}
GENERAL = (
    "augment batch_size epochs optimizer learning_rate schedule decay_at decay_factor "
    "warmup_steps weight_decay clip"
)
OF_CODE = {"decayed loss": "xxxnell/how-do-vits-work ops/trains.py"}
COUPLED = (
    "PyTorch's SGD adds the decay to the gradient before the momentum, Keras's not"
)
RATE = "The rate decreases with every step, not every epoch"
EPOCHS = "the code counts the epochs of the warm-up in addition; here they are included"


def results(table: str, names: dict[str, str]) -> tuple[Result, ...]:
    """Returns a row for each model, whose accuracies only a figure shows."""
    return tuple(
        Result(table, name, f"--model {model}", "–") for model, name in names.items()
    )


PRESETS = {
    "alternet_cifar100": pretraining(
        {
            "dataset": "cifar100",
            "model": "AlterNet50CIFAR100",
            "augment": "cifar_mixed",
            "batch_size": 96,
            "epochs": 305,
            "learning_rate": 1.25e-4,
            "schedule": "cosine",
            "warmup_steps": 2_552,  # 5 epochs of 49,000 images
            "weight_decay": 0.05,
            "decayed": "all",
            "clip": 5.0,
            "loss": "softmax",
            "label_smoothing": 0.1,
            "stochastic_depth": 0.1,
        },
        sources={
            "augment batch_size epochs learning_rate schedule warmup_steps "
            "weight_decay clip label_smoothing stochastic_depth": CODE
            + "cifar100_vit.yaml",
            **OF_CODE,
        },
        hardware="not stated; one GPU or more, with nn.DataParallel",
        differs=f"{EPOCHS}. {RATE}",
        results=results(FIGURE_12, ON_CIFAR)
        + results(ABLATIONS, OF_VIT)
        + results(FIGURE_4, OF_SHARE),
    ),
    "alternet_cifar100_general": pretraining(
        {
            "dataset": "cifar100",
            "model": "AlterNet50CIFAR100",
            "augment": "cifar",
            "batch_size": 128,
            "epochs": 201,
            "optimizer": "sgd",
            "learning_rate": 0.1,
            "schedule": "steps",
            "decay_at": (0.3035, 0.6020, 0.8010),  # after 61, 121, 161
            "decay_factor": 0.2,
            "warmup_steps": 382,  # 1 epoch of 49,000 images
            "weight_decay": 5e-4,
            "decayed": "all",
            "clip": 0.0,
            "loss": "softmax",
        },
        sources={GENERAL: CODE + "cifar100_general.yaml", **OF_CODE},
        hardware="not stated",
        differs=f"{EPOCHS}. {COUPLED}",
        results=results(f"{PAPER}, weak augmentation on CIFAR-100", ON_CIFAR),
    ),
    "alternet_imagenet": pretraining(
        {
            "dataset": "imagenet2012",
            "model": "AlterNet50",
            "augment": "imagenet_vit",
            "batch_size": 128,
            "epochs": 305,
            "learning_rate": 1.25e-4,
            "schedule": "cosine",
            "warmup_steps": 49_045,  # 5 epochs of 98 % of the images
            "weight_decay": 0.05,
            "decayed": "all",
            "clip": 0.0,
            "loss": "softmax",
            "label_smoothing": 0.1,
            "stochastic_depth": 0.1,
        },
        sources={
            "augment batch_size epochs learning_rate schedule warmup_steps "
            "weight_decay clip label_smoothing stochastic_depth": CODE
            + "imagenet_vit.yaml",
            **OF_CODE,
        },
        hardware="not stated",
        differs=f"{EPOCHS}. {RATE}",
        results=results(f"{PAPER}, ImageNet", ON_IMAGENET),
    ),
    "alternet_imagenet_general": pretraining(
        {
            "dataset": "imagenet2012",
            "model": "AlterNet50",
            "augment": "photo",
            "batch_size": 256,
            "epochs": 91,
            "optimizer": "sgd",
            "learning_rate": 0.1,
            "schedule": "steps",
            "decay_at": (0.3407, 0.6703, 0.8901),  # after 31, 61, 81
            "decay_factor": 0.1,
            "warmup_steps": 4_904,  # 1 epoch of 98 % of the images
            "weight_decay": 1e-4,
            "decayed": "all",
            "clip": 0.0,
            "loss": "softmax",
        },
        sources={GENERAL: CODE + "imagenet_general.yaml", **OF_CODE},
        hardware="not stated",
        differs=f"{EPOCHS}. {COUPLED}. Crops have 5 to 100 % of the image, not 8 to "
        "100",
        results=results(f"{PAPER}, ImageNet, weak augmentation", ON_IMAGENET),
    ),
}
