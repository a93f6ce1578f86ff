"""Fine-tuning of BiT by BiT-HyperRule, which needs no preset: `--rule hyperrule`.

Kolesnikov et al. 2020, arXiv 1912.11370; results of google-research/big_transfer.
"""

from .preset import Result

TABLE = "google-research/big_transfer README: BiT-M by BiT-HyperRule"
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet2012": "ImageNet"}
# Of the lighter setting, there called `--batch 128 --base_lr 0.001`.
LIGHTER = "--batch-size 128 --learning-rate 0.001"
OPTIONS = {"cifar10": LIGHTER, "cifar100": LIGHTER, "imagenet2012": ""}
# Medians of the JAX code on CIFAR, one run of the PyTorch code on ImageNet.
ACCURACIES = {
    "BiTR50x1": (
        "R50x1",
        {"cifar10": "97.3", "cifar100": "86.4", "imagenet2012": "80.68"},
    ),
    "BiTR101x3": ("R101x3", {"cifar10": "98.4", "cifar100": "91.2"}),
    "BiTR152x2": (
        "R152x2",
        {"cifar10": "98.5", "cifar100": "91.2", "imagenet2012": "85.15"},
    ),
}

RESULTS = tuple(
    Result(
        TABLE,
        f"{name}, {DATASETS[dataset]}",
        f"--rule hyperrule --dataset {dataset} --model {model} --weights imagenet21k "
        f"{OPTIONS[dataset]}".rstrip(),
        value,
    )
    for model, (name, accuracies) in ACCURACIES.items()
    for dataset, value in accuracies.items()
)
