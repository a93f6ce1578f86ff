"""Writes this folder's files of ViT, DeiT, DeiT III and BEiT: needs timm.

    python -m tests.golden.timm_keys.write

One line a tensor of timm's `state_dict()` with 1000 classes: its name, `{i}` in it for
the number of a block, and its shape.
"""

import json
import re
from pathlib import Path

import torch

import kerasvit
from recipes.benchmarks.import_timm import import_timm

FOLDER = Path(__file__).parent
SO400M = {"img_size": 224, "class_token": True, "global_pool": "token"}
# Sizes of which timm has models of other kinds only.
PLAIN = {**SO400M, "reg_tokens": 0, "init_values": 0, "no_embed_class": False}
PLAIN |= {"qkv_bias": True, "fc_norm": False}
# timm's own model where it has one by that name; else one of its models with arguments.
NAMES = {
    "ViTWee16": ("vit_wee_patch16_reg1_gap_256", PLAIN),
    "ViTLittle16": ("vit_little_patch16_reg4_gap_256", PLAIN),
    "ViTM16": ("vit_medium_patch16_reg4_gap_256", PLAIN),
    "ViTMDeep16": ("vit_mediumd_patch16_reg4_gap_256", PLAIN),
    "ViTBetwixt16": ("vit_betwixt_patch16_reg4_gap_256", PLAIN),
    "ViTSo150M16": ("vit_so150m_patch16_reg4_gap_256", PLAIN),
    "ViTSo150MDeep16": ("vit_so150m2_patch16_reg1_gap_256", PLAIN),
    "ViTTi16": "vit_tiny_patch16_224",
    "ViTS32": "vit_small_patch32_224",
    "ViTS16": "vit_small_patch16_224",
    "ViTS14": ("vit_small_patch16_224", {"patch_size": 14}),
    "ViTS8": "vit_small_patch8_224",
    "ViTB32": "vit_base_patch32_224",
    "ViTB16": "vit_base_patch16_224",
    "ViTB14": ("vit_base_patch16_224", {"patch_size": 14}),
    "ViTB8": "vit_base_patch8_224",
    "ViTL32": "vit_large_patch32_224",
    "ViTL16": "vit_large_patch16_224",
    "ViTL14": "vit_large_patch14_224",
    "ViTSo400M16": ("vit_so400m_patch16_siglip_256", SO400M),
    "ViTSo400M14": ("vit_so400m_patch14_siglip_224", SO400M),
    "ViTH14": "vit_huge_patch14_224",
    "ViTg14": ("vit_giant_patch14_dinov2", {"img_size": 224}),
    "DeiTTi16": "deit_tiny_patch16_224",
    "DeiTS16": "deit_small_patch16_224",
    "DeiTB16": "deit_base_patch16_224",
    "DeiTTi16Distilled": "deit_tiny_distilled_patch16_224",
    "DeiTS16Distilled": "deit_small_distilled_patch16_224",
    "DeiTB16Distilled": "deit_base_distilled_patch16_224",
    "BEiTB16": "beit_base_patch16_224",
    "BEiTL16": "beit_large_patch16_224",
    "DeiT3S16": "deit3_small_patch16_224",
    "DeiT3M16": "deit3_medium_patch16_224",
    "DeiT3B16": "deit3_base_patch16_224",
    "DeiT3L16": "deit3_large_patch16_224",
    "DeiT3H14": "deit3_huge_patch14_224",
}


def main():
    timm = import_timm()
    for row, name in NAMES.items():
        name, args = (name, {}) if isinstance(name, str) else name
        with torch.device("meta"):
            state = timm.create_model(name, num_classes=1000, **args).state_dict()
        tensors = {
            re.sub(r"^blocks\.\d+\.", "blocks.{i}.", key): list(tensor.shape)
            for key, tensor in state.items()
        }
        numbers = [re.match(r"blocks\.(\d+)\.", key) for key in state]
        depth = 1 + max(int(found[1]) for found in numbers if found)
        assert depth == getattr(kerasvit, row).numbers["depth"]
        lines = [f"{key}: {' '.join(map(str, s))}" for key, s in tensors.items()]
        table = {"timm": name, "model_args": args, "depth": depth, "tensors": lines}
        path = FOLDER / f"{row}.json"
        path.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
