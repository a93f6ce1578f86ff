"""Gathers images per second of the forward pass for the table of models.

    python -m recipes.benchmarks forward --model ViTTi16 ViTS16 --rivals --rounds 5
    python .github/site/speeds.py runs/benchmarks > .github/site/speeds.json

The results must be of one machine, and of the same batch and precision.
"""

import json
import sys
from pathlib import Path


def gathered(folder: Path) -> dict:
    """Returns {variant: {backend: images/s}}, and how it was measured."""
    found, how = {}, set()
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text("utf-8"))
        about = result["about"]
        own = next(row for row in result["rows"] if row[0] == "kerasvit")
        speed = own[1 + result["columns"].index("images/s")]
        found.setdefault(about["model"], {})[about["backend"]] = speed
        how.add((result["date"], about["device"], about["batch_size"], about["dtype"]))
    if len(how) != 1:
        raise ValueError(f"Expected results of one machine. {folder} has: {how}.")
    names = ("date", "device", "batch", "dtype")
    return {**dict(zip(names, *how, strict=True)), "images/s": found}


if __name__ == "__main__":
    print(json.dumps(gathered(Path(sys.argv[1])), indent=1))
