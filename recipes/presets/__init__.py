"""The papers' trainings as data: settings, sources and published results.

`pretrain_settings.py` and `finetune_settings.py` make configurations of them, and
`page.py` writes PRESETS.md.
"""

from . import alternet, augreg, big_vision, deit, gsam, sam, swin, vit

PRETRAIN = {
    **sam.PRESETS,
    **gsam.PRESETS,
    **big_vision.PRESETS,
    **augreg.PRESETS,
    **deit.PRESETS,
    **swin.PRESETS,
    **alternet.PRESETS,
}
FINETUNE = {**vit.PRESETS, **deit.FINETUNE}
