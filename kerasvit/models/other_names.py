"""Suggests the right argument for names that other libraries use."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

# {name in another library: name in kerasvit}.
RENAMED = {
    "classes": "num_classes",  # keras.applications
    "drop_path_rate": "stochastic_depth",  # timm
    "embed_dim": "width",
    "init_values": "layer_scale",
    "reg_tokens": "register_tokens",
    "checkpoint_path": "weights",
    "num_labels": "num_classes",  # transformers
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_dim",
}
# {name in another library: what to do instead}.
INSTEAD = {
    "input_tensor": "build the model, then call it: model(tensor)",
    "classifier_activation": (
        "models return logits; put keras.layers.Softmax() behind the model, or call "
        "kerasvit.classify(model, images)"
    ),
    "in_chans": "images have three channels; repeat a grey one three times",
    "id2label": 'label_names=["cat", "dog", ...]',
    "torch_dtype": 'dtype="bfloat16"',
}


def check_names(
    label: str, given: Mapping[str, Any], known: Collection[str], before: str = ""
) -> None:
    """Raises for unknown arguments and suggests the right ones.

    Args:
        label: Name of the model in the message.
        given: {name: value} of the arguments.
        known: Names of the supported arguments.
        before: First words of the message.

    Raises:
        ValueError: Some arguments are unknown.
    """
    unknown = sorted(set(given) - set(known))
    if not unknown:
        return
    hints = [f"`{name}`: {_hint(name, given[name], known)}." for name in unknown]
    raise ValueError(
        f"{before}{label} has no argument {', '.join(unknown)}. {' '.join(hints)} It "
        f"takes {', '.join(sorted(known))}."
    )


def _hint(name: str, value: Any, known: Collection[str]) -> str:
    """Returns a hint on what to write instead of an argument."""
    if name in INSTEAD:
        return INSTEAD[name]
    if RENAMED.get(name) in known:
        return f"write {RENAMED[name]}={value!r:.80}"
    if name in ("input_shape", "img_size", "pooling", "global_pool") and value is None:
        return "leave it out"
    if name in ("input_shape", "img_size"):
        return f"write image_size={_sides(value)!r:.80}"
    if name == "include_top":
        return "leave it out" if value else "write num_classes=0"
    if name == "pretrained":
        call = 'weights="sam"; kerasvit.list_weights() shows the names of weights'
        return f"write {call}" if value else "leave it out"
    if name in ("pooling", "global_pool"):
        return _pooling(value, known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.7)
    return (
        f"did you mean {' or '.join(near)}"
        if near
        else "no argument has a similar name"
    )


def _pooling(value: Any, known: Collection[str]) -> str:
    if "pool" not in known:
        return "the model pools in one way; num_classes=0 returns pooled features"
    value = value if isinstance(value, str) else ""  # a file may contain a list
    if value == "max":
        return 'there is no max pooling; pool="average" takes the mean'
    ours = {"token": "token", "map": "attention"}.get(value, "average")
    return f'write pool="{ours}"; num_classes=0 returns pooled features'


def _sides(shape: Any) -> Any:
    """Returns height and width of another library's image shape."""
    if isinstance(shape, (tuple, list)) and len(shape) == 3:
        shape = shape[1:] if shape[0] in (1, 3) else shape[:2]
    return tuple(shape) if isinstance(shape, list) else shape
