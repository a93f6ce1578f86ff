"""Steps of other libraries' models of the same size.

rivals.found(config)      {name: function that builds a step} of those that can run
"""

import functools
import sys
from collections.abc import Callable

import keras
from rich.console import Console

import kerasvit

from .import_timm import import_timm
from .keras_steps import keras_step, kerasvit_model, kerasvit_step
from .settings import Config

# Models that are not built with timm's VisionTransformer.
TIMM_NAMES = {
    **{f"BiTR{size}": f"resnetv2_{size}_bit" for size in ("50x1", "101x1", "152x2")},
    **{f"Mixer{n}{p}": f"mixer_{n.lower()}{p}_224" for n in "SBL" for p in (16, 32)},
    "SwinT": "swin_tiny_patch4_window7_224",
    "SwinS": "swin_small_patch4_window7_224",
    "SwinB": "swin_base_patch4_window7_224",
    "PiTS16": "pit_s_224",
    "PiTB14": "pit_b_224",
    "RViTTi16": "vit_tiny_r_s16_p8_224",
    "R26ViTS32": "vit_small_r26_s32_224",
    "R50ViTB16": "vit_base_r50_s16_224",
    "R50ViTL32": "vit_large_r50_s32_224",
    "DeiTB16Distilled": "deit_base_distilled_patch16_224",
}
RESNET50 = ("BiTR50x1", "PreActResNet50", "AlterNet50")  # similar to ResNet-50 v2


def found(config: Config) -> dict[str, Callable]:
    """Returns {name: function that builds a step} of the rivals that can run."""
    backend = keras.backend.backend()
    name = config.name
    vit = name.startswith("ViT") and "CIFAR" not in name
    timm = backend == "torch" and (vit or name in TIMM_NAMES)
    flax = backend == "jax" and (vit or name.startswith("Mixer"))
    builders = {
        "keras-hub": (vit and installed("keras_hub"), keras_hub_vit),
        "ResNet50V2": (name in RESNET50, keras_resnet),
        "KerasFormers": (vit and bool(config.kerasformers_source), kerasformers_vit),
        "Flax": (flax and bool(config.flax_source), flax_step),
        "timm": (timm and installed("timm"), timm_step),
    }
    compiled = functools.partial(timm_step, compiled=True)
    builders["timm-compiled"] = (builders["timm"][0], compiled)
    builders["kerasvit-compiled"] = (backend == "torch", kerasvit_compiled)
    wanted = config.rivals
    if wanted is None:
        wanted = tuple(name for name in builders if "-compiled" not in name)
    return {name: builders[name][1] for name in wanted if builders[name][0]}


def kerasvit_compiled(config: Config, images, labels) -> Callable:
    """Returns a step of kerasvit's model whose passes PyTorch compiles."""
    model = kerasvit_model(config)
    return kerasvit_step(config, model, images, labels, jit=True)


def keras_resnet(config: Config, images, labels) -> Callable:
    """Returns a step of the ResNet-50 v2 of keras.applications."""
    model = keras.applications.ResNet50V2(
        weights=None, input_shape=images.shape[1:], classifier_activation=None
    )
    return keras_step(config, model, images, labels)


def keras_hub_vit(config: Config, images, labels) -> Callable:
    """Returns a step of keras-hub's ViT of the same size."""
    return keras_step(config, new_keras_hub_model(config), images, labels)


def new_keras_hub_model(config: Config) -> keras.Model:
    """Returns keras-hub's model with new weights."""
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    numbers = getattr(kerasvit, config.name).numbers
    backbone = ViTBackbone(
        image_shape=(config.image_size, config.image_size, 3),
        patch_size=numbers["patch_size"],
        num_layers=numbers["depth"],
        num_heads=numbers["num_heads"],
        hidden_dim=numbers["width"],
        mlp_dim=numbers["mlp_dim"],
    )
    return ViTImageClassifier(backbone=backbone, num_classes=1000, pooling="token")


def kerasformers_vit(config: Config, images, labels) -> Callable:
    """Returns a step of KerasFormers' ViT of the same size, with timm's arguments."""
    sys.path.append(config.kerasformers_source)
    from kerasformers.models.vit import ViTImageClassify

    model = ViTImageClassify(
        image_size=config.image_size,
        include_normalization=False,
        **vit_arguments(config),
    )
    return keras_step(config, model, images, labels)


def timm_step(config: Config, images, labels, *, compiled: bool = False) -> Callable:
    """Returns a step of timm's model of the same size, in plain torch."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = new_timm_model(config).to(device)
    run = torch.compile(model) if compiled else model
    # Arrays are copied to the device in every step, as Keras does.
    x = torch.as_tensor(images).permute(0, 3, 1, 2).contiguous()
    y = torch.as_tensor(labels)
    half = config.dtype == "mixed_bfloat16"
    cast = torch.autocast(device, torch.bfloat16, enabled=half)

    def forward():
        with torch.no_grad(), cast:
            return run(x.to(device)).float().cpu().numpy()

    if config.what == "forward":
        model.eval()
        return forward
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def train():
        optimizer.zero_grad()
        with cast:
            logits = run(x.to(device))
        loss = torch.nn.functional.cross_entropy(logits.float(), y.to(device))
        loss.backward()
        optimizer.step()
        return loss.item()

    return train


def new_timm_model(config: Config):
    """Returns timm's model with new weights."""
    timm = import_timm()
    if config.name in TIMM_NAMES:
        size = {} if "BiT" in config.name else {"img_size": config.image_size}
        return timm.create_model(TIMM_NAMES[config.name], num_classes=1000, **size)
    return timm.models.VisionTransformer(
        img_size=config.image_size, **vit_arguments(config)
    )


def vit_arguments(config: Config) -> dict:
    """Returns the arguments of a ViT of the same size, by timm's names."""
    numbers = getattr(kerasvit, config.name).numbers
    return {
        "patch_size": numbers["patch_size"],
        "embed_dim": numbers["width"],
        "depth": numbers["depth"],
        "num_heads": numbers["num_heads"],
        "mlp_ratio": numbers["mlp_dim"] / numbers["width"],
    }


def flax_step(config: Config, images, labels) -> Callable:
    """Returns a compiled step of google-research/vision_transformer.

    The model is that of `vit_jax/models_vit.py` or `models_mixer.py`. Their training
    loop averages over devices; here one device takes the same loss and optax's AdamW.
    """
    import jax
    import jax.numpy as jnp
    import optax

    model = new_flax_model(config)
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


def new_flax_model(config: Config):
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


def installed(package: str) -> bool:
    """Returns whether a package can be imported; prints the error of its import."""
    try:
        import_timm() if package == "timm" else __import__(package)
    except ImportError:
        return False
    except Exception as error:
        Console(stderr=True, markup=False).print(
            f"{package} is skipped, because its import fails: {error}"
        )
        return False
    return True
