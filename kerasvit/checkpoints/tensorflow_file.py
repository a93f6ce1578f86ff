"""The names and layouts of PyTorch for transformers' former models of TensorFlow.

Up to version 4, transformers wrote `tf_model.h5` with Keras 2: names such as
"vit/tf_vi_t_model/vit/encoder/layer_._0/output/dense/kernel:0" consist of the layer of
the model, the model, and the parts of PyTorch's names. Reference: transformers 4.52
modeling_tf_pytorch_utils.py, `convert_tf_weight_name_to_pt_weight_name`.
"""

import numpy as np

from .open_file import Content

_ENDS = {"kernel": "weight", "gamma": "weight", "embeddings": "weight", "beta": "bias"}
_VARIABLE = ":0"  # the end of the names of TensorFlow's variables
# PyTorch's axes of dense kernels (in, out) and those of convolutions (h, w, in, out).
_AXES = {2: (1, 0), 4: (3, 2, 0, 1)}


def of_tensorflow(content: Content) -> Content:
    """Returns the content of an HDF5 file, of TensorFlow's variables as PyTorch's.

    Raises:
        ValueError: Two variables have the same name.
    """
    if not any(name.endswith(_VARIABLE) for name in content.shapes):
        return content
    names = {_pytorch_name(name): name for name in content.shapes}
    if len(names) < len(content.shapes):
        raise ValueError("two of its variables have the same name")

    def get(name: str) -> np.ndarray:
        array = content.get(names[name])
        return array.transpose(_axes(names[name], array.ndim))

    shapes = {
        name: tuple(content.shapes[theirs][axis] for axis in axes)
        for name, theirs in names.items()
        for axes in [_axes(theirs, len(content.shapes[theirs]))]
    }
    return Content(get, shapes)


def _pytorch_name(name: str) -> str:
    parts = name.removesuffix(_VARIABLE).replace("_._", "/").split("/")[2:]
    *modules, last = parts or [name]
    return ".".join([*modules, _ENDS.get(last, last)])


def _axes(name: str, rank: int) -> tuple[int, ...]:
    """Returns the axes of an array in the order of PyTorch."""
    kernel = name.endswith("/kernel" + _VARIABLE)
    return _AXES.get(rank, tuple(range(rank))) if kernel else tuple(range(rank))
