"""AlterNet's residual unit with attention in place of convolution."""

import keras

from .stochastic_depth import StochasticDepth
from .sublayers import rebuilt, unbuilt

PARTS = ("conv_norm", "conv", "attention_norm", "attention")


@keras.saving.register_keras_serializable("kerasvit")
class AttentionUnit(keras.layers.Layer):
    """Normalisation, GELU, convolution, normalisation, attention; with a shortcut.

    No activation follows the second normalisation, and no MLP the attention. In an
    AlterNet a convolutional unit always comes before it and changes size and channels,
    so the shortcut is the input as it came.

    Shape: (batch, H, W, C) → same.

    Args:
        conv_norm: Normalisation layer of that name, the first; the variables' paths
            are the checkpoint format.
        conv: Convolution, named "conv".
        attention_norm: Normalisation layer, named "attention_norm".
        attention: Layer on feature maps that ends with C channels, named "attention".
        stochastic_depth: Probability of dropping the branch in training, in [0, 1).

    Reference: Park and Kim 2022, arXiv 2202.06709; `AttentionBlockB` in
    xxxnell/how-do-vits-work models/alternet.py.
    """

    def __init__(
        self,
        conv_norm: keras.layers.Layer,
        conv: keras.layers.Layer,
        attention_norm: keras.layers.Layer,
        attention: keras.layers.Layer,
        *,
        stochastic_depth: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.conv_norm = conv_norm
        self.conv = conv
        self.attention_norm = attention_norm
        self.attention = attention
        self.stochastic_depth = stochastic_depth

    def build(self, input_shape):
        """Builds the sublayers."""
        self.drop = StochasticDepth(
            self.stochastic_depth, name="drop", dtype=self.dtype_policy
        )
        self.conv_norm.build(input_shape)
        self.conv.build(input_shape)
        shape = self.conv.compute_output_shape(input_shape)
        self.attention_norm.build(shape)
        self.attention.build(shape)

    def call(self, x, training=None):
        branch = keras.activations.gelu(self.conv_norm(x), approximate=False)
        branch = self.attention(self.attention_norm(self.conv(branch)))
        return x + self.drop(branch, training=training)

    def compute_output_shape(self, input_shape):
        """Same as the input."""
        return input_shape

    def get_config(self):
        """Returns the constructor's arguments, layers as configurations."""
        config = {
            **{name: unbuilt(getattr(self, name)) for name in PARTS},
            "stochastic_depth": self.stochastic_depth,
        }
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        """Builds the unit and its layers from `get_config`."""
        layers = {name: rebuilt(config[name]) for name in PARTS}
        return cls(**{**config, **layers})
