"""One architecture a file: a builder, its sizes, and one row a variant."""

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
from .image_model import ImageModel as ImageModel
from .variant import Variant as Variant
from .vit import VisionTransformer as VisionTransformer
from .vit import ViTB8 as ViTB8
from .vit import ViTB16 as ViTB16
from .vit import ViTB32 as ViTB32
from .vit import ViTH14 as ViTH14
from .vit import ViTL16 as ViTL16
from .vit import ViTL32 as ViTL32
from .vit import ViTS8 as ViTS8
from .vit import ViTS14 as ViTS14
from .vit import ViTS16 as ViTS16
from .vit import ViTS32 as ViTS32
from .vit import ViTTi16 as ViTTi16

BUILDERS = {  # by the name in a record
    "BigTransfer": BigTransfer,
    "VisionTransformer": VisionTransformer,
}


def list_models(pattern: str = "*") -> list[str]:
    """Names of the zoo's models, each a `Variant` of that name in `kerasvit`.

    Args:
        pattern: Shell pattern, whatever the case: "vits*".
    """
    from fnmatch import fnmatch

    names = [name for name, row in globals().items() if isinstance(row, Variant)]
    return [name for name in names if fnmatch(name.lower(), pattern.lower())]
