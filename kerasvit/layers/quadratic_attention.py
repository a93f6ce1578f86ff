"""Multi-head attention with learned quadratic position scores."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.types import Tensor

from .relative_attention import RelativeAttention


@keras.saving.register_keras_serializable("kerasvit")
class QuadraticAttention(RelativeAttention):
    """Relative attention with scores −α_h ‖(j − i) − Δ_h‖².

    Instead of a table it learns Δ_h, `center`, in cells down and across, and α_h,
    `alpha`: three numbers per head for any size of the map. The larger α, the more the
    head attends to a single cell.

    Shape: (batch, H, W, C) → (batch, H, W, filters).

    Args: those of `RelativeAttention`.

    Reference: Cordonnier et al. 2020, arXiv 1911.03584, equation 9, whose scores
    v · r_δ = −α (‖δ‖² − 2 Δ · δ) differ by the constant α ‖Δ‖², which does not change
    the softmax. The initial values are those of epfml/attention-cnn: Δ of standard
    deviation 2, α = 1/2.
    """

    def build_positions(self, shifts: np.ndarray) -> None:
        self._shifts = shifts
        # In full precision: bfloat16 cannot represent odd numbers above 256.
        self.center = self.add_weight(
            name="center",
            shape=(self.num_heads, 2),
            initializer=keras.initializers.RandomNormal(stddev=2.0),
            autocast=False,
        )
        self.alpha = self.add_weight(
            name="alpha",
            shape=(self.num_heads,),
            initializer=keras.initializers.Constant(0.5),
            autocast=False,
        )

    def position_scores(self) -> Tensor:
        """Returns the scores of cells and cells of the padded map, (heads, N, M)."""
        shifts = ops.convert_to_tensor(self._shifts, dtype=self.center.dtype)
        distances = shifts - self.center[:, None, None]  # (heads, N, M, 2)
        return -self.alpha[:, None, None] * ops.sum(ops.square(distances), axis=-1)

    def look_at(self, shifts: Any, sharpness: float) -> None:
        """Centres head h on `shifts[h]`; adjacent cells score lower by `sharpness`."""
        self.center.assign(np.array(shifts))
        self.alpha.assign(np.full(self.num_heads, sharpness))
