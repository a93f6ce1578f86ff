"""Makes folders of adapters with the real PEFT, for models of `tests/golden/models`.

`python -m tests.checkpoints.peft_folders` writes the folders in `peft/`, by which
adapters are tested without PEFT. It needs peft, transformers 5, timm and PyTorch; made
with peft 0.21.2, transformers 5.24.0 and timm 1.0.31.
"""

import json
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent / "peft"
GOLDEN = Path(__file__).parents[1] / "golden" / "models"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
# {folder: (folder of the base model, settings of `LoraConfig`)}
CASES = {
    "vit": (
        "hf_vit",
        {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["q_proj", "v_proj"],
            "modules_to_save": ["classifier"],
        },
    ),
    "vit_patterns": (
        "hf_vit",
        {
            "r": 4,
            "lora_alpha": 6,
            "use_rslora": True,
            "target_modules": [*ATTENTION, "fc1", "fc2"],
            "rank_pattern": {"^vit.layers.1.attention.q_proj": 2, r".*\.fc\d": 3},
            "alpha_pattern": {"fc1": 5},
            "bias": "all",
        },
    ),
    "vit_layer": (
        "hf_vit",
        {
            "r": 2,
            "target_modules": ["o_proj"],
            "bias": "lora_only",
            "layers_to_transform": [1],
            "modules_to_save": ["classifier", "layernorm"],
        },
    ),
    "dinov2": (
        "hf_dinov2",
        {"r": 3, "target_modules": ["q_proj", "up_proj", "down_proj"]},
    ),
    "dinov2_classifier": (
        "hf_dinov2_classifier",
        {
            "r": 2,
            "target_modules": ["k_proj", "gate_proj"],
            "modules_to_save": ["classifier"],
        },
    ),
    "dinov3": ("hf_dinov3", {"r": 3, "target_modules": ["v_proj", "down_proj"]}),
    "beit": ("hf_beit", {"r": 3, "target_modules": ["q_proj", "v_proj", "fc1"]}),
    "swin": (
        "hf_swin",
        {"r": 3, "target_modules": ATTENTION, "modules_to_save": ["classifier"]},
    ),
    "clip": ("hf_clip", {"r": 3, "target_modules": ["q_proj", "out_proj", "fc1"]}),
    "siglip": ("hf_siglip", {"r": 3, "target_modules": ["k_proj", "fc2"]}),
    "timm": (
        "timm_vit",
        {
            "r": 4,
            "lora_alpha": 12,
            "target_modules": ["qkv", "proj", "mlp.fc1"],
            "exclude_modules": ["patch_embed.proj"],
            "modules_to_save": ["head"],
        },
    ),
}
PICKLED = {"dinov3"}  # adapter_model.bin


def base_model(name):
    """The original library's model of a golden case."""
    import transformers
    from safetensors.torch import load_file

    folder = GOLDEN / name
    if not name.startswith("timm"):
        config = json.loads((folder / "config.json").read_text())
        kind = getattr(transformers, config["architectures"][0])
        return kind.from_pretrained(folder)
    import timm

    case = json.loads((GOLDEN.parent / "manifest.json").read_text())["cases"][name]
    arguments = {k: v for k, v in case["config"].items() if k not in ("arch", "seed")}
    model = timm.models.VisionTransformer(**arguments)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model


def outputs(model, images):
    """Logits or features of images (B, H, W, 3), in float64."""
    import torch

    tensor = torch.tensor(images).permute(0, 3, 1, 2).double()
    model.eval().double()
    with torch.no_grad():
        result = getattr(model, "get_image_features", model)(tensor)  # of a CLIP
    for name in ("logits", "pooler_output"):
        if getattr(result, name, None) is not None:
            return getattr(result, name).numpy()
    return result.numpy()


def write(name):
    """Writes a folder with adapters of random values, and their model's outputs."""
    import torch
    from peft import LoraConfig, get_peft_model

    base, settings = CASES[name]
    torch.manual_seed(0)
    model = get_peft_model(base_model(base), LoraConfig(**settings))
    for tensor in model.parameters():
        if tensor.requires_grad:
            tensor.data.normal_(std=0.2)
    folder = ROOT / name
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(folder, safe_serialization=name not in PICKLED)
    (folder / "README.md").unlink()
    images = np.load(GOLDEN / base / "input.npy")
    np.save(folder / "outputs.npy", outputs(model.merge_and_unload(), images))


if __name__ == "__main__":
    for case in CASES:
        write(case)
