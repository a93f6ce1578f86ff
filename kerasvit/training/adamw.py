"""AdamW with a faster step on PyTorch."""

from typing import Any

import keras

Base: Any = keras.optimizers.AdamW
if keras.backend.backend() == "torch":
    from kerasvit.backend.adamw_torch import FusedAdamW

    Base = FusedAdamW


@keras.saving.register_keras_serializable("kerasvit")
class AdamW(Base):
    """`keras.optimizers.AdamW`, with PyTorch's fused update on a CPU.

    Arguments, variables and results are those of Keras's class, and weights of one
    optimizer fit to the other. On JAX, TensorFlow and GPUs the step is Keras's, too.

        trainer.compile(kerasvit.AdamW(1e-4, weight_decay=0.05), loss="…")

    Reference: Loshchilov and Hutter 2019, arXiv 1711.05101; `torch.optim.AdamW`.
    """
