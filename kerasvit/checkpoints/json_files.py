"""Reader of the JSON files of a model folder, with size limits."""

import io
import json
import os
from pathlib import Path
from typing import Any

from .reader import CheckpointError

MAX_JSON = 16_000_000  # bytes

# Limit on the number of commas in a configuration. A configuration of 21,843 classes
# contains each name twice, with up to ten commas each. The limit bounds the memory: an
# empty list takes 3 bytes in the file and 64 bytes in memory.
MAX_VALUES = 500_000


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Reads the object in a JSON file; {} if the file does not exist.

    Raises:
        CheckpointError: The file does not contain a JSON object.
    """
    try:
        content = _parsed(path, _short(Path(path)).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"{path} holds text that is not Unicode: {error}. Remove it there."
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object.")
    return content


def _parsed(path: str | os.PathLike, text: str) -> Any:
    """Parses JSON with a limited number of values."""
    if (count := text.count(",")) > MAX_VALUES:
        raise CheckpointError(
            f"{path} holds {count:,} values; configurations have at most "
            f"{MAX_VALUES:,}."
        )
    content = json.loads(text)
    if "\\u" in text:
        # JSON can escape a lone surrogate, which UTF-8 cannot encode.
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    return content


def _short(path: Path) -> bytes:
    """Reads a file with a size limit."""
    if not path.is_file():
        if os.path.lexists(path):
            raise CheckpointError(f"{path} must be a file: it is of another kind.")
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        content = file.read(MAX_JSON + 1)
        if len(content) > MAX_JSON:
            length = file.seek(0, io.SEEK_END)
            raise CheckpointError(
                f"{path} has {length:,} bytes; configurations have at most "
                f"{MAX_JSON:,}."
            )
    return content
