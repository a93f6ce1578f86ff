"""Records golden cases of torch models, such as timm's, and of keras-hub's."""

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
    _enter(root, name, {**entry, "files": files})


def record_preset(model, name, *, blocks, root=ROOT, **entry):
    """Writes a folder of keras-hub as a case, as `record` does.

    The files are those of `save_to_preset`. The activations are recorded in float64, so
    that the backend must have it: TensorFlow or PyTorch.

    Args:
        model: Backbone of keras-hub, or an image classifier without a preprocessor but
            perhaps with an image converter.
        name: Of the case.
        blocks: Function of a backbone, which returns the list of its blocks.
        root: Folder that contains `manifest.json`.
        **entry: The rest of the entry, as for `record`.
    """
    import keras
    import keras_hub

    rng = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(rng.normal(scale=0.2, size=variable.shape))
    folder = root / "models" / name
    model.save_to_preset(str(folder))
    for unused in ("metadata.json", "preprocessor.json"):
        (folder / unused).unlink(missing_ok=True)
    images = rng.normal(size=(2, *_shape(model)[1:])).astype("float32")
    is_task = hasattr(model, "backbone")
    kind = keras_hub.models.ImageClassifier if is_task else keras_hub.models.Backbone
    exact = kind.from_preset(str(folder), dtype="float64")
    found = {}
    for i, block in enumerate(blocks(exact.backbone if is_task else exact)):
        block.call = partial(_kept, found, f"block{i}", block.call)
    logits = keras.ops.convert_to_numpy(exact(_named(exact, images.astype("float64"))))
    found["logits"] = logits if is_task else logits[:, 0]
    np.save(folder / "input.npy", images)
    expected = {f"{quantity}_f64": array for quantity, array in found.items()}
    np.savez_compressed(folder / "expected.npz", **expected)
    files = {"checkpoint": "model.weights.h5", "input": "input.npy"}
    files["expected"] = "expected.npz"
    files = {key: f"models/{name}/{file}" for key, file in files.items()}
    _enter(root, name, {**entry, "files": files})


def _shape(model):
    [shape] = [tensor.shape for tensor in model.inputs]
    return shape


def _named(model, images):
    """The images as the model takes them, perhaps in a dict."""
    inputs = model.input
    return {name: images for name in inputs} if isinstance(inputs, dict) else images


def _kept(found, quantity, call, *arguments, **options):
    import keras

    output = call(*arguments, **options)
    first = output[0] if isinstance(output, tuple) else output
    found[quantity] = keras.ops.convert_to_numpy(first)
    return output


def _enter(root, name, entry):
    """Writes the entry of `manifest.json`."""
    path = root / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["cases"][name] = entry
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
