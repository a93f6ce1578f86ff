"""A ViT inside SAM, as users train it."""

import keras
import numpy as np
import pytest

import kerasvit
from tests.once import rest_long_elsewhere

pytestmark = pytest.mark.slow

# torch.compile takes a minute for a model of this size. On JAX, a step that is not
# compiled takes ten seconds; test_sam_model.py compares such steps in small.
POLICIES = ["mixed_bfloat16", "float32"]
COMPILED = {"jax": [True, True], "tensorflow": [False, True], "torch": [False, False]}


@pytest.mark.parametrize(
    "jit_compile, policy",
    rest_long_elsewhere(zip(COMPILED[keras.backend.backend()], POLICIES)),
)
def test_sam_learns_two_classes(policy, jit_compile):
    keras.config.set_dtype_policy(policy)
    model = kerasvit.VisionTransformer(
        patch_size=4,
        width=16,
        depth=2,
        num_heads=2,
        mlp_dim=32,
        image_size=8,
        num_classes=2,
        dropout=0.1,
        stochastic_depth=0.1,
        layer_scale=1.0,
    )
    labels = np.arange(64) % 2
    noise = np.random.default_rng(0).normal(size=(64, 8, 8, 3), scale=0.3)
    images = (noise + (2 * labels - 1)[:, None, None, None]).astype("float32")
    trainer = kerasvit.SAM(model, rho=0.05)
    trainer.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    trainer.fit(images, labels, batch_size=16, epochs=5, verbose=0)
    loss, accuracy = trainer.evaluate(images, labels, verbose=0)
    assert accuracy > 0.95 and np.isfinite(loss)
    assert all(weight.dtype == "float32" for weight in model.weights)
