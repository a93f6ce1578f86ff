"""The block of an MLP-Mixer."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.types import Shape, Tensor

from .layer import Block
from .layer_norm import LayerNormalization
from .mlp import MLP
from .position_embedding import pair, table_grid
from .resampling import resample_grid, spread_grid
from .stochastic_depth import StochasticDepth


@keras.saving.register_keras_serializable("kerasvit")
class MixerBlock(Block):
    """Token-mixing MLP, then channel-mixing MLP, both pre-norm and residual.

    The first sees a channel's values at all places, (batch, D, H·W), and has weights
    for each place: they belong to one grid, and `resample` brings them to another.

    Shape: (batch, H·W, D) → same.

    Args:
        grid: (H, W), tokens down and across.
        tokens_mlp_dim: Hidden size of the MLP across tokens.
        channels_mlp_dim: Hidden size of the MLP across channels.
        activation: "gelu", exact, "gelu_tanh" or "quick_gelu"; see `MLP`.
        epsilon: Small constant added to the variance in both normalisations.
        stochastic_depth: Probability of dropping each branch in training, in [0, 1). A
            kept branch is divided by the chance of being kept; big_vision's Mixer does
            not divide.

    Raises:
        ValueError: The tokens do not fill the grid, or an argument is out of range.

    Reference: Tolstikhin et al. 2021, arXiv 2105.01601, equation 1; `MixerBlock` in
    google-research/vision_transformer vit_jax/models_mixer.py.
    """

    def __init__(
        self,
        grid: Sequence[int],
        *,
        tokens_mlp_dim: int,
        channels_mlp_dim: int,
        activation: str = "gelu",
        epsilon: float = 1e-6,
        stochastic_depth: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.grid = pair(grid)
        self.tokens_mlp_dim = tokens_mlp_dim
        self.channels_mlp_dim = channels_mlp_dim
        self.activation = activation
        self.epsilon = epsilon
        self.stochastic_depth = stochastic_depth

    def build(self, input_shape: Shape) -> None:
        batch, tokens, width = input_shape
        height, across = self.grid
        if tokens != height * across:
            raise ValueError(
                f"The tokens must fill the `grid` of {height} × {across}, "
                f"{height * across}. Received: {tokens}."
            )
        same = {"dtype": self.dtype_policy}
        norm = {"epsilon": self.epsilon, **same}
        mlp = {"activation": self.activation, **same}
        self.token_norm = LayerNormalization(name="token_norm", **norm)
        self.token_mixing = MLP(self.tokens_mlp_dim, name="token_mixing", **mlp)
        self.channel_norm = LayerNormalization(name="channel_norm", **norm)
        self.channel_mixing = MLP(self.channels_mlp_dim, name="channel_mixing", **mlp)
        self.drop = StochasticDepth(self.stochastic_depth, name="drop", **same)
        self.token_mixing.build((batch, width, tokens))
        norms = (self.token_norm, self.channel_norm)
        for layer in (*norms, self.channel_mixing, self.drop):
            layer.build(input_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        branch = ops.swapaxes(self.token_norm(x), 1, 2)  # (B, D, N)
        branch = ops.swapaxes(self.token_mixing(branch, training=training), 1, 2)
        x = x + self.drop(branch, training=training)  # (B, N, D)
        branch = self.channel_mixing(self.channel_norm(x), training=training)
        return x + self.drop(branch, training=training)

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: function} of all variables, for their resampling."""
        paths = [variable.path for variable in self.weights]
        return {path: functools.partial(self.resample, path=path) for path in paths}

    def resample(
        self,
        array: np.ndarray,
        *,
        path: str,
        source_grid: tuple[int, int] | None = None,
        kernel: str = "bicubic_antialias",
    ) -> np.ndarray:
        """Resamples a variable of another grid to this layer's grid.

        The last kernel and bias of the token mixing have one value per output token and
        are resampled like a position table. The first kernel is multiplied with a sum
        over the input tokens: its weights are distributed, so that the hidden values of
        a smooth image do not change.

        Args:
            array: The variable's value for the other grid.
            path: Path of the variable; variables that do not depend on the grid are
                returned unchanged.
            source_grid: (h, w) of `array`; None: this layer's grid if the number of
                tokens is the same, else a square.
            kernel: One of `kerasvit.layers.resampling.KERNELS`.

        Returns:
            Array of the same dtype.

        Raises:
            ValueError: The tokens do not fill the source grid.
        """
        methods = {  # and the axis of the tokens
            "token_mixing/dense_0/kernel": (spread_grid, 0),
            "token_mixing/dense_0/lora_kernel_a": (spread_grid, 0),
            "token_mixing/dense_1/kernel": (resample_grid, 1),
            "token_mixing/dense_1/lora_kernel_b": (resample_grid, 1),
            "token_mixing/dense_1/bias": (resample_grid, 0),
        }
        name = "/".join(path.split("/")[-3:])
        if name not in methods:
            return array
        method, axis = methods[name]
        own = next(tuple(v.shape) for v in self.weights if v.path.endswith(name))
        same = source_grid is None or pair(source_grid) == self.grid
        if same and array.shape == own:  # int4 kernels have fewer rows than tokens
            return array
        self._check_floating(name.split("/")[1])
        source = table_grid(
            array.shape[axis],
            own_grid=self.grid,
            source_grid=source_grid,
            name=f"token mixing's {name.rpartition('/')[2]}",
        )
        cells = array.T if axis else array  # (h·w, ...)
        cells = method(cells.reshape(*source, *cells.shape[1:]), self.grid, kernel)
        cells = cells.reshape(-1, *cells.shape[2:])
        return cells.T if axis else cells

    def _check_floating(self, name: str) -> None:
        """Raises a `ValueError` if a layer of the token mixing is quantised."""
        if getattr(self.token_mixing, name).quantization_mode is not None:
            raise ValueError(
                f"The token mixing of {self.name} is quantised for one grid and cannot "
                f"be resampled to {self.grid[0]} × {self.grid[1]}. Change the image "
                "size before `quantize`."
            )
