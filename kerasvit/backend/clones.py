"""`ClonableModel`: a functional model whose clones can find it."""

from typing import Any

import keras

from .keras_private import KeepsValues

Base: Any = KeepsValues
if keras.backend.backend() == "torch":
    from .torch.compile import CompiledModel

    Base = CompiledModel

_ORIGINAL = "_kerasvit_original"  # attribute of an output tensor of a clone


class ClonableModel(Base, keras.Model):
    """A functional model whose clones can find it."""

    def _run_through_graph(self, *args: Any, **kwargs: Any) -> Any:
        # keras.models.clone_model calls this method and builds a model of the result.
        outputs = super()._run_through_graph(*args, **kwargs)
        for output in keras.tree.flatten(outputs):
            if isinstance(output, keras.KerasTensor):
                setattr(output, _ORIGINAL, self)
        return outputs

    def pop_original(self) -> Any:
        """Returns the model that this one was cloned from, or None; then forgets it."""
        found = [vars(output).pop(_ORIGINAL, None) for output in self.outputs]
        return found[0]
