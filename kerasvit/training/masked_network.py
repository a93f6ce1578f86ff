"""What `MaskedPatches` computes of a batch: a ViT whose patches are partly hidden.

The networks call the layers of the ViT itself, between which they hide patches. Beside
them they have what the objective needs: a mask token and a head, or a decoder.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, number, patch_sides, whole_patches
from kerasvit.layers import MLP, Attention, Dense, EncoderBlock, LayerNormalization
from kerasvit.layers.sincos_position_embedding import sincos_table
from kerasvit.types import Tensor

LEVELS = 8  # 3 bits of a channel
MOST_CHANNELS = 4  # 4,096 colours
MASKED, REPLACED = 0.8, 0.1  # shares of the corrupted patches; the rest is kept
DECODER = {"width": 512, "depth": 8, "num_heads": 16}  # section 4 of the MAE paper


class MaskedNetwork(keras.layers.Layer):
    """The layers of a ViT, from images to the last normalisation; base of objectives.

    A subclass has `RATIO`, the paper's share of hidden patches, and `PARTS`, the shape
    of the random numbers of a patch.

    Shape: images (batch, H, W, C) and noise (batch, N, *PARTS) → a dictionary:
    "prediction" (batch, N, outputs), and "mask" (batch, N), float32, 1 for the patches
    whose targets are learned.

    Args:
        model: ViT, checked.
        kwargs: Arguments of its builder.
        ratio: Share of the patches that are hidden, in (0, 1); None: `RATIO`.

    Raises:
        ValueError: `ratio` hides no patch, or all.
    """

    RATIO = 0.0
    PARTS: tuple[int, ...] = ()

    def __init__(
        self, model: keras.Model, kwargs: dict[str, Any], ratio: float | None
    ) -> None:
        super().__init__(name="network", dtype=model.dtype_policy, autocast=False)
        self.image_shape = tuple(model.input_shape[1:])
        self.sides = patch_sides(kwargs["patch_size"])
        self.grid = whole_patches(self.image_shape[:2], self.sides)
        self.patches = self.grid[0] * self.grid[1]  # N
        self.ratio = number("ratio", self.RATIO if ratio is None else ratio, 0, 1)
        # The same number as the paper's code has, which rounds down.
        self.keep = int(self.patches * (1 - self.ratio) + 1e-9)
        if not 0 < self.keep < self.patches:
            raise ArgumentError(
                f"`ratio` must hide a part of the {self.patches} patches, not "
                f"{'none' if self.keep else 'all'}. Received: ratio={self.ratio}.",
                "ratio",
            )
        self.prefix = int(kwargs["class_token"]) + kwargs["register_tokens"]
        self.width = kwargs["width"]
        layers = {layer.name: layer for layer in model.layers}
        names = [*layers]
        first, dropout = names.index("embedding"), names.index("dropout")
        last = names.index(f"encoder_block_{kwargs['depth'] - 1}")
        self.scaling = [layers[name] for name in names[1:first]]
        self.embedding = layers["embedding"]
        self.placing = [layers[name] for name in names[first + 1 : dropout]]
        self.encoder = [layers[name] for name in names[dropout : last + 1]]
        if "encoder_norm" in layers:
            self.encoder.append(layers["encoder_norm"])

    def scaled(self, images: Tensor) -> Tensor:
        """Returns images as the embedding gets them, float32 at least.

        Raises:
            ValueError: They are not of the model's size.
        """
        found = tuple(images.shape[1:])
        pairs = [*zip(found, self.image_shape, strict=False)]
        same = all(side in (None, own) for side, own in pairs)
        if len(found) != len(self.image_shape) or not same:
            raise ValueError(
                f"The images must be (batch, {', '.join(map(str, self.image_shape))}), "
                f"as the model takes them. Received: {tuple(images.shape)}."
            )
        for layer in self.scaling:
            images = layer(images)
        exact = keras.backend.result_type(images.dtype, "float32")
        return ops.cast(images, exact)

    def placed(self, patches: Tensor) -> Tensor:
        """Adds positions and prefix tokens: (B, N, D) → (B, prefix + N, D)."""
        for layer in self.placing:
            patches = layer(patches)
        return patches

    def encoded(self, tokens: Tensor) -> Tensor:
        """Returns the tokens after the blocks and the last normalisation."""
        for layer in self.encoder:
            tokens = layer(tokens)
        return tokens

    def pixels(self, images: Tensor) -> Tensor:
        """Returns the pixels of each patch: (B, H, W, C) → (B, N, P · Q, C)."""
        (p, q), (rows, columns), channels = self.sides, self.grid, images.shape[-1]
        x = images[:, : rows * p, : columns * q]
        x = ops.reshape(x, (-1, rows, p, columns, q, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, self.patches, p * q, channels))

    def targets(self, images: Tensor) -> Tensor:
        """Returns what is learned of each patch, for the images of a call."""
        raise NotImplementedError

    def losses_of(self, targets: Tensor, predictions: Tensor) -> Tensor:
        """Returns the loss of each patch, (B, N)."""
        raise NotImplementedError


class ColourNetwork(MaskedNetwork):
    """Predicts the mean colour of corrupted patches, of 3 bits a channel.

    The random numbers of a patch are: its place in the order of the patches, of which
    the last are corrupted; what becomes of it then; and which other patch of the same
    image it is replaced by.
    """

    RATIO = 0.5
    PARTS = (3,)

    def __init__(
        self, model: keras.Model, record: dict[str, Any], ratio: float | None
    ) -> None:
        super().__init__(model, record["kwargs"], ratio)
        channels = self.image_shape[-1]
        if channels > MOST_CHANNELS:
            raise ValueError(
                f"The objective 'masked' has {LEVELS} ** channels classes, and is for "
                f"at most {MOST_CHANNELS} channels. Received: a model for {channels}. "
                "Choose the objective 'mae'."
            )
        known = record["preprocessing"] or record["kwargs"]["normalization"]
        if not known:
            raise ValueError(
                "The objective 'masked' has to know which values of the images are "
                "black and white. Received: a model without a transform. Set "
                "`model.preprocessing = kerasvit.Preprocessing(…)` first."
            )
        self.mean, self.std = (np.float32(known[name]) for name in ("mean", "std"))
        self.mask_token = self.add_weight(
            name="mask_token",
            shape=(self.width,),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )
        self.colours = Dense(LEVELS**channels, name="colours", dtype=self.dtype_policy)
        self.colours.build((None, None, self.width))
        self.built = True

    def call(self, inputs: list[Tensor]) -> dict[str, Tensor]:
        images, noise = inputs
        patches = self.embedding(self.scaled(images))
        corrupted = _order(noise[..., 0])[1] >= self.keep  # (B, N)
        x = self.placed(self._corrupted(patches, corrupted, noise))
        x = self.encoded(x)[:, self.prefix :]
        mask = ops.cast(corrupted, "float32")
        return {"prediction": self.colours(x), "mask": mask}

    def _corrupted(self, patches: Tensor, corrupted: Tensor, noise: Tensor) -> Tensor:
        fate, other = noise[..., 1], noise[..., 2]
        steps = 1 + ops.cast(other * (self.patches - 1), "int32")  # rounds down
        places = ops.arange(self.patches, dtype="int32")
        others = _taken(patches, (places + steps) % self.patches)
        masked = ops.logical_and(corrupted, fate < MASKED)
        replaced = ops.logical_and(corrupted, fate >= MASKED)
        replaced = ops.logical_and(replaced, fate < MASKED + REPLACED)
        x = ops.where(replaced[..., None], others, patches)
        token = ops.cast(self.mask_token, patches.dtype)
        return ops.where(masked[..., None], token, x)

    def targets(self, images: Tensor) -> Tensor:
        """Returns the number of each patch's colour, (B, N); red counts most."""
        means = ops.mean(self.pixels(self.scaled(images)), axis=2)  # (B, N, C)
        levels = ops.floor(LEVELS * ops.add(ops.multiply(means, self.std), self.mean))
        levels = ops.cast(ops.clip(levels, 0, LEVELS - 1), "int32")
        places = LEVELS ** np.arange(self.image_shape[-1], dtype="int32")[::-1]
        return ops.sum(ops.multiply(levels, places.copy()), axis=-1)

    def losses_of(self, targets: Tensor, predictions: Tensor) -> Tensor:
        """Returns the cross-entropy of each patch's colour."""
        return ops.sparse_categorical_crossentropy(
            ops.cast(targets, "int32"), predictions, from_logits=True
        )


class PixelNetwork(MaskedNetwork):
    """A masked autoencoder: predicts the normalised pixels of patches left out.

    The encoder gets the patches with the smallest random numbers. The decoder gets all:
    the encoded ones, class and register tokens among them, and mask tokens elsewhere.
    """

    RATIO = 0.75

    def __init__(
        self,
        model: keras.Model,
        record: dict[str, Any],
        ratio: float | None,
        *,
        width: int,
        depth: int,
        num_heads: int,
    ) -> None:
        super().__init__(model, record["kwargs"], ratio)
        same = {"dtype": self.dtype_policy}
        table = sincos_table(self.grid, width, endpoint=False)
        self.positions = np.pad(table, ((self.prefix, 0), (0, 0)))
        self.mask_token = self.add_weight(
            name="mask_token",
            shape=(width,),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )
        self.decoder_embedding = Dense(width, name="decoder_embedding", **same)
        self.decoder_embedding.build((None, None, self.width))
        self.decoder = [
            EncoderBlock(
                Attention(num_heads, name="attention", **same),
                MLP(4 * width, name="mlp", **same),
                name=f"decoder_block_{i}",
                **same,
            )
            for i in range(depth)
        ]
        self.decoder.append(LayerNormalization(epsilon=1e-6, name="norm", **same))
        outputs = int(np.prod(self.sides)) * self.image_shape[-1]
        self.decoder.append(Dense(outputs, name="decoder_prediction", **same))
        for layer in self.decoder:
            layer.build((None, None, width))
        self.built = True

    def call(self, inputs: list[Tensor]) -> dict[str, Tensor]:
        images, noise = inputs
        order, ranks = _order(noise)
        tokens = self.placed(self.embedding(self.scaled(images)))
        before, patches = tokens[:, : self.prefix], tokens[:, self.prefix :]
        seen = _taken(patches, order[:, : self.keep])
        x = self.encoded(ops.concatenate([before, seen], axis=1))
        x = self.decoder_embedding(x)
        x = ops.concatenate([x, self._mask_tokens(x)], axis=1)
        before, patches = x[:, : self.prefix], x[:, self.prefix :]
        x = ops.concatenate([before, _taken(patches, ranks)], axis=1)
        x = x + ops.cast(self.positions, x.dtype)
        for layer in self.decoder:
            x = layer(x)
        mask = ops.cast(ranks >= self.keep, "float32")
        return {"prediction": x[:, self.prefix :], "mask": mask}

    def _mask_tokens(self, x: Tensor) -> Tensor:
        shape = ops.shape(x)[0], self.patches - self.keep, x.shape[-1]
        return ops.broadcast_to(ops.cast(self.mask_token, x.dtype), shape)

    def targets(self, images: Tensor) -> Tensor:
        """Returns the pixels of each patch with mean 0 and deviation 1, (B, N, PQC)."""
        x = self.pixels(self.scaled(images))
        count = x.shape[2] * x.shape[3]
        x = ops.reshape(x, (-1, self.patches, count))
        x = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.sum(ops.square(x), axis=-1, keepdims=True) / max(count - 1, 1)
        return x / ops.sqrt(variance + 1e-6)

    def losses_of(self, targets: Tensor, predictions: Tensor) -> Tensor:
        """Returns the mean squared error of each patch."""
        return ops.mean(ops.square(predictions - targets), axis=-1)


class PatchLoss(keras.losses.Loss):
    """The mean loss of an image's patches with mask 1.

    Args:
        network: `MaskedNetwork`.
    """

    def __init__(self, network: MaskedNetwork) -> None:
        super().__init__(name="patches")
        self.network = network

    def call(self, y_true: tuple[Tensor, Tensor], y_pred: Tensor) -> Tensor:
        targets, mask = y_true
        losses = self.network.losses_of(targets, y_pred)
        return ops.sum(losses * mask, axis=-1) / ops.sum(mask, axis=-1)


def _order(noise: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the patches in the order of their numbers, and the rank of each."""
    order = ops.argsort(noise, axis=-1)
    return order, ops.argsort(order, axis=-1)


def _taken(patches: Tensor, indices: Tensor) -> Tensor:
    """Returns the patches (B, n, D) at indices (B, n) of (B, N, D)."""
    return ops.take_along_axis(patches, indices[..., None], axis=1)
