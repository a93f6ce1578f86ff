"""Training of a Vision Transformer on images without labels, by hidden patches."""

from typing import Any

import keras
from keras import ops, random

from kerasvit.arguments import ArgumentError, check_built, integer, one_of
from kerasvit.backend.keras_private import added_losses
from kerasvit.records import found_record
from kerasvit.types import Tensor

from .masked_network import (
    DECODER,
    ColourNetwork,
    MaskedNetwork,
    PatchLoss,
    PixelNetwork,
)
from .sam import SAM


@keras.saving.register_keras_serializable("kerasvit")
class MaskedPatches(SAM):
    """Trains a ViT without labels: it predicts patches of an image that are hidden.

    "masked", of the ViT paper: a half of the patch embeddings is corrupted. Of these
    80 % become a learned mask token, 10 % the embedding of another patch of the image,
    and 10 % are kept; each by chance. A dense layer on the last token of each corrupted
    patch predicts its mean colour, of 3 bits a channel, one of 512:

        L = mean over corrupted patches of CE(softmax(z), colour)

    "mae", a masked autoencoder: three quarters of the patches are left out, so that the
    encoder computes the others only, and the class token. A decoder gets its results,
    with mask tokens in the other places, and predicts the pixels x of the patches left
    out, each patch normalised by its own mean and deviation:

        L = mean over patches left out of |z − (x − mean x) / √(var x + 1e-6)|² / n

        trainer = kerasvit.MaskedPatches(model, "mae")
        trainer.compile(kerasvit.AdamW(1.5e-4, weight_decay=0.05))
        trainer.fit(images, epochs=10)  # then `model` has the trained encoder

    `fit` needs no labels, and ignores them. The images are those that the model takes.
    `model` stays a ViT in all other respects: it is saved, fine-tuned and evaluated as
    before. Its head, and what else follows the last normalisation, is not used and does
    not change; that normalisation is applied to all tokens, also of a model that would
    average them first. A mask is drawn anew for each image in each call, in evaluation
    too. `trainer(images, noise=noise)` has masks of your own: the patches with the
    smallest numbers are not hidden.

    It trains in the same way with SAM, with the same masks in both passes, in other
    trainers too, such as `kerasvit.GSAM(kerasvit.MaskedPatches(model), ...)`. Files of
    the trainer contain the model with its head, mask token and decoder, and the state
    of the random numbers.

    Shape: (batch, H, W, C) → {"prediction": (batch, N, 8 ** C) logits of colours, or
    (batch, N, P · Q · C) normalised pixels, of N patches of P × Q pixels, row by row;
    "mask": (batch, N), 1 for the patches of the loss}.

    Args:
        model: Built ViT, as `VisionTransformer` and its variants return it, for images
            of one size. Any pooling, positions, class and register tokens.
        objective: "masked" or "mae".
        ratio: Share of the patches that are corrupted or left out, in (0, 1); the
            number of the others is rounded down. None: the paper's, 0.5 or 0.75.
        decoder: Sizes of the decoder of "mae", a dictionary with "width", a multiple
            of 4, "depth" and "num_heads"; those left out are the paper's, 512, 8, 16.
        rho: Radius of SAM, ≥ 0; 0 is plain training. A trainer around this one has its
            own, and rho is 0 here.
        name: Name of the trainer.
        options: `perturbation`, `micro_batches` and `every`, as for `SAM`.

    Raises:
        ValueError: As for `SAM`; `model` is no ViT of kerasvit, or takes images of any
            size; `ratio` hides no patch or all; `decoder` has other entries; "masked"
            is for up to 4 channels, and has to know the range of the images by the
            model's `preprocessing`; `compile` gets a loss.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, section 4.6 and appendix
    B.1.2; He et al. 2022, arXiv 2111.06377, and facebookresearch/mae models_mae.py.
    Whose embedding replaces the 10 %, the first paper does not state.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: str = "masked",
        *,
        ratio: float | None = None,
        decoder: dict[str, int] | None = None,
        rho: Any = 0.0,
        name: str = "masked_patches",
        **options: Any,
    ) -> None:
        self._check_vit(model)
        super().__init__(model, rho, name=name, **options)
        self.objective = one_of("objective", objective, ("masked", "mae"))
        self.decoder = _checked_decoder(self.objective, decoder)
        with self.variables_scope():
            self.seed_generator = random.SeedGenerator()
            self.network = self._network(ratio)

    @property
    def ratio(self) -> float:
        """Share of the patches that are hidden."""
        return self.network.ratio

    def _network(self, ratio: float | None) -> MaskedNetwork:
        record: Any = found_record(self.model)
        if self.objective == "masked":
            return ColourNetwork(self.model, record, ratio)
        return PixelNetwork(self.model, record, ratio, **(self.decoder or {}))

    @staticmethod
    def _check_vit(model: Any) -> None:
        """Raises an `ArgumentError` for what is no ViT for images of one size."""
        check_built(model)
        record = found_record(model) or {}
        if record.get("builder") != "VisionTransformer":
            raise ArgumentError(
                "`model` must be a ViT of kerasvit, such as kerasvit.ViTS16() or "
                "kerasvit.VisionTransformer(…): its patches are hidden behind their "
                f"embedding. Received: {record.get('builder') or model!r:.200}.",
                "model",
            )
        if None in record["kwargs"]["image_size"]:
            raise ArgumentError(
                "`model` must be for images of one size, with a known number of "
                "patches. Received: a model for images of any size. Pass "
                "kerasvit.resize(model, (height, width)).",
                "model",
            )

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of the objective, without those of the model's head."""
        network = getattr(self, "network", None)  # not yet in SAM's constructor
        if network is None:
            return super().variables
        return [*network.variables, self.seed_generator.state]

    def check_inside(self) -> None:
        """Raises a `ValueError` if this one has settings of the trainer around it."""
        self.check_plain()

    def call(self, inputs: Any, training: bool | None = None, noise: Any = None) -> Any:
        if noise is None:
            shape = ops.shape(inputs)[0], self.network.patches, *self.network.PARTS
            noise = random.uniform(shape, dtype="float32", seed=self.seed_generator)
        return self.called(self.network, [inputs, noise], training)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the loss of the objective; `y` is not used."""
        if getattr(self, "loss", None) is not None:
            raise ValueError(
                "`compile` must get no loss: the objective of MaskedPatches is the "
                f"loss. Received: loss={self.loss!r}."
            )
        targets = self.network.targets(x), y_pred["mask"]
        loss = PatchLoss(self.network)(targets, y_pred["prediction"], sample_weight)
        return loss + added_losses(self.model)

    def settings(self) -> dict[str, Any]:
        """Returns the constructor's arguments without the model."""
        names = ("objective", "ratio", "decoder")
        return {**super().settings(), **{name: getattr(self, name) for name in names}}


def _checked_decoder(
    objective: str, decoder: dict[str, int] | None
) -> dict[str, int] | None:
    """Returns all sizes of the decoder; None for the objective without one."""
    known = isinstance(decoder or {}, dict) and not {*(decoder or {})} - {*DECODER}
    if not known or (decoder and objective != "mae"):
        raise ArgumentError(
            f"`decoder` must be a dictionary of {', '.join(DECODER)}, or some of them, "
            f"for the objective 'mae'. Received: {decoder!r:.200} for {objective!r}.",
            "decoder",
        )
    if objective != "mae":
        return None
    sizes = {**DECODER, **(decoder or {})}
    sizes = {name: integer(name, size, 1) for name, size in sizes.items()}
    width, heads = sizes["width"], sizes["num_heads"]
    if width % 4 or width % heads:
        raise ArgumentError(
            "The width of the decoder must be a multiple of 4, for its positions, and "
            f"of its heads. Received: width={width}, num_heads={heads}.",
            "decoder",
        )
    return sizes
