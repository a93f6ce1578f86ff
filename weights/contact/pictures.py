"""The photographs of `weights.first_contact`: two bundled ones, and COCO's."""

import io
import sys
import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

from PIL import Image

from kerasvit.checkpoints import replace_file
from kerasvit.hub.errors import client_errors, retried

from .published_logits import COCO

PHOTOGRAPHS = Path(__file__).with_name("photographs")
BUNDLED = ("chelsea", "coffee")
FOLDER = "pictures"  # in the command's `--out`
COCO_ADDRESS = f"http://images.cocodataset.org/val2017/{COCO}.jpg"
COCO_PIXELS = (640, 480)  # width, height
PATIENCE = 30  # seconds
LARGEST = 2_000_000  # bytes


def pictures(out: Path, with_coco: bool) -> dict[str, str]:
    """Returns {name: path} of the photographs that are available.

    Args:
        out: The command's `--out`; COCO's photograph is downloaded into it.
        with_coco: Whether that photograph is needed. If it cannot be downloaded, a
            line on stderr says why.
    """
    found = {name: str(PHOTOGRAPHS / f"{name}.png") for name in BUNDLED}
    path = out.resolve() / FOLDER / f"{COCO}.jpg"
    if with_coco:
        try:
            _download(path)
        except client_errors(HTTPException) as error:
            print(f"{COCO_ADDRESS} is not available: {error}", file=sys.stderr)
            return found
        found[COCO] = str(path)
    return found


def _download(path: Path) -> None:
    """Downloads COCO's photograph, unless it is there.

    Raises:
        OSError: It is not available, or of another size.
    """
    if path.exists() and _pixels(path.read_bytes()) == COCO_PIXELS:
        return

    def ask() -> bytes:
        with urllib.request.urlopen(COCO_ADDRESS, timeout=PATIENCE) as answer:
            return answer.read(LARGEST)

    content = retried(ask, lambda error: not isinstance(error, HTTPError))
    if (pixels := _pixels(content)) != COCO_PIXELS:
        raise OSError(f"{pixels} pixels came instead of {COCO_PIXELS}")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)


def _pixels(content: bytes) -> tuple[int, int] | None:
    """Returns (width, height) of a complete image; None for other content."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            return image.size
    except (OSError, SyntaxError):  # Pillow's errors for damaged files
        return None
