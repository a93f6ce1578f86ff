"""Masked patches: masks, targets and losses, compared with longhand NumPy."""

import keras
import numpy as np
import pytest
from keras import ops, random

import kerasvit
from kerasvit.training import GSAM, SAM, MaskedPatches
from tests.once import (
    long_elsewhere,
    on_last_backend,
    rest_long_elsewhere,
)
from tests.random_weights import randomised
from tests.trainers import COMPILED, assert_same, compiled, values

P, SIDE, WIDTH = 4, 8, 8
DECODER = {"width": 8, "depth": 1, "num_heads": 2}
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
MODE = COMPILED if keras.backend.backend() == "jax" else {}  # the faster one
KINDS = {
    "token": {},
    "average and registers": {"pool": "average", "register_tokens": 2},
    "positions of patches": {
        **{"pool": "average_then_norm", "positions": "patches", "channels": 1},
        **{"image_size": (8, 12), "class_token": True},
    },
    "sincos": {
        **{"pool": "average", "positions": "sincos2d", "final_norm": False},
        **{"image_size": (8, 16)},
    },
}


def vit(seed=1, **options):
    """A ViT with random weights of its layers, biases and head too."""
    keras.utils.set_random_seed(seed)
    numbers = {
        **{"image_size": SIDE, "patch_size": P, "width": WIDTH, "depth": 1},
        **{"num_heads": 2, "mlp_dim": 12, "num_classes": 3, **options},
    }
    channels = numbers.get("channels", 3)
    model = kerasvit.Variant("tiny", kerasvit.VisionTransformer, **numbers)()
    sides = model.input_shape[1:3]
    model.preprocessing = kerasvit.Preprocessing(
        sides, mean=(MEAN * 2)[:channels], std=(STD * 2)[:channels]
    )
    return randomised(model, seed, scale=1.0)


def trainer_of(objective, model=None, **options):
    sizes = {"decoder": DECODER} if objective == "mae" else {}
    return MaskedPatches(model or vit(), objective, **sizes, **options)


def images(n=6, shape=(SIDE, SIDE, 3), seed=1):
    """Normalised images of values between 0 and 1."""
    x = np.random.default_rng(seed).uniform(size=(n, *shape))
    channels = shape[-1]
    return ((x - MEAN[:channels]) / STD[:channels]).astype("float32")


def noise_of(trainer, n=6, seed=2):
    shape = n, trainer.network.patches, *trainer.network.PARTS
    return np.random.default_rng(seed).uniform(size=shape).astype("float32")


def patches_of(x):
    """The pixels of each patch, (B, N, P, P, C)."""
    rows, columns = x.shape[1] // P, x.shape[2] // P
    found = [
        x[:, i * P : (i + 1) * P, j * P : (j + 1) * P]
        for i in range(rows)
        for j in range(columns)
    ]
    return np.stack(found, axis=1)


def hidden(noise, ratio):
    """1 for the patches of the largest numbers; their number is rounded up."""
    mask = np.zeros(noise.shape)
    keep = int(noise.shape[1] * (1 - ratio))
    for row, numbers in zip(mask, noise, strict=True):
        row[np.argsort(numbers)[keep:]] = 1
    return mask


def arrays(outputs):
    return {key: ops.convert_to_numpy(value) for key, value in outputs.items()}


def called(layers, x):
    for layer in layers:
        x = layer(x)
    return ops.convert_to_numpy(x)


def parts(model):
    """The layers of a model that place its patches, and those that encode them."""
    names = [layer.name for layer in model.layers]
    embedding, dropout = names.index("embedding"), names.index("dropout")
    encoder = model.layers[dropout : names.index("encoder_block_0") + 1]
    if "encoder_norm" in names:
        encoder = [*encoder, model.get_layer("encoder_norm")]
    return model.layers[embedding + 1 : dropout], encoder


def sincos(rows, columns, width):
    """The fixed positions of MAE's decoder, from the formula of its code."""
    table = []
    for y in range(rows):
        for x in range(columns):
            rates = [10_000 ** (-i / (width // 4)) for i in range(width // 4)]
            waves = [f(z * r) for z in (x, y) for f in (np.sin, np.cos) for r in rates]
            table.append(waves)
    return np.array(table)


@long_elsewhere
@pytest.mark.parametrize("kind", KINDS)
def test_corrupted_embeddings_and_colours_are_the_papers(kind):
    model = vit(**KINDS[kind])
    trainer, x = trainer_of("masked", model), images(shape=model.input_shape[1:])
    noise = noise_of(trainer)
    found = arrays(trainer(x, noise=noise))
    mask = hidden(noise[..., 0], 0.5)
    assert_same([found["mask"]], [mask], 0)

    embedded = ops.convert_to_numpy(model.get_layer("embedding")(x))
    corrupted, count = embedded.copy(), embedded.shape[1]
    token = ops.convert_to_numpy(trainer.network.mask_token)
    for b, n in np.argwhere(mask):
        _, fate, other = noise[b, n]
        if fate < 0.8:
            corrupted[b, n] = token
        elif fate < 0.9:
            away = 1 + int(other * (count - 1))
            corrupted[b, n] = embedded[b, (n + away) % count]
    placing, encoder = parts(model)
    tokens = called([*placing, *encoder], corrupted)[:, -count:]
    head = trainer.network.colours
    kernel, bias = map(ops.convert_to_numpy, head.variables)
    np.testing.assert_allclose(found["prediction"], tokens @ kernel + bias, atol=2e-5)

    channels = x.shape[-1]
    colours = np.zeros(mask.shape, int)
    for c in range(channels):
        means = patches_of(x)[..., c].mean((2, 3)) * STD[c] + MEAN[c]
        colours = 8 * colours + np.clip(np.floor(8 * means), 0, 7).astype(int)
    assert found["prediction"].shape[-1] == 8**channels
    z = found["prediction"].astype("float64")
    rates = z - np.log(np.exp(z).sum(-1, keepdims=True))
    losses = -np.take_along_axis(rates, colours[..., None], -1)[..., 0]
    weight = np.linspace(0.5, 1.5, len(x)).astype("float32")
    expected = np.mean(weight * (losses * mask).sum(1) / mask.sum(1))
    loss = trainer.compute_loss(x, None, found, weight)
    np.testing.assert_allclose(ops.convert_to_numpy(loss), expected, rtol=1e-5)


@long_elsewhere  # tests/golden has a case for all backends
@pytest.mark.parametrize("kind", KINDS)
def test_an_autoencoder_sees_a_part_and_predicts_normalised_pixels(kind):
    model = vit(**KINDS[kind])
    trainer, x = trainer_of("mae", model), images(shape=model.input_shape[1:])
    noise, network = noise_of(trainer), trainer.network
    mask = hidden(noise, 0.75)
    found = arrays(trainer(x, noise=noise))
    assert_same([found["mask"]], [mask], 0)

    placing, encoder = parts(model)
    tokens = called([model.get_layer("embedding"), *placing], x)
    count = mask.shape[1]
    prefix = tokens.shape[1] - count
    width = DECODER["width"]
    all_tokens = np.zeros((len(x), prefix + count, width))
    for b, (row, hides) in enumerate(zip(tokens, mask, strict=True)):
        seen = np.concatenate([np.arange(prefix), prefix + np.flatnonzero(hides == 0)])
        coded = called([*encoder, network.decoder_embedding], row[None, seen])
        all_tokens[b] = ops.convert_to_numpy(network.mask_token)
        all_tokens[b, seen] = coded[0]
    all_tokens[:, prefix:] += sincos(*network.grid, width)
    decoded = called(network.decoder, all_tokens.astype("float32"))[:, prefix:]
    np.testing.assert_allclose(found["prediction"], decoded, atol=2e-5)

    pixels = patches_of(x).astype("float64").reshape(*mask.shape, -1)
    mean, variance = pixels.mean(-1), pixels.var(-1, ddof=1)
    target = (pixels - mean[..., None]) / np.sqrt(variance + 1e-6)[..., None]
    losses = np.square(found["prediction"] - target).mean(-1)
    loss = trainer.compute_loss(x, None, found)
    expected = (losses * mask).sum() / mask.sum()
    np.testing.assert_allclose(ops.convert_to_numpy(loss), expected, rtol=1e-5)


class Given(MaskedPatches):
    """Masks by random numbers that are given beforehand."""

    given = None

    def call(self, inputs, training=None, noise=None):
        return super().call(inputs, training, self.given)


@long_elsewhere
@pytest.mark.parametrize("objective", ["masked", "mae"])
def test_both_passes_of_sam_have_the_same_masks(objective):
    sizes = {"decoder": DECODER} if objective == "mae" else {}
    plain = compiled(trainer_of(objective, vit(), rho=0.1), loss=None, **MODE)
    generator = random.SeedGenerator(0)
    generator.state.assign(plain.seed_generator.state)
    shape = noise_of(plain).shape
    given = Given(vit(), objective, **sizes)
    given.given = random.uniform(shape, dtype="float32", seed=generator)
    around = compiled(SAM(given, 0.1), loss=None, **MODE)
    for trainer in (plain, around):
        trainer.train_on_batch(images())
    assert_same(values(plain.model), values(given.model), 1e-6)
    # The next step draws others.
    assert_same([values(plain)[-1]], [ops.convert_to_numpy(generator.state)], 0)


@pytest.mark.slow
@pytest.mark.parametrize("objective", rest_long_elsewhere(["masked", "mae"]))
def test_the_loss_falls_and_the_model_is_the_trained_encoder(objective, tmp_path):
    model, x = vit(pool="average", class_token=True), images()
    head, encoder = model.get_layer("head"), model.get_layer("encoder_block_0")
    before = values(head), values(encoder)
    trainer = trainer_of(objective, model)
    compiled(trainer, kerasvit.AdamW(0.03, weight_decay=0.1), None, **MODE)
    losses = [trainer.train_on_batch(x) for _ in range(8)]
    assert losses[-1] < 0.9 * losses[0]
    assert_same(values(head), before[0], 0)
    changes = zip(values(encoder), before[1], strict=True)
    assert min(np.abs(new - old).max() for new, old in changes) > 1e-4
    kerasvit.save_pretrained(model, tmp_path / "model")
    loaded = kerasvit.from_pretrained(tmp_path / "model", num_classes=0)
    features = keras.Model(model.input, head.input)
    assert_same([loaded.predict(x, verbose=0)], [features.predict(x, verbose=0)], 1e-6)


@pytest.mark.long  # eager steps of JAX take a minute
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("objective", ["masked", "mae"])
def test_a_compiled_step_equals_an_eager_one(objective, policy):
    results = []
    for mode in ({}, COMPILED):
        model = vit(dtype=policy, dropout=0.1)
        trainer = compiled(SAM(trainer_of(objective, model), 0.05), loss=None, **mode)
        for _ in range(2):
            trainer.train_on_batch(images())
        results.append(values(model))
    assert_same(*results, 1e-5 if policy == "float32" else 3e-2)


@long_elsewhere
@pytest.mark.parametrize("objective", ["masked", "mae"])
def test_files_continue_with_the_same_masks(objective, tmp_path):
    x = images()

    def trainer(seed):
        inner = trainer_of(objective, vit(seed))
        trainer = GSAM(inner, 0.1, 0.1, 0.5, lr_max=1.0, lr_min=0.0)
        return compiled(trainer, loss=None, **MODE)

    straight, resumed = trainer(1), trainer(2)
    straight.train_on_batch(x)
    straight.save_weights(tmp_path / "state.weights.h5")
    straight.save(tmp_path / "trainer.keras")
    straight.train_on_batch(x)
    resumed.load_weights(tmp_path / "state.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    assert loaded.model.settings() == straight.model.settings()
    for each in (resumed, loaded):
        each.train_on_batch(x)
        assert_same(values(each.model), values(straight.model))
        assert_same(values(each.model.model), values(straight.model.model))


@pytest.mark.slow
@on_last_backend
def test_resume_continues_with_the_same_masks(tmp_path):
    def trained(seed, folder, *epochs):
        for each in epochs:
            trainer = compiled(SAM(trainer_of("mae", vit(seed)), 0.1), loss=None)
            resume = kerasvit.Resume(tmp_path / folder)
            how = {"shuffle": False, "verbose": 0, "callbacks": [resume]}
            trainer.fit(images(), batch_size=3, epochs=each, **how)
            seed += 1
        return values(trainer)

    assert_same(trained(1, "straight", 3), trained(1, "stopped", 1, 3), 0)


@pytest.mark.slow
@on_last_backend
def test_images_with_a_normalisation_inside_have_the_same_targets():
    inside = {"mean": list(MEAN), "std": list(STD)}
    found = []
    for normalization in (None, inside):
        model = vit(normalization=normalization)
        trainer = trainer_of("masked", model)
        x = images() if normalization is None else 255 * (images() * STD + MEAN)
        outputs = trainer(x.astype("float32"), noise=noise_of(trainer))
        loss = trainer.compute_loss(x.astype("float32"), None, outputs)
        found.append(ops.convert_to_numpy(loss))
    np.testing.assert_allclose(*found, rtol=1e-4)


@pytest.mark.slow
@on_last_backend
def test_wrong_arguments_are_explained():
    resnet = kerasvit.Variant(
        "r", kerasvit.BigTransfer, image_size=16, depths=[1], width_factor=0.5
    )()
    cases = {
        "must be a ViT of kerasvit": {"model": resnet},
        "Received: a model for images of any size": {
            "model": kerasvit.ViTTi16(image_size=(None, None), depth=1)
        },
        "must be one of 'masked', 'mae'": {"objective": "beit"},
        r"`ratio` must be a finite number in \[0, 1\)": {"ratio": 1.0},
        "a part of the 4 patches, not none": {"ratio": 0.0},
        "a part of the 4 patches, not all": {"ratio": 0.9},
        "for the objective 'mae'": {"decoder": DECODER},
        "`decoder` must be a dictionary": {"objective": "mae", "decoder": {"dim": 8}},
        "`width` must be a whole number": {
            **{"objective": "mae", "decoder": {"width": 0}}
        },
        "multiple of 4|`num_heads`": {
            **{"objective": "mae", "decoder": {"width": 6, "num_heads": 2}}
        },
        "Choose the objective 'mae'": {"model": vit(channels=5)},
    }
    for message, changes in cases.items():
        with pytest.raises(ValueError, match=message):
            MaskedPatches(**{"model": vit(), **changes})
    unknown = vit()
    unknown.preprocessing = None
    with pytest.raises(ValueError, match="which values of the images are black"):
        MaskedPatches(unknown)
    with pytest.raises(ValueError, match="settings of its own"):
        SAM(MaskedPatches(vit(), rho=0.1), 0.1)
    with pytest.raises(ValueError, match="has its own train_step|must be a ViT"):
        MaskedPatches(SAM(vit(), 0.1))
    trainer = compiled(MaskedPatches(vit()), loss="mse")
    with pytest.raises(ValueError, match="`compile` must get no loss"):
        trainer.train_on_batch(images(), images())
    with pytest.raises(ValueError, match=r"images must be \(batch, 8, 8, 3\)"):
        MaskedPatches(vit())(images(shape=(4, 8, 3)))
