"""`FeatureModel`, the class that `features` returns."""

import json
from typing import Any

import keras

from .adapters import adapted_layers, attach
from .layers.rescaling import with_channels_last
from .preprocessing import Preprocessing
from .quantization import QuantizableModel, restore, settings_of

FACTS = ("names", "strides", "channels", "preprocessing", "adapters")


@keras.saving.register_keras_serializable("kerasvit")
class FeatureModel(QuantizableModel):
    """A functional model from images to features of blocks; see `features`.

    Clones and `.keras` files, also of models that contain it, keep the attributes and
    quantised layers. The first three attributes have one entry for each block.

    Attributes:
        names: Names of the blocks, a tuple.
        strides: Pixels between neighbouring cells of a map, a tuple of ints.
        channels: Channels of the features, a tuple of ints.
        preprocessing: The `Preprocessing` that the images need.
        adapters: Settings of those adapters of `add_lora` that the blocks have, or
            None.
    """

    names: tuple[str, ...] = ()
    strides: tuple[int, ...] = ()
    channels: tuple[int, ...] = ()
    preprocessing: Preprocessing | None = None
    adapters: dict[str, Any] | None = None

    # Keras recognises functional subclasses by this signature.
    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ) -> None:
        facts = {key: kwargs.pop(key) for key in FACTS if key in kwargs}
        super().__init__(inputs, outputs, name=name, **kwargs)
        original = self.pop_original()
        if original is not None:
            self._revive(original.facts(), settings_of(original))
        self._set(facts)

    def facts(self) -> dict[str, Any]:
        """Returns the attributes as plain JSON."""
        facts = {key: getattr(self, key) for key in FACTS}
        facts["preprocessing"] = self.preprocessing and self.preprocessing.to_config()
        if not adapted_layers(self):  # `merge_lora` of the whole model
            facts["adapters"] = None
        return json.loads(json.dumps(facts))

    def get_config(self) -> dict[str, Any]:
        """Returns the graph's configuration, the attributes and quantised layers."""
        config = {**super().get_config(), **self.facts()}
        return {**config, "quantization": settings_of(self)}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "FeatureModel":
        """Builds the model with its attributes, adapters and quantised layers."""
        graph = dict(config)
        settings = graph.pop("quantization", [])
        facts = {key: graph.pop(key) for key in FACTS if key in graph}
        graph = with_channels_last(graph)
        model = super().from_config(graph, custom_objects=custom_objects)
        model._revive(facts, settings)
        return model

    def _revive(self, facts: dict[str, Any], settings: list[dict[str, Any]]) -> None:
        """Sets what `facts` and `settings_of` returned, in a model with new layers."""
        self._set(facts)
        restore(self, settings)
        if self.adapters:
            attach(self, self.adapters)

    def _set(self, facts: dict[str, Any]) -> None:
        for key, value in facts.items():
            if key == "preprocessing" and value is not None:
                value = Preprocessing.from_config(value)
            setattr(self, key, tuple(value) if isinstance(value, list) else value)
