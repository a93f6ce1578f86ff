"""Vision Transformers and related models for Keras 3, with sharpness-aware training.

    model = kerasvit.ViTB16("vit_base.safetensors", num_classes=37, image_size=384)
    kerasvit.fit_head(model, (images, labels))
    model.compile(keras.optimizers.Adam(1e-5), ...)
    model.fit(images, labels, epochs=4)

This module exports the complete public API.
"""

# ruff: noqa: E402, F403
import typing as _typing

from . import installed as installed

if installed.is_reporting():
    installed.write_versions()  # first, as the imports below may fail
installed.check_keras()  # before its import
installed.check_backend()

from . import evaluation as evaluation
from . import inspection as inspection
from .arguments import ArgumentError as ArgumentError
from .calibration import Calibration as Calibration
from .calibration import calibrate as calibrate
from .checkpoints import CheckpointError as CheckpointError
from .features import FeatureModel as FeatureModel
from .features import features as features
from .fine_tuning import HeadAccuracy as HeadAccuracy
from .fine_tuning import Interpolation as Interpolation
from .fine_tuning import TrainingSuggestion as TrainingSuggestion
from .fine_tuning import average_weights as average_weights
from .fine_tuning import fit_head as fit_head
from .fine_tuning import interpolate_weights as interpolate_weights
from .fine_tuning import suggest_training as suggest_training
from .hub.download import DownloadError as DownloadError
from .hub.manifest import list_weights as list_weights
from .lora import add_lora as add_lora
from .lora import load_adapters as load_adapters
from .lora import merge_lora as merge_lora
from .lora import save_adapters as save_adapters
from .models import ImageModel as ImageModel
from .models import Variant as Variant
from .models import layout_map as layout_map
from .models import list_models as list_models
from .models.alternet import *
from .models.beit import *
from .models.bit import *
from .models.deit import *
from .models.hybrid import *
from .models.mixer import *
from .models.pit import *
from .models.resnext import *
from .models.rotary_vit import *
from .models.swin import *
from .models.vit import *
from .models.vit_ablation import *
from .prediction import classify as classify
from .prediction import imagenet_names as imagenet_names
from .preprocessing import Preprocessing as Preprocessing
from .pretrained import from_pretrained as from_pretrained
from .pretrained import resize as resize
from .quantization import WeightFormat as WeightFormat
from .quantization import weight_formats as weight_formats
from .rho_search import suggest_rho as suggest_rho
from .saving import push_to_hub as push_to_hub
from .saving import save_pretrained as save_pretrained
from .training import ASAM as ASAM
from .training import GSAM as GSAM
from .training import MSAM as MSAM
from .training import SAM as SAM
from .training import SAMON as SAMON
from .training import AdamW as AdamW
from .training import AsymmetricLoss as AsymmetricLoss
from .training import DistillationTrainer as DistillationTrainer
from .training import FriendlySAM as FriendlySAM
from .training import LogitAdjustedCrossentropy as LogitAdjustedCrossentropy
from .training import LookSAM as LookSAM
from .training import MaskedPatches as MaskedPatches
from .training import Resume as Resume
from .training import class_weights as class_weights
from .training import layer_decay as layer_decay
from .training import warmup_cosine as warmup_cosine
from .version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from . import data as data
else:  # type checkers would take any name for an attribute

    def __getattr__(name):
        if name == "data":  # imports TensorFlow
            import importlib

            return importlib.import_module("kerasvit.data")
        # Misspelled model names are common, so the message suggests similar names.
        import difflib

        near = difflib.get_close_matches(name, globals(), n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise AttributeError(f"kerasvit has no {name!r}.{hint}")
