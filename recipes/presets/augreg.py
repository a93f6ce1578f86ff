"""ViT with the regularisation and augmentation that suit its size.

Steiner et al. 2022, "How to train your ViT?", arXiv 2106.10270, with the settings of
big_vision. `--augment augreg_none` to `augreg_strong2` are the seven levels.
"""

from .big_vision import IMAGENET_21K
from .preset import Preset, Result, pretraining

ON_1K, ON_21K = "big_vision configs/vit_i1k.py", "big_vision configs/vit_i21k.py"
TIMM = "arXiv 2106.10270, on ImageNet-1k: timm's evaluation with 224 pixels"
TUNED = "arXiv 2106.10270, on ImageNet-21k, then ImageNet-1k with 384 pixels"
# {preset: (model, width, level on ImageNet-1k, accuracy; level on -21k, accuracy)}.
# The accuracies on ImageNet-21k are those after fine-tuning.
MODELS = {
    "ti16": ("ViTTi16", 192, "light1", "–", "none", "78.22"),
    "s32": ("ViTS32", 384, "medium1", "–", "none", "79.58"),
    "s16": ("ViTS16", 384, "medium2", "78.84", "light1", "83.73"),
    "b32": ("ViTB32", 768, "medium2", "74.91", "light2", "83.59"),
    "b16": ("ViTB16", 768, "medium2", "79.15", "light2", "85.49"),
    "l16": ("ViTL16", 1024, "medium2", "–", "medium2", "85.59"),
}
SETTINGS = {
    "batch_size": 4096,
    "epochs": 300,
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "warmup_steps": 10_000,
    "weight_decay": 0.1,  # 1e-4 in big_vision
    "clip": 1.0,
    "loss": "sigmoid",
}


def _preset(settings: dict, source: str, differs: str, result: Result) -> Preset:
    return pretraining(
        {**settings, **SETTINGS},
        sources={" ".join(["augment model_options", *SETTINGS]): source},
        hardware="not stated; TPUs",
        differs=differs,
        results=(result,),
    )


def _on_1k(model: str, width: int, level: str, accuracy: str) -> Preset:
    settings = {
        "dataset": "imagenet2012",
        "model": model,
        "model_options": (f"representation_size={width}",),
        "augment": f"augreg_{level}",
    }
    differs = (
        "the paper also has trainings with --dropout 0.1 --stochastic-depth 0.1, which "
        "helped B/32, B/16 and L/16"
    )
    return _preset(settings, ON_1K, differs, Result(TIMM, model, "", accuracy))


def _on_21k(model: str, level: str, accuracy: str) -> Preset:
    settings = {
        "dataset": "imagenet21k",
        "model": model,
        "model_options": ("pool=average",),
        "augment": f"augreg_{level}",
    }
    then = "imagenet --model None --weights FOLDER"
    result = Result(TUNED, model, "", accuracy, then)
    return _preset(settings, ON_21K, IMAGENET_21K, result)


PRESETS = {}
for _name, (_model, _width, *_first, _level, _accuracy) in MODELS.items():
    PRESETS[f"augreg_{_name}"] = _on_1k(_model, _width, *_first)
    PRESETS[f"augreg_i21k_{_name}"] = _on_21k(_model, _level, _accuracy)
