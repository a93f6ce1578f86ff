"""AlterNet, its twin without attention, and ablations of ViT.

Park and Kim 2022, "How Do Vision Transformers Work?", arXiv 2202.06709. The paper shows
accuracies of AlterNet in figures only.
"""

from .preset import Result, pretraining

PAPER = "arXiv 2202.06709"
CODE = "xxxnell/how-do-vits-work configs/"
FIGURE_12 = f"{PAPER}, Figure 12: AlterNet"
ABLATIONS = f"{PAPER}, ablations of ViT on CIFAR-100"
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
            "decayed loss": "xxxnell/how-do-vits-work ops/trains.py",
        },
        hardware="not stated; one GPU or more, with nn.DataParallel",
        differs=f"{EPOCHS}. The rate decreases with every step, not every epoch",
        results=results(FIGURE_12, ON_CIFAR) + results(ABLATIONS, OF_VIT),
    ),
}
