"""SAM, distillation and learning rate schedules for any `keras.Model`."""

from .adamw import AdamW as AdamW
from .asam import ASAM as ASAM
from .distillation import DistillationTrainer as DistillationTrainer
from .gsam import GSAM as GSAM
from .layer_decay import layer_decay as layer_decay
from .looksam import LookSAM as LookSAM
from .msam import MSAM as MSAM
from .resume import Resume as Resume
from .sam import SAM as SAM
from .sam_on import SAMON as SAMON
from .schedules import warmup_cosine as warmup_cosine
