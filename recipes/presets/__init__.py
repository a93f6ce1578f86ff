"""The papers' trainings as data: settings, sources and published results.

`pretrain_settings.py` and `finetune_settings.py` make configurations of them, and
`page.py` writes PRESETS.md.
"""

from . import alternet, big_vision, sam, vit

PRETRAIN = {**sam.PRESETS, **big_vision.PRESETS, **alternet.PRESETS}
FINETUNE = vit.PRESETS
