"""AdamW with a faster step on PyTorch."""

from typing import Any

import keras

Base: Any = keras.optimizers.AdamW
if keras.backend.backend() == "torch":
    from kerasvit.backend.adamw_torch import FusedAdamW

    Base = FusedAdamW


@keras.saving.register_keras_serializable("kerasvit")
class AdamW(Base):
    """`keras.optimizers.AdamW`, with a faster update on PyTorch.

    On CPUs it is PyTorch's fused one; on GPUs it waits for no copies of numbers.
    Arguments and variables are those of Keras's class, and weights of one optimizer fit
    to the other. So are the results, but for weights in float16, of which squares of
    gradients are rounded less often. On JAX and TensorFlow it is Keras's step.

        trainer.compile(kerasvit.AdamW(1e-4, weight_decay=0.05), loss="…")

    Reference: Loshchilov and Hutter 2019, arXiv 1711.05101; `torch.optim.AdamW`.
    """
