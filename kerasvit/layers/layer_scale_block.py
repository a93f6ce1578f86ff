"""The encoder block with LayerScale."""

from typing import Any

import keras

from kerasvit.types import Shape, Tensor

from .encoder_block import EncoderBlock


@keras.saving.register_keras_serializable("kerasvit")
class LayerScaleBlock(EncoderBlock):
    """An encoder block with a learned scale per channel on both branches.

    Shape: (batch, N, D) → same.

    Args:
        attention, mlp: As for `EncoderBlock`.
        init_value: Initial value of the scales; 1e-5 in DINOv2, 1e-6 in DeiT III.
        epsilon, stochastic_depth: As for `EncoderBlock`.

    Reference: Touvron et al. 2021 (CaiT), arXiv 2103.17239, equation 4; `LayerScale` in
    timm/models/vision_transformer.py.
    """

    def __init__(
        self,
        attention: keras.layers.Layer,
        mlp: keras.layers.Layer,
        *,
        init_value: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(attention, mlp, **kwargs)
        self.init_value = init_value

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        start = keras.initializers.Constant(self.init_value)
        self.attention_scale, self.mlp_scale = (
            self.add_weight(name=name, shape=(input_shape[-1],), initializer=start)
            for name in ("attention_scale", "mlp_scale")
        )

    def call(
        self, x: Tensor, positions: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        branch = self._attended(self.attention_norm(x), positions, training)
        x = x + self.drop(branch * self.attention_scale, training=training)
        branch = self.mlp(self.mlp_norm(x), training=training)
        return x + self.drop(branch * self.mlp_scale, training=training)
