"""Small models to inspect, and settings of `inspection.py`."""

from reporting.settings import Config

import kerasvit
from tests.models.tiny import tiny

DIGITS = [str(i) for i in range(10)]


def save(name, builder="VisionTransformer", scale=1.0, **options):
    """Saves a tiny model of ten classes in a folder, and returns its name."""
    model = tiny(builder, num_classes=10, **options)
    model.set_weights([scale * weight for weight in model.get_weights()])
    kerasvit.save_pretrained(model, name, label_names=DIGITS)
    return name


def config(*models, **options):
    """Returns settings for 16 digits."""
    options = {"image_set": "digits", "images": 16, "batch_size": 16, **options}
    return Config(models, **options)
