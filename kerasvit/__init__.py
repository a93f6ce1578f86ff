"""Vision Transformers and related models for Keras 3, with sharpness-aware training.

    model = kerasvit.ViTB16("vit_base.safetensors", num_classes=37, image_size=384)
    kerasvit.fit_head(model, (images, labels))
    model.compile(keras.optimizers.Adam(1e-5), ...)
    model.fit(images, labels, epochs=4)

This module exports the complete public API.
"""

# ruff: noqa: E402
import typing as _typing

from . import installed as installed

installed.check_backend()  # before Keras is imported

from . import evaluation as evaluation
from . import inspection as inspection
from .checkpoints import CheckpointError as CheckpointError
from .features import FeatureModel as FeatureModel
from .features import features as features
from .fine_tuning import HeadAccuracy as HeadAccuracy
from .fine_tuning import TrainingSuggestion as TrainingSuggestion
from .fine_tuning import fit_head as fit_head
from .fine_tuning import suggest_training as suggest_training
from .hub.download import DownloadError as DownloadError
from .hub.manifest import list_weights as list_weights
from .lora import add_lora as add_lora
from .lora import load_adapters as load_adapters
from .lora import merge_lora as merge_lora
from .lora import save_adapters as save_adapters
from .models import AlterNet as AlterNet
from .models import AlterNet18 as AlterNet18
from .models import AlterNet18CIFAR as AlterNet18CIFAR
from .models import AlterNet34 as AlterNet34
from .models import AlterNet34CIFAR as AlterNet34CIFAR
from .models import AlterNet50 as AlterNet50
from .models import AlterNet50CIFAR as AlterNet50CIFAR
from .models import AlterNet50CIFAR100 as AlterNet50CIFAR100
from .models import AlterNet101 as AlterNet101
from .models import AlterNet101CIFAR as AlterNet101CIFAR
from .models import AlterNet152 as AlterNet152
from .models import AlterNet152CIFAR as AlterNet152CIFAR
from .models import BigTransfer as BigTransfer
from .models import BiTR50x1 as BiTR50x1
from .models import BiTR50x2 as BiTR50x2
from .models import BiTR50x3 as BiTR50x3
from .models import BiTR101x1 as BiTR101x1
from .models import BiTR101x2 as BiTR101x2
from .models import BiTR101x3 as BiTR101x3
from .models import BiTR152x1 as BiTR152x1
from .models import BiTR152x2 as BiTR152x2
from .models import BiTR152x4 as BiTR152x4
from .models import BiTR200x3 as BiTR200x3
from .models import DeiT3B16 as DeiT3B16
from .models import DeiT3H14 as DeiT3H14
from .models import DeiT3L16 as DeiT3L16
from .models import DeiT3M16 as DeiT3M16
from .models import DeiT3S16 as DeiT3S16
from .models import DeiTB16 as DeiTB16
from .models import DeiTB16Distilled as DeiTB16Distilled
from .models import DeiTS16 as DeiTS16
from .models import DeiTS16Distilled as DeiTS16Distilled
from .models import DeiTTi16 as DeiTTi16
from .models import DeiTTi16Distilled as DeiTTi16Distilled
from .models import DistilledVisionTransformer as DistilledVisionTransformer
from .models import HybridVisionTransformer as HybridVisionTransformer
from .models import ImageModel as ImageModel
from .models import MixerB8 as MixerB8
from .models import MixerB16 as MixerB16
from .models import MixerB32 as MixerB32
from .models import MixerH14 as MixerH14
from .models import MixerL16 as MixerL16
from .models import MixerL32 as MixerL32
from .models import MixerS8 as MixerS8
from .models import MixerS16 as MixerS16
from .models import MixerS32 as MixerS32
from .models import MLPMixer as MLPMixer
from .models import PreActResNet as PreActResNet
from .models import PreActResNet18 as PreActResNet18
from .models import PreActResNet18CIFAR as PreActResNet18CIFAR
from .models import PreActResNet34 as PreActResNet34
from .models import PreActResNet34CIFAR as PreActResNet34CIFAR
from .models import PreActResNet50 as PreActResNet50
from .models import PreActResNet50CIFAR as PreActResNet50CIFAR
from .models import PreActResNet101 as PreActResNet101
from .models import PreActResNet101CIFAR as PreActResNet101CIFAR
from .models import PreActResNet152 as PreActResNet152
from .models import PreActResNet152CIFAR as PreActResNet152CIFAR
from .models import R26ViTB32 as R26ViTB32
from .models import R26ViTS32 as R26ViTS32
from .models import R50ViTB16 as R50ViTB16
from .models import R50ViTB32 as R50ViTB32
from .models import R50ViTL16 as R50ViTL16
from .models import R50ViTL32 as R50ViTL32
from .models import RViTTi16 as RViTTi16
from .models import SwinB as SwinB
from .models import SwinL as SwinL
from .models import SwinS as SwinS
from .models import SwinS3B as SwinS3B
from .models import SwinS3S as SwinS3S
from .models import SwinS3T as SwinS3T
from .models import SwinT as SwinT
from .models import SwinTiCIFAR as SwinTiCIFAR
from .models import SwinTransformer as SwinTransformer
from .models import Variant as Variant
from .models import VisionTransformer as VisionTransformer
from .models import VisionTransformerAblation as VisionTransformerAblation
from .models import ViTB8 as ViTB8
from .models import ViTB14 as ViTB14
from .models import ViTB16 as ViTB16
from .models import ViTB32 as ViTB32
from .models import ViTg14 as ViTg14
from .models import ViTH14 as ViTH14
from .models import ViTL14 as ViTL14
from .models import ViTL16 as ViTL16
from .models import ViTL32 as ViTL32
from .models import ViTS8 as ViTS8
from .models import ViTS14 as ViTS14
from .models import ViTS16 as ViTS16
from .models import ViTS32 as ViTS32
from .models import ViTSo400M14 as ViTSo400M14
from .models import ViTSo400M16 as ViTSo400M16
from .models import ViTTi4CIFAR as ViTTi4CIFAR
from .models import ViTTi4CIFARAverage as ViTTi4CIFARAverage
from .models import ViTTi4CIFARLocal3 as ViTTi4CIFARLocal3
from .models import ViTTi4CIFARLocal5 as ViTTi4CIFARLocal5
from .models import ViTTi4CIFARPostNorm as ViTTi4CIFARPostNorm
from .models import ViTTi16 as ViTTi16
from .models import distillation_heads as distillation_heads
from .models import layout_map as layout_map
from .models import list_models as list_models
from .prediction import classify as classify
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
from .training import DistillationTrainer as DistillationTrainer
from .training import LookSAM as LookSAM
from .training import layer_decay as layer_decay
from .training import warmup_cosine as warmup_cosine
from .version import __version__ as __version__

if not _typing.TYPE_CHECKING:  # type checkers would take any name for an attribute

    def __getattr__(name):
        # Misspelled model names are common, so the message suggests similar names.
        import difflib

        near = difflib.get_close_matches(name, globals(), n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise AttributeError(f"kerasvit has no {name!r}.{hint}")
