"""AdamW with a faster step on PyTorch and TensorFlow."""

from typing import Any

import keras

Base: Any = keras.optimizers.AdamW
if keras.backend.backend() == "torch":
    from kerasvit.backend.torch import optimizers as of_torch

    Base = of_torch.FusedAdamW
elif keras.backend.backend() == "tensorflow":
    from kerasvit.backend.tensorflow import optimizers as of_tensorflow

    Base = of_tensorflow.FusedAdamW


@keras.saving.register_keras_serializable("kerasvit")
class AdamW(Base):
    """`keras.optimizers.AdamW`, with a faster update on PyTorch and TensorFlow.

    On both it is the backend's own operation; on PyTorch for weights of 32 and 64 bits
    on CPUs and GPUs of NVIDIA and AMD, others have a few operations of PyTorch. On JAX
    it is Keras's step. Arguments and variables are those of Keras's class, and weights
    of one optimizer fit to the other. So are the results, but on PyTorch for weights in
    float16, of which squares of gradients are rounded less often.

        trainer.compile(kerasvit.AdamW(1e-5, weight_decay=0.05), loss)

    Reference: Loshchilov and Hutter 2019, arXiv 1711.05101; `torch.optim.AdamW`.
    """
