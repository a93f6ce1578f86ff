"""Records golden cases of torch models, such as timm's and transformers'."""

import copy
import json
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent


def record(model, name, *, inside, image_size, root=ROOT, **entry):
    """Writes the folder `models/NAME/` and the entry of `manifest.json`.

    The model gets random weights: fresh ones are zeros in part. Its activations are
    recorded in float64.

    Args:
        model: `torch.nn.Module`, images (B, 3, H, W) → logits.
        name: Of the case.
        inside: Names of submodules; the output of each is the quantity "hook/NAME".
        image_size: (height, width) in pixels.
        root: Folder that contains `manifest.json`.
        **entry: The rest of the entry: `kind`, a key of `FAMILIES` in `runner.py`;
            `config`, the model's arguments; `origin`, the package, its version and
            the class.
    """
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    for key, tensor in model.eval().state_dict().items():
        if tensor.is_floating_point():
            tensor.normal_(std=0.2, generator=generator)
            if key.endswith("running_var"):
                tensor.abs_().add_(0.5)
    images = torch.randn(2, 3, *image_size, generator=generator)
    found = _activations(copy.deepcopy(model).double(), inside, images.double())
    files = {"checkpoint": "model.safetensors", "input": "input.npy"}
    files["expected"] = "expected.npz"
    files = {key: f"models/{name}/{file}" for key, file in files.items()}
    (root / "models" / name).mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), root / files["checkpoint"])
    np.save(root / files["input"], images.permute(0, 2, 3, 1).numpy())
    expected = {f"{quantity}_f64": array for quantity, array in found.items()}
    np.savez_compressed(root / files["expected"], **expected)
    path = root / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["cases"][name] = {**entry, "files": files}
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def _activations(model, inside, images):
    """Returns {quantity: array}."""
    import torch

    found = {}

    def keep(quantity, module, inputs, output):
        found[quantity] = output.numpy()

    with torch.no_grad():
        for part in inside:
            hook = partial(keep, f"hook/{part}")
            model.get_submodule(part).register_forward_hook(hook)
        found["logits"] = model(images).numpy()
    return found
