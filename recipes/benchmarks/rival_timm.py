"""Steps of timm's models in plain torch, eager or compiled."""

from collections.abc import Callable

import kerasvit

from .import_timm import import_timm
from .settings import Config

# Models that are not built with timm's VisionTransformer.
NAMES = {
    **{f"BiTR{size}": f"resnetv2_{size}_bit" for size in ("50x1", "101x1", "152x2")},
    **{f"Mixer{n}{p}": f"mixer_{n.lower()}{p}_224" for n in "SBL" for p in (16, 32)},
    "SwinT": "swin_tiny_patch4_window7_224",
    "SwinS": "swin_small_patch4_window7_224",
    "SwinB": "swin_base_patch4_window7_224",
    "RViTTi16": "vit_tiny_r_s16_p8_224",
    "R26ViTS32": "vit_small_r26_s32_224",
    "R50ViTB16": "vit_base_r50_s16_224",
    "R50ViTL32": "vit_large_r50_s32_224",
    "DeiTB16Distilled": "deit_base_distilled_patch16_224",
}


def build_compiled(config: Config, images, labels) -> Callable:
    """Returns a step of timm's model, compiled by torch.compile."""
    return build(config, images, labels, compiled=True)


def build(config: Config, images, labels, *, compiled: bool = False) -> Callable:
    """Returns a step of timm's model of the same size."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = new_model(config).to(device)
    run = torch.compile(model) if compiled else model
    # Arrays are copied to the device in every step, as Keras does.
    x = torch.as_tensor(images).permute(0, 3, 1, 2).contiguous()
    y = torch.as_tensor(labels)
    half = config.dtype == "mixed_bfloat16"
    cast = torch.autocast(device, torch.bfloat16, enabled=half)

    def forward():
        with torch.no_grad(), cast:
            return run(x.to(device)).float().cpu().numpy()

    if config.what == "forward":
        model.eval()
        return forward
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def train():
        optimizer.zero_grad()
        with cast:
            logits = run(x.to(device))
        loss = torch.nn.functional.cross_entropy(logits.float(), y.to(device))
        loss.backward()
        optimizer.step()
        return loss.item()

    return train


def new_model(config: Config):
    """Returns timm's model with new weights."""
    timm = import_timm()
    if config.name in NAMES:
        size = {} if "BiT" in config.name else {"img_size": config.image_size}
        return timm.create_model(NAMES[config.name], num_classes=1000, **size)
    return timm.models.VisionTransformer(
        img_size=config.image_size, **vit_arguments(config)
    )


def vit_arguments(config: Config) -> dict:
    """Returns the arguments of a ViT of the same size, by timm's names."""
    numbers = getattr(kerasvit, config.name).numbers
    return {
        "patch_size": numbers["patch_size"],
        "embed_dim": numbers["width"],
        "depth": numbers["depth"],
        "num_heads": numbers["num_heads"],
        "mlp_ratio": numbers["mlp_dim"] / numbers["width"],
    }
