"""Outputs that other projects published for public weights, on public photographs.

Each is compared with the same weights in the catalogue. The tests of transformers read
a PNG copy of COCO's JPEG file.
"""

from dataclasses import dataclass, field

import numpy as np

COCO = "000000039769"  # two cats; COCO val2017
_HALF = {"mean": 0.5, "std": 0.5}
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_TRANSFORMERS = (
    "https://github.com/huggingface/transformers/blob/main/tests/models/{0}/"
    "test_modeling_{0}.py"
)


@dataclass(frozen=True)
class PublishedOutput:
    """Some outputs of a model for one photograph.

    Attributes:
        reference: Publisher and weights.
        source: Address of the publication.
        picture: `COCO`, or the name of a bundled photograph.
        preprocessing: Fields of `kerasvit.Preprocessing`.
        values: {class index: value}.
        probabilities: Whether the values are probabilities; otherwise logits.
        allowed: Limit of `error_of`. The tests of transformers use 1e-4 for values of
            four decimals.
    """

    reference: str
    source: str
    picture: str
    preprocessing: dict
    values: dict[int, float]
    probabilities: bool = field(default=False)
    allowed: float = field(default=1e-4)

    def error_of(self, logits: np.ndarray) -> float:
        """Returns the largest |a − b| / (1 + |b|) for outputs a and values b.

        Args:
            logits: Array (classes,) of the model.
        """
        found = np.asarray(logits, "float64")
        if self.probabilities:
            exponentials = np.exp(found - found.max())
            found = exponentials / exponentials.sum()
        expected = np.array([*self.values.values()])
        errors = np.abs(found[[*self.values]] - expected) / (1 + np.abs(expected))
        return float(errors.max())


def _of_transformers(
    weights: str, model: str, preprocessing: dict, *logits: float
) -> PublishedOutput:
    """Returns the first three logits in a test of transformers."""
    return PublishedOutput(
        f"published logits of transformers, {weights}",
        _TRANSFORMERS.format(model),
        COCO,
        preprocessing,
        dict(enumerate(logits)),
    )


# {"MODEL/TAG": output of the same weights}
PUBLISHED = {
    "ViTB16/imagenet21k_ft_in1k": _of_transformers(
        "google/vit-base-patch16-224",
        "vit",
        {"size": 224, "crop": 1.0, "mode": "squash", "kernel": "bilinear", **_HALF},
        *(-0.2744, 0.8215, -0.0836),
    ),
    # The mean of both heads.
    "DeiTB16Distilled/imagenet": _of_transformers(
        "facebook/deit-base-distilled-patch16-224",
        "deit",
        {
            "size": 224,
            "crop": 224 / 256,
            "mode": "squash",
            "kernel": "bicubic",
            **_IMAGENET,
        },
        *(-1.0266, 0.1912, -1.2861),
    ),
    "SwinT/imagenet": _of_transformers(
        "microsoft/swin-tiny-patch4-window7-224",
        "swin",
        {"size": 224, "crop": 1.0, "mode": "squash", "kernel": "bicubic", **_IMAGENET},
        *(-0.0948, -0.6454, -0.0921),
    ),
    "BiTR50x1/imagenet21k_ft_in1k": _of_transformers(
        "google/bit-50",
        "bit",
        {"size": 448, "crop": 1.0, "mode": "center", "kernel": "bilinear", **_HALF},
        *(-0.6526, -0.5263, -1.4398),
    ),
    # `tf.image.resize` of the whole photograph; Egyptian cat and tabby.
    "MixerB16/imagenet": PublishedOutput(
        "published probabilities of keras_cv_attention_models, MLPMixerB16",
        "https://github.com/leondgarse/keras_cv_attention_models/blob/main/"
        "keras_cv_attention_models/mlp_family/README.md",
        "chelsea",
        {
            "size": 224,
            "crop": 1.0,
            "mode": "squash",
            "kernel": "bilinear",
            "antialias": False,
            **_HALF,
        },
        {285: 0.9568315, 281: 0.017994137},
        probabilities=True,
    ),
}
