"""Tensors of Google's `.npz` files, from the code of three repositories."""

import dataclasses
import sys
from pathlib import Path
from urllib.parse import unquote

COMMITS = {
    "vision_transformer": "c6de1e5378c9",
    "big_vision": "0127fb6b337e",
    "big_transfer": "140de6e704fd",
}
# Names of a block in the files, beside those of the code: the files are of a version
# of Flax that numbered all parts of a block with one counter. `convert_pre_linen` of
# flax.training.checkpoints, which vit_jax/checkpoint.py calls, describes it.
RELEASED = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
MIXER_S = {"hidden_dim": 512, "num_blocks": 8}  # big_vision/models/mlp_mixer.py
MIXER_S |= {"tokens_mlp_dim": 256, "channels_mlp_dim": 2048}


@dataclasses.dataclass
class File:
    """The tensors of a published file.

    Attributes:
        name: Name of its list.
        origin: Lines of text.
        tensors: {name: (shape, dtype)}.
        classes: Number of classes; 0 without a head.
        rows: Rows of the position table, or None.
    """

    name: str
    origin: list
    tensors: dict
    classes: int
    rows: int | None = None


def add_to_path(folder):
    """Makes the code importable."""
    sys.path += [str(Path(folder).resolve() / name) for name in COMMITS]


def files(address):
    """Returns the [`File`] of an address; the first is the likely one."""
    folder, file = unquote(address).split("/")[-2:]
    name = file.removesuffix(".npz")
    if folder == "big_vision":
        return _big_vision(name)
    if name.startswith("Mixer"):
        return [_mixer(name)]
    if "ViT" in name:
        return _vit(folder, name)
    return _bit(folder, name)


def _shapes(model, size):
    """Returns {name: (shape, dtype)} of the parameters of a Flax module."""
    import jax
    from flax.traverse_util import flatten_dict

    image = jax.ShapeDtypeStruct((1, size, size, 3), "float32")
    key = jax.ShapeDtypeStruct((2,), "uint32")
    variables = jax.eval_shape(
        lambda key, image: model.init(key, image, train=False), key, image
    )
    return {
        "/".join(path): (tuple(array.shape), "F32")
        for path, array in flatten_dict(variables["params"]).items()
    }


def _vit(folder, name):
    from vit_jax import models_vit
    from vit_jax.configs.models import MODEL_CONFIGS

    config = "gap" if folder == "gsam" else "token"
    # Issue 223 of the repository: GSAM's files have neither a class token nor
    # pre-logits. Of the others, the sizes in vit_jax.ipynb tell which have
    # pre-logits: those of ImageNet-21k.
    pretrained = folder == "imagenet21k"
    classes, size = 21843 if pretrained else 1000, 384 if "+" in folder else 224
    arguments = dict(MODEL_CONFIGS[name])
    arguments["classifier"] = config
    arguments["representation_size"] = arguments["hidden_size"] if pretrained else None
    model = models_vit.VisionTransformer(num_classes=classes, **arguments)
    code = _shapes(model, size)
    rows = code["Transformer/posembed_input/pos_embedding"][0][1]
    origin = [
        _commit("vision_transformer") + ", vit_jax/models_vit.py, VisionTransformer of",
        f"MODEL_CONFIGS[{name!r}], classifier={config!r},",
        f"representation_size={arguments['representation_size']}; by jax.eval_shape",
    ]
    layout = f"vit_jax-{name}"
    layout += "-pre_logits" * pretrained + "-gap" * (config == "gap")
    released = {_released(key): value for key, value in code.items()}
    note = ["with the numbers in the names of released files, see originals.py"]
    if "conv_root/kernel" in code:
        # `_fix_groupnorm` of vit_jax/checkpoint.py: on disk they have four axes.
        note += ["and (1, 1, 1, C) as shape of group normalisations"]
        released = {
            key: (((1, 1, 1, *shape) if "/gn" in f"/{key}" else shape), dtype)
            for key, (shape, dtype) in released.items()
        }
    made = [
        File(layout, origin + note, released, classes, rows),
        File(f"{layout}-code", origin, code, classes, rows),
    ]
    if (folder, name) == ("sam", "ViT-S_16"):
        # vit_jax.ipynb lists 252.57 MiB, the size of three sets of parameters: a
        # training state with Adam's two moments, named as by flax.optim.
        state = {f"opt/target/{key}": value for key, value in released.items()}
        for moment in ("grad_ema", "grad_sq_ema"):
            for key, value in released.items():
                state[f"opt/state/param_states/{key}/{moment}"] = value
        state["opt/state/step"] = (), "I32"
        note += ["and Adam's moments: the file has the size of three sets"]
        made.insert(0, File(f"{layout}-state", origin + note, state, classes, rows))
    return made


def _released(name):
    for code, file in RELEASED.items():
        name = (
            name.replace(f"/{code}/", f"/{file}/") if "encoderblock" in name else name
        )
    return name


def _mixer(name):
    from vit_jax import models_mixer
    from vit_jax.configs.models import MODEL_CONFIGS

    arguments = dict(MODEL_CONFIGS.get(name, MIXER_S))
    patch = int(name.split("_")[1])
    arguments["patches"] = type("Patches", (), {"size": (patch, patch)})
    model = models_mixer.MlpMixer(num_classes=1000, **arguments)
    numbers = "big_vision/models/mlp_mixer.py" if "-S_" in name else "MODEL_CONFIGS"
    origin = [
        _commit("vision_transformer") + ", vit_jax/models_mixer.py, MlpMixer with the",
        f"numbers of {name} in {numbers}; by jax.eval_shape",
    ]
    return File(f"vit_jax-{name}", origin, _shapes(model, 224), 1000)


def _big_vision(name):
    from big_vision.models import vit

    arguments = {"variant": "S/16", "rep_size": True, "pool_type": "gap"}
    arguments["posemb"] = "sincos2d"
    code = _shapes(vit.Model(num_classes=1000, **arguments), 224)
    origin = [
        _commit("big_vision") + ", big_vision/models/vit.py, Model with the arguments",
        f"of big_vision/configs/vit_s16_i1k.py, {arguments}; by jax.eval_shape",
    ]
    parameters = {f"params/{key}": value for key, value in code.items()}
    # big_vision/train.py saves {"params", "opt", "chrono"}.
    state = {f"opt/0/{m}/{key}": v for m in ("mu", "nu") for key, v in code.items()}
    state = {**parameters, **state, "opt/0/count": ((), "I32")}
    state |= {
        "chrono/accum_train_time": ((), "F64"),
        "chrono/accum_pause_time": ((), "F64"),
    }
    layout = "big_vision-vit_s16_i1k"
    note = "as saved while training, with optimizer and clock; see train.py"
    return [
        File(layout, origin, parameters, 1000),
        File(f"{layout}-state", [*origin, note], state, 1000),
    ]


def _bit(folder, name):
    """Names and shapes as `ResNetV2.load_from` of bit_pytorch/models.py asks for them.

    The files of the folder "distill" are loaded in the same way, by big_vision's
    bit_paper.py and by timm.
    """
    import torch
    from bit_pytorch import models

    known = name if name in models.KNOWN_MODELS else "BiT-S-R50x1"
    tensors = {}

    def record(parameter, name):
        # In the file a kernel is (height, width, in, out), in torch (out, in, h, w).
        shape = tuple(parameter.shape)
        if len(shape) == 4:
            shape = (*shape[2:], shape[1], shape[0])
        tensors[name] = shape, "F32"

    with torch.device("meta"):
        model = models.KNOWN_MODELS[known](head_size=1000)
    models.tf2th = lambda name: name
    own, torch.nn.Parameter.copy_ = torch.nn.Parameter.copy_, record
    try:
        model.load_from(type("Names", (), {"__getitem__": lambda self, name: name})())
    finally:
        torch.nn.Parameter.copy_ = own
    origin = [
        _commit("big_transfer") + ", bit_pytorch/models.py: what load_from of",
        f"KNOWN_MODELS[{known!r}](head_size=1000) reads, on torch's device meta",
    ]
    layout = "big_transfer-" + known.removeprefix("BiT-S-")
    # big_vision/models/bit_paper.py: some files number these layers.
    count, numbered = iter(range(1, 1000)), {}
    for key, value in tensors.items():
        number = f"/standardized_conv2d_{next(count)}/"
        numbered[key.replace("/standardized_conv2d/", number)] = value
    root = "resnet/root_block/standardized_conv2d/kernel"
    numbered = {**numbered, root: tensors[root]}
    numbered.pop(
        next(key for key in numbered if "root_block/standardized_conv2d_" in key)
    )
    note = "with numbered convolutions, as big_vision/models/bit_paper.py describes"
    made = [File(layout, origin, tensors, 1000)]
    if known.endswith("R50x1"):
        made.append(File(f"{layout}-numbered", [*origin, note], numbered, 1000))
    return made


def _commit(repository):
    return f"google-research/{repository} {COMMITS[repository]}"
