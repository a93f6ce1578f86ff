"""Rules for the tensor names of timm's Vision Transformers."""

from ..key_map import CONVOLUTION, stacked, torch_dense, torch_norm

# timm's SwiGLUPacked: the gate is the first half of the tensor.
GATED = (
    (
        "blocks.{i}.mlp.fc1.weight",
        ("encoder_block_{i}/mlp/gate/kernel", "encoder_block_{i}/mlp/dense_0/kernel"),
        stacked(2),
    ),
    (
        "blocks.{i}.mlp.fc1.bias",
        ("encoder_block_{i}/mlp/gate/bias", "encoder_block_{i}/mlp/dense_0/bias"),
        stacked(2),
    ),
)
# `AttentionPoolLatent`.
POOLING = (
    ("attn_pool.latent", "pool/probe"),
    *torch_dense("attn_pool.q", "pool/attention/query"),
    (
        "attn_pool.kv.weight",
        ("pool/attention/key/kernel", "pool/attention/value/kernel"),
        stacked(2),
    ),
    (
        "attn_pool.kv.bias",
        ("pool/attention/key/bias", "pool/attention/value/bias"),
        stacked(2),
    ),
    *torch_dense("attn_pool.proj", "pool/attention/output"),
    *torch_norm("attn_pool.norm", "pool/mlp_norm"),
    *torch_dense("attn_pool.mlp.fc1", "pool/mlp/dense_0"),
    *torch_dense("attn_pool.mlp.fc2", "pool/mlp/dense_1"),
)


def transformer(norm: str = "norm") -> tuple[tuple, ...]:
    """Returns the rules of a plain ViT; `norm` is the final normalisation's name."""
    block, ours = "blocks.{i}.", "encoder_block_{i}/"
    qkv = ("query", "key", "value")
    return (
        ("cls_token", "class_token/tokens"),
        ("pos_embed", "position_embedding/table"),
        ("patch_embed.proj.weight", "embedding/kernel", CONVOLUTION),
        ("patch_embed.proj.bias", "embedding/bias"),
        *torch_norm(block + "norm1", ours + "attention_norm"),
        (
            block + "attn.qkv.weight",
            tuple(f"{ours}attention/{name}/kernel" for name in qkv),
            stacked(3),
        ),
        (
            block + "attn.qkv.bias",
            tuple(f"{ours}attention/{name}/bias" for name in qkv),
            stacked(3),
        ),
        *torch_dense(block + "attn.proj", ours + "attention/output"),
        (block + "ls1.gamma", ours + "attention_scale"),
        *torch_norm(block + "norm2", ours + "mlp_norm"),
        *torch_dense(block + "mlp.fc1", ours + "mlp/dense_0"),
        *torch_dense(block + "mlp.fc2", ours + "mlp/dense_1"),
        (block + "ls2.gamma", ours + "mlp_scale"),
        *torch_norm(norm, "encoder_norm"),
        *torch_dense("head", "head"),
    )
