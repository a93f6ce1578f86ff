"""A ViT of a few thousand weights, for tests of files."""

import kerasvit

TinyViT = kerasvit.Variant(
    "TinyViT",
    kerasvit.VisionTransformer,
    patch_size=4,
    width=16,
    depth=1,
    num_heads=2,
    mlp_dim=24,
)
