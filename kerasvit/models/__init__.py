"""Models: one module per architecture, one line per variant."""

from kerasvit.patterns import chosen, near

from .alternet import AlterNet as AlterNet
from .alternet import AlterNet18 as AlterNet18
from .alternet import AlterNet18CIFAR as AlterNet18CIFAR
from .alternet import AlterNet34 as AlterNet34
from .alternet import AlterNet34CIFAR as AlterNet34CIFAR
from .alternet import AlterNet50 as AlterNet50
from .alternet import AlterNet50CIFAR as AlterNet50CIFAR
from .alternet import AlterNet50CIFAR100 as AlterNet50CIFAR100
from .alternet import AlterNet101 as AlterNet101
from .alternet import AlterNet101CIFAR as AlterNet101CIFAR
from .alternet import AlterNet152 as AlterNet152
from .alternet import AlterNet152CIFAR as AlterNet152CIFAR
from .alternet import PreActResNet as PreActResNet
from .alternet import PreActResNet18 as PreActResNet18
from .alternet import PreActResNet18CIFAR as PreActResNet18CIFAR
from .alternet import PreActResNet34 as PreActResNet34
from .alternet import PreActResNet34CIFAR as PreActResNet34CIFAR
from .alternet import PreActResNet50 as PreActResNet50
from .alternet import PreActResNet50CIFAR as PreActResNet50CIFAR
from .alternet import PreActResNet101 as PreActResNet101
from .alternet import PreActResNet101CIFAR as PreActResNet101CIFAR
from .alternet import PreActResNet152 as PreActResNet152
from .alternet import PreActResNet152CIFAR as PreActResNet152CIFAR
from .bit import BigTransfer as BigTransfer
from .bit import BiTR50x1 as BiTR50x1
from .bit import BiTR50x2 as BiTR50x2
from .bit import BiTR50x3 as BiTR50x3
from .bit import BiTR101x1 as BiTR101x1
from .bit import BiTR101x2 as BiTR101x2
from .bit import BiTR101x3 as BiTR101x3
from .bit import BiTR152x1 as BiTR152x1
from .bit import BiTR152x2 as BiTR152x2
from .bit import BiTR152x4 as BiTR152x4
from .bit import BiTR200x3 as BiTR200x3
from .builder import BuilderOf
from .deit import DeiT3B16 as DeiT3B16
from .deit import DeiT3H14 as DeiT3H14
from .deit import DeiT3L16 as DeiT3L16
from .deit import DeiT3M16 as DeiT3M16
from .deit import DeiT3S16 as DeiT3S16
from .deit import DeiTB16 as DeiTB16
from .deit import DeiTB16Distilled as DeiTB16Distilled
from .deit import DeiTS16 as DeiTS16
from .deit import DeiTS16Distilled as DeiTS16Distilled
from .deit import DeiTTi16 as DeiTTi16
from .deit import DeiTTi16Distilled as DeiTTi16Distilled
from .deit import DistilledVisionTransformer as DistilledVisionTransformer
from .deit import distillation_heads as distillation_heads
from .hybrid import HybridVisionTransformer as HybridVisionTransformer
from .hybrid import R26ViTB32 as R26ViTB32
from .hybrid import R26ViTS32 as R26ViTS32
from .hybrid import R50ViTB16 as R50ViTB16
from .hybrid import R50ViTB32 as R50ViTB32
from .hybrid import R50ViTL16 as R50ViTL16
from .hybrid import R50ViTL32 as R50ViTL32
from .hybrid import RViTTi16 as RViTTi16
from .image_model import ImageModel as ImageModel
from .layout_map import layout_map as layout_map
from .mixer import MixerB8 as MixerB8
from .mixer import MixerB16 as MixerB16
from .mixer import MixerB32 as MixerB32
from .mixer import MixerH14 as MixerH14
from .mixer import MixerL16 as MixerL16
from .mixer import MixerL32 as MixerL32
from .mixer import MixerS8 as MixerS8
from .mixer import MixerS16 as MixerS16
from .mixer import MixerS32 as MixerS32
from .mixer import MLPMixer as MLPMixer
from .swin import SwinB as SwinB
from .swin import SwinL as SwinL
from .swin import SwinS as SwinS
from .swin import SwinS3B as SwinS3B
from .swin import SwinS3S as SwinS3S
from .swin import SwinS3T as SwinS3T
from .swin import SwinT as SwinT
from .swin import SwinTiCIFAR as SwinTiCIFAR
from .swin import SwinTransformer as SwinTransformer
from .variant import Variant as Variant
from .vit import VisionTransformer as VisionTransformer
from .vit import ViTB8 as ViTB8
from .vit import ViTB14 as ViTB14
from .vit import ViTB16 as ViTB16
from .vit import ViTB32 as ViTB32
from .vit import ViTg14 as ViTg14
from .vit import ViTH14 as ViTH14
from .vit import ViTL14 as ViTL14
from .vit import ViTL16 as ViTL16
from .vit import ViTL32 as ViTL32
from .vit import ViTS8 as ViTS8
from .vit import ViTS14 as ViTS14
from .vit import ViTS16 as ViTS16
from .vit import ViTS32 as ViTS32
from .vit import ViTSo400M14 as ViTSo400M14
from .vit import ViTSo400M16 as ViTSo400M16
from .vit import ViTTi16 as ViTTi16
from .vit_ablation import VisionTransformerAblation as VisionTransformerAblation
from .vit_ablation import ViTTi4CIFAR as ViTTi4CIFAR
from .vit_ablation import ViTTi4CIFARAverage as ViTTi4CIFARAverage
from .vit_ablation import ViTTi4CIFARLocal3 as ViTTi4CIFARLocal3
from .vit_ablation import ViTTi4CIFARLocal5 as ViTTi4CIFARLocal5
from .vit_ablation import ViTTi4CIFARPostNorm as ViTTi4CIFARPostNorm

BUILDERS: dict[str, BuilderOf[...]] = {  # {name in a record: builder}
    "VisionTransformer": VisionTransformer,
    "DistilledVisionTransformer": DistilledVisionTransformer,
    "HybridVisionTransformer": HybridVisionTransformer,
    "MLPMixer": MLPMixer,
    "SwinTransformer": SwinTransformer,
    "AlterNet": AlterNet,
    "PreActResNet": PreActResNet,
    "VisionTransformerAblation": VisionTransformerAblation,
    "BigTransfer": BigTransfer,
}

VARIANTS = (  # recipes/names.py reads this tuple without importing the package
    AlterNet18,
    AlterNet18CIFAR,
    AlterNet34,
    AlterNet34CIFAR,
    AlterNet50,
    AlterNet50CIFAR,
    AlterNet50CIFAR100,
    AlterNet101,
    AlterNet101CIFAR,
    AlterNet152,
    AlterNet152CIFAR,
    PreActResNet18,
    PreActResNet18CIFAR,
    PreActResNet34,
    PreActResNet34CIFAR,
    PreActResNet50,
    PreActResNet50CIFAR,
    PreActResNet101,
    PreActResNet101CIFAR,
    PreActResNet152,
    PreActResNet152CIFAR,
    BiTR50x1,
    BiTR50x2,
    BiTR50x3,
    BiTR101x1,
    BiTR101x2,
    BiTR101x3,
    BiTR152x1,
    BiTR152x2,
    BiTR152x4,
    BiTR200x3,
    DeiT3B16,
    DeiT3H14,
    DeiT3L16,
    DeiT3M16,
    DeiT3S16,
    DeiTB16,
    DeiTB16Distilled,
    DeiTS16,
    DeiTS16Distilled,
    DeiTTi16,
    DeiTTi16Distilled,
    R26ViTB32,
    R26ViTS32,
    R50ViTB16,
    R50ViTB32,
    R50ViTL16,
    R50ViTL32,
    RViTTi16,
    MixerB8,
    MixerB16,
    MixerB32,
    MixerH14,
    MixerL16,
    MixerL32,
    MixerS8,
    MixerS16,
    MixerS32,
    SwinB,
    SwinL,
    SwinS,
    SwinS3B,
    SwinS3S,
    SwinS3T,
    SwinT,
    SwinTiCIFAR,
    ViTB8,
    ViTB14,
    ViTB16,
    ViTB32,
    ViTg14,
    ViTH14,
    ViTL14,
    ViTL16,
    ViTL32,
    ViTS8,
    ViTS14,
    ViTS16,
    ViTS32,
    ViTSo400M14,
    ViTSo400M16,
    ViTTi16,
    ViTTi4CIFAR,
    ViTTi4CIFARAverage,
    ViTTi4CIFARLocal3,
    ViTTi4CIFARLocal5,
    ViTTi4CIFARPostNorm,
)


class Names(list[str]):
    """A list of names; an empty one prints the available names."""

    empty = "[]"

    def __repr__(self) -> str:
        return super().__repr__() if self else self.empty


def list_models(pattern: str = "*") -> Names:
    """Returns the names of the variants; each is a `Variant` in `kerasvit`.

    Args:
        pattern: Part of a name such as "vit", or a shell pattern of a complete name
            such as "vits*". Case is ignored.

    Returns:
        List of str. An empty list prints as a sentence with the nearest names.

    Raises:
        ValueError: The pattern is not a string.
    """
    names = [variant.name for variant in VARIANTS if variant.name]
    matches = Names(chosen(names, pattern))
    if not matches:
        matches.empty = (
            f"[]: no model matches {pattern!r:.80}. Nearest: "
            f"{', '.join(near(names, pattern)) or 'none'}. All: {', '.join(names)}."
        )
    return matches
