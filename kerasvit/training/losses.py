"""Losses of logits for several labels per image, and for rare classes."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, number, one_of
from kerasvit.types import Tensor


@keras.saving.register_keras_serializable("kerasvit")
class AsymmetricLoss(keras.losses.Loss):
    """Binary cross-entropy that hardly counts labels that are easily told to be absent.

    With several labels per image, most are absent. Of a logit with the sigmoid p:

        label 1:  −(1 − p)^gamma_positive · log p
        label 0:  −q^gamma_negative · log(1 − q),   q = max(0, p − shift)

    The loss of an image is the mean over the classes, as of Keras's
    `BinaryCrossentropy`; the authors' code has the sum.

        model.compile("adam", kerasvit.AsymmetricLoss(), metrics=["binary_accuracy"])

    Shape: labels of 0 and 1, and logits, both (batch, classes).

    Args:
        gamma_negative: ≥ 0; larger values count absent labels less.
        gamma_positive: ≥ 0. The paper has 0, the authors' code 1.
        shift: In [0, 1): with a smaller p an absent label has no loss.
        options: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Raises:
        ValueError: A number is out of its range.

    Reference: Ridnik et al. 2021, arXiv 2009.14119, equations 4 to 7;
    Alibaba-MIIL/ASL, src/loss_functions/losses.py.
    """

    def __init__(
        self,
        gamma_negative: float = 4.0,
        gamma_positive: float = 1.0,
        shift: float = 0.05,
        *,
        name: str = "asymmetric_loss",
        **options: Any,
    ) -> None:
        super().__init__(name=name, **options)
        self.gamma_negative = number("gamma_negative", gamma_negative, 0)
        self.gamma_positive = number("gamma_positive", gamma_positive, 0)
        self.shift = number("shift", shift, 0, 1)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each image, (batch,)."""
        present, absent = ops.sigmoid(y_pred), ops.sigmoid(-y_pred)
        seen = ops.maximum(present - self.shift, 0.0)
        positive = -ops.softplus(-y_pred) * _power(absent, self.gamma_positive)
        # 1 - seen, without rounding where the logit is large.
        rest = ops.log(ops.minimum(absent + self.shift, 1.0)) if self.shift else None
        negative = -ops.softplus(y_pred) if rest is None else rest
        negative = negative * _power(seen, self.gamma_negative)
        return -ops.mean(y_true * positive + (1 - y_true) * negative, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "gamma_negative": self.gamma_negative,
            "gamma_positive": self.gamma_positive,
            "shift": self.shift,
        }


@keras.saving.register_keras_serializable("kerasvit")
class LogitAdjustedCrossentropy(keras.losses.Loss):
    """Cross-entropy of the softmax of logits + tau · log(share of the class).

    Trained with it, a model's logits are those of equally frequent classes: predictions
    have the best balanced accuracy, and nothing is added when the model is used.

    Shape: class indices (batch,) or probabilities of the classes (batch, classes); and
    logits (batch, classes).

    Args:
        counts: Number of training images of each class, > 0, such as
            `numpy.bincount(labels)`; or their shares.
        tau: Weight of the adjustment, ≥ 0; 1 is consistent, 0 is cross-entropy.
        options: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Raises:
        ValueError: A count is not positive; a number is out of its range.

    Reference: Menon et al. 2021, arXiv 2007.07314, equation 10.
    """

    def __init__(
        self,
        counts: Any,
        tau: float = 1.0,
        *,
        name: str = "logit_adjusted_crossentropy",
        **options: Any,
    ) -> None:
        super().__init__(name=name, **options)
        self.counts = [float(count) for count in _counts(counts)]
        self.tau = number("tau", tau, 0)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each image, (batch,)."""
        if y_pred.shape[-1] != len(self.counts):
            raise ArgumentError(
                f"`counts` must have one entry for each of the {y_pred.shape[-1]} "
                f"logits. Received: {len(self.counts)}.",
                "counts",
            )
        shares = np.array(self.counts) / np.sum(self.counts)
        offset = ops.convert_to_tensor(self.tau * np.log(shares), y_pred.dtype)
        adjusted = y_pred + offset
        if len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] != 1:
            return ops.categorical_crossentropy(y_true, adjusted, from_logits=True)
        classes = ops.cast(ops.reshape(y_true, (-1,)), "int32")
        return ops.sparse_categorical_crossentropy(classes, adjusted, from_logits=True)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "counts": self.counts, "tau": self.tau}


def class_weights(
    counts: Any, method: str = "balanced", *, beta: float = 0.9999
) -> dict[int, float]:
    """Returns the `class_weight` of `fit`: rare classes count more.

        counts = numpy.bincount(labels)
        model.fit(x, labels, class_weight=kerasvit.class_weights(counts))

    Args:
        counts: Number n of training images of each class, ≥ 1.
        method: "balanced": images / (classes · n), as scikit-learn's, so that all
            classes have the same sum; or "effective": (1 - beta) / (1 - beta^n),
            between equal weights and "balanced".
        beta: In [0, 1), of "effective": n up to about 1 / (1 - beta) counts.

    Returns:
        {class: weight}. The mean over the images is 1.

    Raises:
        ValueError: A class has no images; another argument is wrong.

    Reference: Cui et al. 2019, arXiv 1901.05555, equation 2.
    """
    one_of("method", method, ("balanced", "effective"))
    beta = number("beta", beta, 0, 1)
    each = _counts(counts)
    weights = 1 / each
    if method == "effective":
        weights = (1 - beta) / -np.expm1(each * np.log(beta)) if beta else each**0.0
    weights *= each.sum() / (weights * each).sum()
    return {i: float(weight) for i, weight in enumerate(weights)}


def _counts(counts: Any) -> np.ndarray:
    listed = isinstance(counts, (list, tuple)) or hasattr(counts, "__array__")
    found = np.asarray(counts, "float64") if listed else np.zeros(0)
    right = (found > 0) & np.isfinite(found)
    if found.ndim != 1 or not len(found) or not right.all():
        raise ArgumentError(
            "`counts` must be the number of training images of each class, each > 0. "
            f"Received: {counts!r:.200}. Leave out classes without images.",
            "counts",
        )
    return found


def _power(base: Tensor, exponent: float) -> Tensor:
    # The gradient at 0 would be infinite, and its product with 0 NaN.
    return ops.maximum(base, 1e-12) ** exponent
