"""keras-hub's ViT, DeiT and DINOv3, in folders of `save_to_preset`.

Array names as Keras writes them for the layers of keras_hub/src/models/vit, deit and
dinov3; those of a task, in a file of their own, begin with "task/". The settings are
those of `config.json` and `task.json`.
"""

import re
from collections.abc import Set
from typing import Any, Protocol

from kerasvit.arguments import Size
from kerasvit.types import PatchSize

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import KeyMap, Transform, split_heads
from ..reader import CheckpointError
from .source import Source, count, names_of_classes

_DENSE = "task/layers/dense"
_NO_BATCH = Transform(lambda a: [a[None]], lambda arrays: arrays[0][0])
# The first of equal layers has no number.
_FIRST = re.compile(r"\b((?:vi|dei)_t_encoder_block|dinov3_layer)/")


class KerasHubSource(Source, Protocol):
    """Base class of keras-hub's models.

    Attributes:
        backbone: Name of the class in `config.json`.
    """

    code_base: str = "keras_hub"
    kernel: str = "bicubic"
    backbone: str

    def short_name(self, name: str) -> str:
        return _FIRST.sub(r"\1_0/", name)

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.startswith("task/optimizer/"):
            return "state of the optimizer"
        return None

    def settings(self, config: Config, built: dict[str, Any]) -> Config:
        """Returns the arguments of the backbone; {} without `config.json`.

        Args:
            config: Content of `config.json`.
            built: {argument: the only supported value}.

        Raises:
            CheckpointError: It is of another class, or an argument is not supported.
        """
        name = config.text("class_name") or self.backbone
        settings = config.part("config")
        if name != self.backbone:
            raise CheckpointError(
                f"config.json states the class {name:.200}, the arrays are of "
                f"{self.backbone}. Use the files of one preset."
            )
        for key, value in built.items():
            if settings.get(key, value) != value:
                raise CheckpointError(
                    f"config.json states {key}={settings[key]!r:.200}. Of keras-hub's "
                    f"{self.backbone}, kerasvit builds {value!r} only."
                )
        return settings


class KerasHubViT(KerasHubSource):
    """Vision Transformers, with or without a classifier.

    Attributes:
        start: Name of the layer of patches, tokens and positions.
        table: Name of the position table.
        encoder: Name of the layer of the blocks.
        block: Name of a block.
        mlp: Names of the layers of its MLP.
    """

    builder = "VisionTransformer"
    backbone = "ViTBackbone"
    start = "layers/vi_t_patching_and_embedding"
    table = f"{start}/position_embedding/vars/0"
    encoder = "layers/vi_t_encoder"
    block = f"{encoder}/encoder_layers/vi_t_encoder_block_{{i}}"
    mlp = ("mlp/dense_1", "mlp/dense_2")

    def recognises(self, names: Set[str]) -> bool:
        return f"{self.start}/patch_embedding/vars/0" in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        settings = self.settings(config, {"use_mha_bias": True, "use_mlp_bias": True})
        prefix = sum(f"{self.start}/vars/{i}" in shapes for i in range(2))
        patches = f"{self.start}/patch_embedding/vars/0"
        *_, channels, width = shapes.of(patches, 4)
        patch = shapes.patch_size(patches, 0)
        first = self.block.format(i=0)
        classes = shapes.side(f"{_head(shapes)}/vars/0", 1, 2, default=0)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "patch_size": patch,
                "width": width,
                "depth": count(
                    shapes, f"{self.block.format(i='{}')}/layer_norm_1/vars/0"
                ),
                "num_heads": shapes.of(f"{first}/mha/query_dense/vars/0", 3)[1],
                "mlp_dim": shapes.of(f"{first}/{self.mlp[0]}/vars/0", 2)[1],
            },
            arguments={
                "channels": channels,
                "num_classes": classes,
                "pool": _pool(config, prefix),
                "class_token": prefix > 0,
                "register_tokens": max(prefix - 1, 0),
                "positions": "tokens",
                "representation_size": _representation_size(shapes),
                "patch_bias": f"{self.start}/patch_embedding/vars/1" in shapes,
                "qkv_bias": True,
                "layer_scale": None,
                "activation": "gelu",
                "epsilon": settings.get("layer_norm_epsilon", 1e-6),
            },
            kernel=self.kernel,
            grid=self.grid(shapes, patch, prefix),
            image_size=_image_size(settings),
            label_names=names_of_classes(None, classes),
        )

    def grid(self, shapes: Shapes, patch: PatchSize, prefix: int) -> TokenGrid:
        """Returns the position table, an `Embedding` of Keras."""
        return TokenGrid(self.table, shapes.of(self.table, 2)[0], patch, prefix)

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        ours, heads = "encoder_block_{i}", kwargs["num_heads"]
        head = _head(shapes or Shapes())
        return KeyMap(
            *self.tokens(),
            *_dense(f"{self.start}/patch_embedding", "embedding"),
            *_norm(f"{self.block}/layer_norm_1", f"{ours}/attention_norm"),
            *_attention(f"{self.block}/mha", f"{ours}/attention", heads),
            *_norm(f"{self.block}/layer_norm_2", f"{ours}/mlp_norm"),
            *_dense(f"{self.block}/{self.mlp[0]}", f"{ours}/mlp/dense_0"),
            *_dense(f"{self.block}/{self.mlp[1]}", f"{ours}/mlp/dense_1"),
            *_norm(f"{self.encoder}/layer_norm", "encoder_norm"),
            *_dense(head, "head"),
            *(_dense(_DENSE, "pre_logits") if head != _DENSE else ()),
        )

    def tokens(self) -> tuple[tuple, ...]:
        """Returns the rules of the learned tokens and positions."""
        return (
            (f"{self.start}/vars/0", "class_token/tokens"),
            (self.table, "position_embedding/table", _NO_BATCH),
        )


class KerasHubDeiT(KerasHubViT):
    """DeiTs, whose classifier uses the class token: the other is a register here."""

    backbone = "DeiTBackbone"
    start = "layers/dei_t_embeddings"
    table = f"{start}/vars/2"
    encoder = "layers/dei_t_encoder"
    block = f"{encoder}/encoder_layers/dei_t_encoder_block_{{i}}"
    mlp = ("mlp/dense", "output_layer/dense")

    def grid(self, shapes: Shapes, patch: PatchSize, prefix: int) -> TokenGrid:
        return TokenGrid(self.table, shapes.of(self.table, 3)[1], patch, prefix)

    def tokens(self) -> tuple[tuple, ...]:
        return (
            (f"{self.start}/vars/0", "class_token/tokens"),
            (f"{self.start}/vars/1", "register_tokens/tokens"),
            (self.table, "position_embedding/table"),
        )


class KerasHubDINOv3(KerasHubSource):
    """Backbones of DINOv3."""

    builder = "RotaryVisionTransformer"
    backbone = "DINOV3Backbone"
    start = "layers/dinov3_embedding"
    block = "layers/dinov3_encoder/layers/dinov3_layer_{i}"

    def recognises(self, names: Set[str]) -> bool:
        return f"{self.start}/patch_embeddings/projection/vars/0" in names

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name == f"{self.start}/vars/1" and f"{self.start}/vars/2" in names:
            return "takes the place of masked patches in training only"
        return super().dropped(name, names)

    def _check_tokens(self, shapes: Shapes, settings: Config) -> None:
        """Raises for a backbone without mask token or registers, numbered otherwise."""
        registers = f"{self.start}/vars/2" in shapes
        if not (registers and settings.get("use_mask_token", True)):
            raise CheckpointError(
                "it is a DINOV3Backbone without mask token or without registers. "
                "kerasvit opens those with both. Open it with keras-hub: "
                "keras_hub.models.Backbone.from_preset(FOLDER)."
            )

    def describe(self, shapes: Shapes, config: Config) -> Description:
        first = self.block.format(i=0)
        query, key = (
            f"{first}/attention/{name}_dense/vars/1" in shapes
            for name in ("query", "key")
        )
        gated = f"{first}/mlp/gate_proj/vars/0" in shapes
        built: dict[str, Any] = {"use_proj_bias": True, "use_mlp_bias": True}
        built["use_value_bias"] = query
        built["hidden_activation"] = "silu" if gated else "gelu"
        settings = self.settings(config, built)
        self._check_tokens(shapes, settings)
        patches = f"{self.start}/patch_embeddings/projection/vars/0"
        *_, channels, width = shapes.of(patches, 4)
        patch = shapes.patch_size(patches, 0)
        heads = settings.integer("num_heads")
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "patch_size": patch,
                "width": width,
                "depth": count(shapes, f"{self.block.format(i='{}')}/norm1/vars/0"),
                "mlp_dim": shapes.of(f"{first}/mlp/down_proj/vars/0", 2)[0],
                **({"num_heads": heads} if heads else {}),
            },
            arguments={
                "channels": channels,
                "num_classes": 0,
                "pool": "token",
                "class_token": True,
                "register_tokens": shapes.side(f"{self.start}/vars/2", 1, 3, default=0),
                "positions": "none",
                "rotary": {"temperature": settings.get("rope_theta", 100.0)},
                "qkv_bias": query,
                "key_bias": key or not query,
                "layer_scale": settings.get("layer_scale_init_value", 1.0),
                "mlp": "swiglu" if gated else "plain",
                "activation": "gelu",
                "epsilon": settings.get("layer_norm_eps", 1e-5),
            },
            kernel=self.kernel,
            stride=patch,
            image_size=_image_size(settings),
            open_arguments=() if settings else ("num_heads",),
            transform={
                "mean": (0.485, 0.456, 0.406),
                "std": (0.229, 0.224, 0.225),
            },
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        name, ours = self.block, "encoder_block_{i}"
        attention = [
            rule
            for part in ("query", "key", "value", "output")
            for rule in _dense(
                f"{name}/attention/{part}_dense", f"{ours}/attention/{part}"
            )
        ]
        return KeyMap(
            (f"{self.start}/vars/0", "class_token/tokens"),
            (f"{self.start}/vars/2", "register_tokens/tokens"),
            *_dense(f"{self.start}/patch_embeddings/projection", "embedding"),
            *_norm(f"{name}/norm1", f"{ours}/attention_norm"),
            *attention,
            (f"{name}/layer_scale1/vars/0", f"{ours}/attention_scale"),
            *_norm(f"{name}/norm2", f"{ours}/mlp_norm"),
            *_dense(f"{name}/mlp/gate_proj", f"{ours}/mlp/gate"),
            *_dense(f"{name}/mlp/up_proj", f"{ours}/mlp/dense_0"),
            *_dense(f"{name}/mlp/down_proj", f"{ours}/mlp/dense_1"),
            (f"{name}/layer_scale2/vars/0", f"{ours}/mlp_scale"),
            *_norm("layers/layer_normalization", "encoder_norm"),
        )


def _image_size(settings: Config) -> Size | None:
    """Returns (height, width) of the images, or None."""
    shape = settings.get("image_shape")
    shape = shape[:2] if isinstance(shape, list) else shape
    if shape == [None, None]:
        return None
    return Config(image_shape=shape).image_size("image_shape")


def _pool(config: Config, prefix: int) -> str:
    """Returns how the task pools the tokens; "token" without one."""
    pooling = config.part("task").part("config").get("pooling", "token")
    if (pooling, prefix > 0) not in (("token", True), ("gap", False)):
        raise CheckpointError(
            f"task.json states pooling={pooling!r:.100}, for tokens with {prefix} "
            'before the patches. kerasvit builds "token" with a class token and "gap" '
            "without: of a class token and patches it builds no mean. For the backbone "
            "alone, copy config.json and model.weights.h5 into a folder of their own."
        )
    return "token" if prefix else "average"


def _head(shapes: Shapes) -> str:
    """Returns the name of the classifier, which may follow a layer with tanh."""
    second = f"{_DENSE}_1"
    return second if f"{second}/vars/0" in shapes else _DENSE


def _representation_size(shapes: Shapes) -> int | None:
    """Returns the size of the layer with tanh before the classifier, or None."""
    if _head(shapes) == _DENSE:
        return None
    return int(shapes.of(f"{_DENSE}/vars/0", 2)[1])


def _dense(name: str, path: str) -> tuple[tuple, ...]:
    """Returns the rules of a dense layer or convolution of Keras."""
    return (f"{name}/vars/0", f"{path}/kernel"), (f"{name}/vars/1", f"{path}/bias")


def _norm(name: str, path: str) -> tuple[tuple, ...]:
    """Returns the rules of a layer normalisation of Keras."""
    return (f"{name}/vars/0", f"{path}/gamma"), (f"{name}/vars/1", f"{path}/beta")


def _attention(name: str, path: str, heads: int) -> tuple[tuple, ...]:
    """Returns the rules of Keras's `MultiHeadAttention`."""
    inputs = [
        rule
        for part in ("query", "key", "value")
        for rule in (
            (
                f"{name}/{part}_dense/vars/0",
                f"{path}/{part}/kernel",
                split_heads(heads, 1),
            ),
            (
                f"{name}/{part}_dense/vars/1",
                f"{path}/{part}/bias",
                split_heads(heads, 0),
            ),
        )
    ]
    return (
        *inputs,
        (f"{name}/output_dense/vars/0", f"{path}/output/kernel", split_heads(heads, 0)),
        (f"{name}/output_dense/vars/1", f"{path}/output/bias"),
    )
