"""Code for each Keras backend: train steps, first and second derivatives.

Only this package imports TensorFlow, JAX, PyTorch and private modules of Keras.
"""

import keras

from .rematerialized import rematerialized as rematerialized

if keras.backend.backend() == "jax":
    from .at_weights_jax import gradients_at as gradients_at
    from .at_weights_jax import value_at as value_at
    from .hessian_jax import loss_derivatives as loss_derivatives
    from .jax.train_step import TrainStep as TrainStep
elif keras.backend.backend() == "tensorflow":
    from .at_weights_tensorflow import gradients_at as gradients_at
    from .at_weights_tensorflow import value_at as value_at
    from .hessian_tensorflow import loss_derivatives as loss_derivatives
    from .tensorflow.train_step import TrainStep as TrainStep
elif keras.backend.backend() == "torch":
    from .at_weights_torch import gradients_at as gradients_at
    from .at_weights_torch import value_at as value_at
    from .hessian_torch import loss_derivatives as loss_derivatives
    from .torch.train_step import TrainStep as TrainStep
else:
    raise ImportError(
        "kerasvit needs Keras with the backend TensorFlow, JAX or PyTorch. Received: "
        f"{keras.backend.backend()!r}. Set KERAS_BACKEND to tensorflow, jax or torch "
        "before Keras is imported."
    )
