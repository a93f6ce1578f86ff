"""A tiny model of every builder, for tests of all builders."""

import keras
import numpy as np

import kerasvit

VIT = {"patch_size": 4, "width": 16, "depth": 1, "num_heads": 2, "mlp_dim": 24}
SMALL = {"image_size": 16, "num_classes": 3}
TINY = {
    "VisionTransformer": {**VIT, **SMALL},
    "RotaryVisionTransformer": {**VIT, **SMALL},
    "BEiTTransformer": {**VIT, **SMALL},
    "DistilledVisionTransformer": {**VIT, **SMALL},
    "HybridVisionTransformer": {
        **VIT,
        **SMALL,
        "patch_size": 2,
        "resnet_depths": [1],
        "width_factor": 0.5,
    },
    "MLPMixer": {
        **SMALL,
        "patch_size": 4,
        "width": 8,
        "depth": 1,
        "tokens_mlp_dim": 6,
        "channels_mlp_dim": 10,
    },
    "SwinTransformer": {
        **SMALL,
        "width": 8,
        "depths": [2, 1],
        "num_heads": [1, 2],
        "window_size": 2,
        "patch_size": 4,
    },
    "PoolingVisionTransformer": {
        **SMALL,
        "patch_size": 4,
        "stride": 2,
        "width": 8,
        "depths": [1, 2],
        "num_heads": [1, 2],
        "distilled": False,
    },
    "AlterNet": {
        **SMALL,
        "depths": [1, 2],
        "attention_depths": [0, 1],
        "bottleneck": False,
        "stem": "cifar",
        "widths": [8, 8],
        "stem_width": 8,
        "num_heads": [1, 2],
        "head_width": 4,
        "window_size": 4,
    },
    "PreActResNet": {
        **SMALL,
        "depths": [1, 1],
        "bottleneck": True,
        "stem": "cifar",
        "widths": [4, 8],
        "stem_width": 8,
    },
    "ResNeXt": {
        **SMALL,
        "depths": [1, 1],
        "groups": 2,
        "group_width": 2,
        "stem": "cifar",
        "width": 8,
        "stem_width": 8,
    },
    "VisionTransformerAblation": {
        **VIT,
        **SMALL,
        "window": 3,
        "pool": "token",
        "norm": "pre",
    },
    "BigTransfer": {"depths": [1, 1], "width_factor": 0.5, **SMALL},
}


def tiny(name, **changes):
    """The model of a builder, with random weights in all its layers."""
    model = getattr(kerasvit, name)(**{**TINY[name], **changes})
    rng = np.random.default_rng(0)
    for variable in model.weights:
        if "seed" in variable.path:
            continue
        value = rng.normal(size=variable.shape, scale=0.3)
        moving = variable.path.endswith("variance")
        variable.assign(keras.ops.cast(abs(value) if moving else value, variable.dtype))
    return model
