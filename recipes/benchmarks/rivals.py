"""Steps of other libraries' models of the same size.

rivals.found(config)      {name: function that builds a step} of those that can run
"""

import sys
from collections.abc import Callable

import keras
from rich.console import Console

import kerasvit

from . import rival_flax, rival_timm
from .import_timm import import_timm
from .keras_steps import keras_step, kerasvit_model, kerasvit_step
from .settings import Config

RESNET50 = ("BiTR50x1", "PreActResNet50", "AlterNet50")  # similar to ResNet-50 v2


def found(config: Config) -> dict[str, Callable]:
    """Returns {name: function that builds a step} of the rivals that can run."""
    backend = keras.backend.backend()
    name = config.name
    vit = name.startswith("ViT") and "CIFAR" not in name
    timm = backend == "torch" and (vit or name in rival_timm.NAMES)
    flax = backend == "jax" and (vit or name.startswith("Mixer"))
    builders = {
        "keras-hub": (vit and installed("keras_hub"), keras_hub_vit),
        "ResNet50V2": (name in RESNET50, keras_resnet),
        "KerasFormers": (vit and bool(config.kerasformers_source), kerasformers_vit),
        "Flax": (flax and bool(config.flax_source), rival_flax.build),
        "timm": (timm and installed("timm"), rival_timm.build),
    }
    builders["timm-compiled"] = (builders["timm"][0], rival_timm.build_compiled)
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
    model = ViTImageClassifier(backbone=backbone, num_classes=1000, pooling="token")
    return keras_step(config, model, images, labels)


def kerasformers_vit(config: Config, images, labels) -> Callable:
    """Returns a step of KerasFormers' ViT of the same size, with timm's arguments."""
    sys.path.append(config.kerasformers_source)
    from kerasformers.models.vit import ViTImageClassify

    model = ViTImageClassify(
        image_size=config.image_size,
        include_normalization=False,
        **rival_timm.vit_arguments(config),
    )
    return keras_step(config, model, images, labels)


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
