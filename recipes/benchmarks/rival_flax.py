"""Steps of ViT and Mixer in the authors' code, google-research/vision_transformer.

The models are those of `vit_jax/models_vit.py` and `models_mixer.py`. Their training
loop averages over devices; here one device takes the same loss and optax's AdamW.
"""

import sys
from collections.abc import Callable

import kerasvit

from .settings import Config


def build(config: Config, images, labels) -> Callable:
    """Returns a compiled step of the authors' model of the same size."""
    import jax
    import jax.numpy as jnp
    import optax

    model = new_model(config)
    variables = jax.jit(lambda key, x: model.init(key, x, train=False))(
        jax.random.key(0), images
    )
    half = config.dtype == "mixed_bfloat16"

    def logits(variables, x):
        if half:
            variables, x = jax.tree.map(
                lambda a: a.astype(jnp.bfloat16), (variables, x)
            )
        return model.apply(variables, x, train=False).astype("float32")

    if config.what == "forward":
        predict = jax.jit(logits)
        return lambda: jax.device_get(predict(variables, images))

    optimizer = optax.adamw(1e-4)

    def step(variables, state, x, y):
        def loss_at(variables):
            losses = optax.softmax_cross_entropy_with_integer_labels
            return losses(logits(variables, x), y).mean()

        loss, gradients = jax.value_and_grad(loss_at)(variables)
        updates, state = optimizer.update(gradients, state, variables)
        return optax.apply_updates(variables, updates), state, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))
    held = [variables, optimizer.init(variables)]

    def train():
        *held[:], loss = compiled(*held, images, labels)
        return float(loss)

    return train


def new_model(config: Config):
    """Returns the authors' module, without weights."""
    from ml_collections import ConfigDict

    sys.path.append(config.flax_source)
    numbers = getattr(kerasvit, config.name).numbers
    patch = numbers["patch_size"]
    patches = ConfigDict({"size": (patch, patch)})
    if config.name.startswith("Mixer"):
        from vit_jax.models_mixer import MlpMixer

        return MlpMixer(
            patches=patches,
            num_classes=1000,
            num_blocks=numbers["depth"],
            hidden_dim=numbers["width"],
            tokens_mlp_dim=numbers["tokens_mlp_dim"],
            channels_mlp_dim=numbers["channels_mlp_dim"],
        )
    from vit_jax.models_vit import VisionTransformer

    return VisionTransformer(
        num_classes=1000,
        patches=patches,
        hidden_size=numbers["width"],
        transformer={
            "mlp_dim": numbers["mlp_dim"],
            "num_heads": numbers["num_heads"],
            "num_layers": numbers["depth"],
            "attention_dropout_rate": 0.0,
            "dropout_rate": 0.0,
        },
    )
