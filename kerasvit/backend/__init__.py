"""Code for each Keras backend: train steps, first and second derivatives.

Only this package imports TensorFlow, JAX, PyTorch, OpenVINO and private modules of
Keras.
"""

import keras

from .remat import rematerialized as rematerialized

if keras.backend.backend() == "jax":
    from .jax.derivatives import gradients_at as gradients_at
    from .jax.derivatives import input_gradient as input_gradient
    from .jax.derivatives import loss_derivatives as loss_derivatives
    from .jax.derivatives import value_at as value_at
    from .jax.train_step import TrainStep as TrainStep
elif keras.backend.backend() == "tensorflow":
    from .tensorflow.derivatives import gradients_at as gradients_at
    from .tensorflow.derivatives import input_gradient as input_gradient
    from .tensorflow.derivatives import loss_derivatives as loss_derivatives
    from .tensorflow.derivatives import value_at as value_at
    from .tensorflow.train_step import TrainStep as TrainStep
elif keras.backend.backend() == "torch":
    from .torch.derivatives import gradients_at as gradients_at
    from .torch.derivatives import input_gradient as input_gradient
    from .torch.derivatives import loss_derivatives as loss_derivatives
    from .torch.derivatives import value_at as value_at
    from .torch.train_step import TrainStep as TrainStep
elif keras.backend.backend() == "openvino":  # for inference alone
    from .openvino import TrainStep as TrainStep
    from .openvino import gradients_at as gradients_at
    from .openvino import input_gradient as input_gradient
    from .openvino import loss_derivatives as loss_derivatives
    from .openvino import value_at as value_at
else:
    raise ImportError(
        "kerasvit needs Keras with the backend TensorFlow, JAX, PyTorch or OpenVINO. "
        f"Received: {keras.backend.backend()!r}. Set KERAS_BACKEND to tensorflow, jax, "
        "torch or openvino before Keras is imported."
    )
