"""Inference on OpenVINO, in processes of its own."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy
from tests.once import on_last_backend
from tests.tiny_vit import random_model

pytestmark = [on_last_backend, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SHORT = ["alternet_basic", "mixer", "timm_beit", "timm_deit_distilled", "vit_token"]
LONG = [
    *("hybrid_r", "bit_x1", "resnext_cifar", "timm_swin", "timm_pit"),
    *("timm_rope_axial", "hf_dinov3", "alternet_bottleneck"),
]
FAMILIES = """
import sys
import keras, numpy as np
from tests.golden.runner import FAMILIES, check_case, read_manifest

root, cases = sys.argv[1], read_manifest(sys.argv[1])
for name in sys.argv[2:]:
    for label, outcome in check_case(root, name, cases[name]):
        assert outcome.wrong is None, f"{label}: {outcome}"
    case = cases[name]
    x = np.load(f"{root}/{case['files']['input']}")
    checkpoint = f"{root}/{case['files']['checkpoint']}"
    model = FAMILIES[case["kind"]].build(case, checkpoint, x.shape[1:3])
    for found, expected in zip(
        *map(keras.tree.flatten, (model(x), model.predict(x, verbose=0))), strict=True
    ):
        found = keras.ops.convert_to_numpy(found)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, atol=1e-5 * scale, err_msg=name)
"""
USE = """
import json, sys, threading
import keras, numpy as np, kerasvit

folder, refused = sys.argv[1], {}
x = np.load(folder + "/x.npy")
y = np.arange(len(x)) % 3
model = kerasvit.from_pretrained(folder)
whole = keras.saving.load_model(folder + "/model.keras")
once = [keras.ops.convert_to_numpy(model(x)), model.predict(x, verbose=0)]
once += [whole.predict(x, batch_size=3, verbose=0), model.predict_on_batch(x)]
np.save(folder + "/logits.npy", once)
classes = dict(kerasvit.classify(model, x[0]))
np.save(folder + "/classes.npy", [classes[each] for each in ("ant0", "bee0", "cat0")])

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
assert model.evaluate(x, y, verbose=0)[1] == np.mean(once[0].argmax(-1) == y)

found = []
threads = [
    threading.Thread(target=lambda: found.append(model.predict_on_batch(x)))
    for _ in range(4)
]
[thread.start() for thread in threads], [thread.join() for thread in threads]
np.testing.assert_array_equal(found, [found[0]] * 4)

whole.set_weights([0 * weight for weight in whole.get_weights()])
assert not whole.predict(x, verbose=0).any()  # not those that it was compiled with

inspection = kerasvit.inspection
heat = inspection.attention_maps(model, x).heat
assert heat.shape[0] == len(x) and np.isfinite(heat).all()
for name, call in {
    "fit": lambda: model.fit(x, y),
    "batch": lambda: model.train_on_batch(x, y),
    "SAM": lambda: kerasvit.SAM(model),
    "distillation": lambda: kerasvit.DistillationTrainer(model, model),
    "trainer": lambda: keras.saving.load_model(folder + "/trainer.keras"),
    "field": lambda: inspection.effective_receptive_field(model, x),
    "hessian": lambda: inspection.largest_eigenvalue(model, x, y, loss),
    "export": lambda: model.export(folder + "/model.onnx", "onnx"),
}.items():
    try:
        call()
    except ValueError as error:
        refused[name] = str(error)
print(json.dumps(refused))
"""


def run(code, *arguments):
    if not importlib.util.find_spec("openvino"):
        pytest.skip("openvino is not installed")
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "KERAS_BACKEND": "openvino"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("cases", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_each_family_computes_the_original_numbers(cases):
    run(FAMILIES, ROOT / "tests/golden", *cases)


def test_a_model_predicts_and_what_needs_gradients_is_refused(tmp_path):
    model = random_model(0)
    x = np.random.default_rng(0).uniform(-1, 1, (8, 8, 8, 3)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    kerasvit.save_pretrained(model, tmp_path)
    model.save(tmp_path / "model.keras")
    kerasvit.SAM(model).save(tmp_path / "trainer.keras")
    refused = json.loads(run(USE, tmp_path).splitlines()[-1])
    expected = to_numpy(model(x))
    for logits in np.load(tmp_path / "logits.npy"):
        np.testing.assert_allclose(logits, expected, atol=1e-5)
    classes = np.exp(expected[0]) / np.exp(expected[0]).sum()
    np.testing.assert_allclose(np.load(tmp_path / "classes.npy"), classes, atol=1e-5)
    assert "must be \"openvino\". Received: 'onnx'" in refused.pop("export")
    wanted = {"fit", "batch", "SAM", "distillation", "trainer", "field", "hessian"}
    assert set(refused) == wanted
    assert all("OpenVINO has no gradients" in text for text in refused.values())
