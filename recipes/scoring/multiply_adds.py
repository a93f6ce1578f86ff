"""Counts the multiply-adds of a model.

    multiply_adds.of(kerasvit.ViTTi16())    # 1_253_683_200

Those of matrix products, with both of attention, and of convolutions are counted, for
one image; as in papers and timm, not those of biases, normalisation and activations.
JAX and TensorFlow trace the model with shapes only, PyTorch computes one image.
"""

import math
import re

import keras

# Operations that may hide products, and whose products are not known from their shapes.
OPAQUE = {
    "jax": r"scan|while|cond|.*(custom_call|ffi_call|pallas|attention|ragged).*",
    "tensorflow": r".*(Conv|MatMul|Einsum|Dot|Call|While|Attention).*|.*(If|Case)",
}


class Unknown(Exception):
    """The model has an operation whose products are not counted."""


def of(model: keras.Model, size: tuple[int, int] = (224, 224)) -> int | None:
    """Returns the multiply-adds for one image; None if an operation is not known.

    Args:
        model: Takes images (batch, height, width, channels).
        size: (height, width) of the image for a model that takes any.
    """
    count = {"jax": _of_jax, "tensorflow": _of_tensorflow, "torch": _of_torch}
    try:
        sides, channels = model.input_shape[1:3], model.input_shape[-1]
        sides = size if None in sides else sides
        return count[keras.backend.backend()](model, (1, *sides, channels))
    except Unknown:
        return None


def _of_jax(model, shape):
    import jax

    state = [
        [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    ]

    def forward(state, images):
        return model.stateless_call(*state, images, training=False)[0]

    image = jax.ShapeDtypeStruct(shape, "float32")
    return _of_jaxpr(jax.make_jaxpr(forward)(state, image).jaxpr)


def _of_jaxpr(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        shapes = [v.aval.shape for v in equation.invars]
        made = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            total += made * math.prod(shapes[0][axis] for axis in contracted)
        elif name == "conv_general_dilated":
            out = equation.params["dimension_numbers"].rhs_spec[0]
            total += made * math.prod(shapes[1]) // shapes[1][out]
        elif equation.params.get("name") == "grouped_convolution":
            # On CPUs it multiplies with zeros, too, of which groups consist elsewhere.
            total += made * math.prod(shapes[1][:-1])
            continue
        elif re.fullmatch(OPAQUE["jax"], name):
            raise Unknown(name)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += _of_jaxpr(inner)
    return total


def _of_tensorflow(model, shape):
    import tensorflow as tf

    function = tf.function(lambda images: model(images, training=False))
    traced = function.get_concrete_function(tf.TensorSpec(shape, "float32"))
    return sum(map(_of_operation, traced.graph.get_operations()))


def _of_operation(operation):
    """Returns the multiply-adds of an operation of TensorFlow."""
    kind, shapes = operation.type, [each.shape for each in operation.inputs]
    made = operation.outputs[0].shape.num_elements() if operation.outputs else 0
    if kind == "MatMul":
        return made * shapes[0][0 if operation.get_attr("transpose_a") else 1]
    if kind in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        return made * shapes[0][-2 if operation.get_attr("adj_x") else -1]
    if kind == "Einsum":
        return _of_einsum(operation.get_attr("equation").decode(), shapes)
    if kind == "Conv2D":  # the kernel is (height, width, input, output)
        return made * math.prod(shapes[1][:3])
    if kind == "DepthwiseConv2dNative":
        return made * math.prod(shapes[1][:2])
    if re.fullmatch(OPAQUE["tensorflow"], kind):
        raise Unknown(kind)
    return 0


def _of_einsum(equation, shapes):
    """Returns the product of the sizes of all indices of a sum of products."""
    inputs = equation.split("->")[0].split(",")
    if "." in equation or len(inputs) != 2:
        raise Unknown(equation)
    sizes = {}
    for names, shape in zip(inputs, shapes, strict=True):
        sizes |= zip(names, shape, strict=True)
    return math.prod(sizes.values())


def _of_torch(model, shape):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # The counter does not know the fused attention of all devices.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            model(keras.ops.zeros(shape), training=False)
    return counter.get_total_flops() // 2  # a multiplication and an addition are two
