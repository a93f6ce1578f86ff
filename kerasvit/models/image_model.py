"""What a builder returns."""

import keras

from kerasvit.preprocessing import Preprocessing


@keras.saving.register_keras_serializable("kerasvit")
class ImageModel(keras.Model):
    """A functional model that remembers how it was made.

    Attributes:
        record: Plain JSON, kept by `.keras` files and model folders: `builder` and
            `kwargs`, which make the same architecture again; `variant`, the row it came
            from, or None; `origin`, the code base of its weights, or None;
            `preprocessing`, the evaluation transform they expect; `label_names`, a
            list, "imagenet1k" or None. `keras.models.clone_model` drops it.
    """

    # Keras takes a subclass for a functional model only with this signature.
    def __init__(self, inputs, outputs, name=None, **kwargs):
        record = kwargs.pop("record", None)
        super().__init__(inputs, outputs, name=name, **kwargs)
        self.record = record

    def get_config(self):
        """The graph's configuration and the record."""
        record = self.record and dict(self.record)
        return {**super().get_config(), "record": record}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The model again, its record included."""
        config = dict(config)
        record = config.pop("record", None)
        model = super().from_config(config, custom_objects=custom_objects)
        model.record = record
        return model


def new_record(builder: str, kwargs: dict) -> dict:
    """The record of a model with fresh weights."""
    return {
        "builder": builder,
        "variant": None,
        "kwargs": kwargs,
        "origin": None,
        "preprocessing": Preprocessing(kwargs["image_size"]).to_config(),
        "label_names": None,
    }
