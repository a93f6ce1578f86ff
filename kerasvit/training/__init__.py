"""Trainers: SAM, distillation, masked patches; and learning rate schedules."""

from .asam import ASAM as ASAM
from .distillation import DistillationTrainer as DistillationTrainer
from .friendly import FriendlySAM as FriendlySAM
from .gsam import GSAM as GSAM
from .looksam import LookSAM as LookSAM
from .losses import AsymmetricLoss as AsymmetricLoss
from .losses import LogitAdjustedCrossentropy as LogitAdjustedCrossentropy
from .losses import class_weights as class_weights
from .masked_patches import MaskedPatches as MaskedPatches
from .msam import MSAM as MSAM
from .optimizers import AdamW as AdamW
from .optimizers import layer_decay as layer_decay
from .optimizers import warmup_cosine as warmup_cosine
from .resume import Resume as Resume
from .sam import SAM as SAM
from .sam_on import SAMON as SAMON
