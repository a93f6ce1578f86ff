"""Fine-tuning of ViT.

Dosovitskiy et al. 2021, arXiv 2010.11929, with the settings of
google-research/vision_transformer. The trainings start from weights of ImageNet-21k.
"""

from .preset import Preset, Result, finetuning

CODE = "google-research/vision_transformer"
TABLE = f"{CODE}, README: ViT of ImageNet-21k with 384 pixels"
PAPER_TABLE = "arXiv 2010.11929, Table 2: ViT-L/16 of ImageNet-21k"
MODELS = {
    "ViTB16": "ViT-B/16",
    "ViTB32": "ViT-B/32",
    "ViTL16": "ViT-L/16",
    "ViTL32": "ViT-L/32",
    "R50ViTB16": "R50+ViT-B/16",
}
OPTIONS = "--model {} --weights imagenet21k"

SWEEP = (
    "the default of the code; the paper chooses the best of several rates on "
    "validation images"
)


def _preset(dataset: str, rate: float, steps: int, *results: Result) -> Preset:
    short = steps == 500
    return finetuning(
        {
            "model": "ViTB16",
            "dataset": dataset,
            "image_size": (384,),
            "augment": "photo",
            "batch_size": 512,
            "steps": steps,
            "optimizer": "sgd",
            "learning_rate": rate,
            "warmup_steps": 100 if short else 500,
            "linear_head": False,
            "rho": 0.0,
        },
        sources={
            "image_size augment batch_size optimizer learning_rate rho": f"{CODE} "
            "vit_jax/configs/common.py and vit.py",
            "steps warmup_steps": "big_vision configs/transfer.py"
            if short
            else f"{CODE} vit_jax/configs/common.py",
            "linear_head": f"{CODE} vit_jax/checkpoint.py: the head begins with zeros",
        },
        unconfirmed={} if rate == 0.01 else {"learning_rate": SWEEP},
        hardware="A100 GPUs, of unknown number: 2.2 hours for ViT-B/16 on CIFAR, 6.5 "
        "on ImageNet (README)",
        differs="test images are resized and cropped as in the evaluation of the "
        "weights; there, the whole image is resized to a square",
        results=results,
    )


def _rows(name: str, *values: str, others: str = "") -> tuple[Result, ...]:
    """Returns the results without dropout; `others` are options of other models."""
    rows = []
    for (model, title), value in zip(MODELS.items(), values, strict=True):
        more = "" if model == "ViTB16" else others
        options = f"{OPTIONS.format(model)} {more}".rstrip()
        rows.append(Result(TABLE, f"{title}, {name}", options, value))
    return tuple(rows)


def _large(name: str, value: str, more: str = "") -> Result:
    options = f"{OPTIONS.format('ViTL16')} {more}".rstrip()
    return Result(PAPER_TABLE, f"ViT-L/16, {name}", options, value)


OTHER_RATE = "--learning-rate 0.03"  # 0.01 is for ViT-B/16 only
PRESETS = {
    "cifar10": _preset(
        "cifar10",
        0.01,
        10_000,
        *_rows(
            *("CIFAR-10", "99.02", "98.88", "99.13", "99.06", "98.72"),
            others=OTHER_RATE,
        ),
        _large("CIFAR-10", "99.15 ± 0.03", OTHER_RATE),
    ),
    "cifar100": _preset(
        "cifar100",
        0.03,
        10_000,
        *_rows("CIFAR-100", "92.06", "92.31", "92.91", "93.29", "90.88"),
        _large("CIFAR-100", "93.25 ± 0.05"),
    ),
    "pets": _preset("oxford_iiit_pet", 0.03, 500, _large("Pets", "94.67 ± 0.15")),
    "flowers": _preset(
        "oxford_flowers102", 0.03, 500, _large("Flowers-102", "99.61 ± 0.02")
    ),
    "imagenet": _preset(
        "imagenet2012",
        0.03,
        20_000,
        *_rows("ImageNet", "84.53", "81.66", "84.47", "81.89", "83.72"),
        _large(
            "ImageNet with 512 pixels and averaged weights (momentum unconfirmed)",
            "85.30 ± 0.02",
            "--image-size 512 --ema 0.9999",
        ),
    ),
}
