"""The encoder of Vision Transformers, distilled DeiTs and hybrids."""

import keras

from kerasvit.layers import MLP, Attention, EncoderBlock, LayerScaleBlock


def encoder(x, s):
    """Dropout, then the blocks, by the builder's arguments `s`: (B, N, D) → same."""
    x = keras.layers.Dropout(s.dropout, name="dropout")(x)
    for i in range(s.depth):
        parts = {
            "attention": Attention(
                s.num_heads, use_bias=s.qkv_bias, dropout=s.dropout, name="attention"
            ),
            "mlp": MLP(
                s.mlp_dim, activation=s.activation, dropout=s.dropout, name="mlp"
            ),
            "epsilon": s.epsilon,
            "stochastic_depth": s.stochastic_depth * i / max(s.depth - 1, 1),
            "name": f"encoder_block_{i}",
        }
        if s.layer_scale is None:
            x = EncoderBlock(**parts)(x)
        else:
            x = LayerScaleBlock(init_value=s.layer_scale, **parts)(x)
    return x
