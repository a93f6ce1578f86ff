"""Tensors of files in the Hugging Face Hub: of timm and of transformers."""

import json
import re
import tempfile
from pathlib import Path

from recipes.benchmarks.import_timm import _define_operators

from .originals import File

DTYPES = {"torch.float32": "F32", "torch.int64": "I64"}


def timm_files(source):
    """Returns ([`File`], config.json) of a repository, "USER/ARCHITECTURE.TAG"."""
    _define_operators()
    import timm
    import torch
    from timm.models._hub import save_config_for_hf

    name = source.rpartition("/")[2]
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False)
    tensors = _tensors(model.state_dict())
    call = f'timm.create_model("{name}", pretrained=False)'
    origin = [f"timm {timm.__version__}: {call}.state_dict(), on torch's device meta"]
    table = tensors.get("pos_embed")
    rows = table[0][1] if table and len(table[0]) == 3 else None  # PiT's is a map
    layout = "timm-" + name.split(".")[0]
    files = [File(layout, origin, tensors, model.num_classes, rows)]
    if name.startswith("swin"):
        # The page of swin_base_patch4_window7_224.ms_in22k_ft_in1k in the Hub lists
        # 353 MB: 4 bytes for each parameter, and 1.6 MB that these buffers account for.
        note = "with the buffers that older versions of timm stored, too"
        both = {**tensors, **_swin_buffers(model)}
        old = File(f"{layout}-buffers", [*origin, note], both, model.num_classes, rows)
        files.insert(0, old)
    with tempfile.TemporaryDirectory() as folder:
        save_config_for_hf(model, str(path := Path(folder) / "config.json"))
        config = json.loads(path.read_text())
    # The repositories are older than timm's writing of `model_args`.
    config.pop("model_args", None)
    return files, config


def _swin_buffers(model):
    """Returns the buffers of timm's Swins that are not in `state_dict()`."""
    return {
        name: (tuple(buffer.shape), DTYPES[str(buffer.dtype)])
        for name, buffer in model.named_buffers()
        if buffer is not None
    }


def transformers_file(source):
    """Returns ([`File`], config.json) of a repository "google/vit-SIZE-patchP-N"."""
    _define_operators()
    import torch
    import transformers
    from transformers.core_model_loading import revert_weight_conversion

    size, patch, pixels = re.fullmatch(
        r"google/vit-(base|large)-patch(\d+)-(\d+)", source
    ).groups()
    numbers = {
        "base": {},
        "large": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
        },
    }[size]
    numbers = {**numbers, "image_size": int(pixels), "patch_size": int(patch)}
    config = transformers.ViTConfig(num_labels=1000, **numbers)
    with torch.device("meta"):
        model = transformers.ViTForImageClassification(config)
    # The names in the file, which differ from those of the modules since version 5.
    state = revert_weight_conversion(model, model.state_dict())
    tensors = _tensors(state)
    origin = [
        f"transformers {transformers.__version__}: ViTForImageClassification of",
        f"ViTConfig(num_labels=1000, {json.dumps(numbers)}), names of save_pretrained",
    ]
    rows = tensors["vit.embeddings.position_embeddings"][0][1]
    layout = f"transformers-vit-{size}-patch{patch}"
    keys = (
        *("attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob"),
        *("hidden_size", "image_size", "initializer_range", "intermediate_size"),
        *("layer_norm_eps", "model_type", "num_attention_heads", "num_channels"),
        *("num_hidden_layers", "patch_size"),
    )
    stated = config.to_dict()
    content = {"architectures": ["ViTForImageClassification"]}
    content |= {key: stated[key] for key in keys}
    return [File(layout, origin, tensors, 1000, rows)], content


def _tensors(state):
    return {
        name: (tuple(tensor.shape), DTYPES[str(tensor.dtype)])
        for name, tensor in state.items()
    }
