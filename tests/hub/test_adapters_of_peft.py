"""Adapters of PEFT in repositories of the Hub."""

import numpy as np
import pytest

import kerasvit
from tests.checkpoints.peft_folders import GOLDEN, ROOT
from tests.contract import to_numpy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", ["vit", "dinov3"])  # and adapter_model.bin
def test_adapters_of_peft_are_downloaded(hub, case):
    files = {path.name: path.read_bytes() for path in (ROOT / case).glob("adapter_*")}
    hub.add("me/lora", files)
    images = np.load(GOLDEN / f"hf_{case}" / "input.npy")
    model = kerasvit.from_pretrained(
        GOLDEN / f"hf_{case}", image_size=images.shape[1:3]
    )
    kerasvit.load_adapters(model, "hf://me/lora")
    expected = np.load(ROOT / case / "outputs.npy")
    np.testing.assert_allclose(to_numpy(model(images)), expected, atol=1e-4)
    with pytest.raises(ValueError, match="adapters of LoRA without a model"):
        kerasvit.from_pretrained("hf://me/lora")


def test_a_repository_without_the_tensors(hub):
    hub.add("me/lora", {"adapter_config.json": b"{}"})
    model = kerasvit.from_pretrained(GOLDEN / "hf_vit")
    with pytest.raises(ValueError, match="adapter_model.bin"):
        kerasvit.load_adapters(model, "hf://me/lora")
