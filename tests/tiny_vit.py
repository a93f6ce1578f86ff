"""A ViT of a few thousand weights, for tests of files."""

import kerasvit
from tests.random_weights import randomised

TinyViT = kerasvit.Variant(
    "TinyViT",
    kerasvit.VisionTransformer,
    patch_size=4,
    width=16,
    depth=1,
    num_heads=2,
    mlp_dim=24,
)


def random_model(seed):
    """A tiny ViT of three named classes."""
    model = randomised(TinyViT(image_size=8, num_classes=3), seed, scale=1.0)
    model.record["label_names"] = [f"{name}{seed}" for name in ("ant", "bee", "cat")]
    return model
