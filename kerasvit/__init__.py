"""Vision Transformers and their kin for Keras 3, with sharpness-aware training.

    model = kerasvit.ViTB16("vit_base.safetensors", num_classes=37, image_size=384)
    trainer = kerasvit.SAM(model, rho=0.1)
    trainer.compile(...)
    trainer.fit(...)

Everything a user needs is a name in this file.
"""

from .checkpoints import CheckpointError as CheckpointError
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
from .models import ImageModel as ImageModel
from .models import Variant as Variant
from .models import VisionTransformer as VisionTransformer
from .models import ViTB8 as ViTB8
from .models import ViTB16 as ViTB16
from .models import ViTB32 as ViTB32
from .models import ViTH14 as ViTH14
from .models import ViTL16 as ViTL16
from .models import ViTL32 as ViTL32
from .models import ViTS8 as ViTS8
from .models import ViTS14 as ViTS14
from .models import ViTS16 as ViTS16
from .models import ViTS32 as ViTS32
from .models import ViTTi16 as ViTTi16
from .models import list_models as list_models
from .prediction import classify as classify
from .preprocessing import Preprocessing as Preprocessing
from .pretrained import from_pretrained as from_pretrained
from .pretrained import resize as resize
from .pretrained import save_pretrained as save_pretrained
from .training import SAM as SAM
from .training import warmup_cosine as warmup_cosine

__version__ = "0.1.0"


def __getattr__(name):
    # A mis-spelled model is the commonest mistake; Python's own message says nothing.
    import difflib

    near = difflib.get_close_matches(name, globals(), n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise AttributeError(f"kerasvit has no {name!r}.{hint}")
