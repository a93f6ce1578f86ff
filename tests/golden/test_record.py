"""A recorded case passes the check of its family."""

import numpy as np
import pytest

from .record import record
from .runner import check_case, read_manifest


@pytest.mark.slow
def test_a_case_of_timm(timm, tmp_path):
    (tmp_path / "manifest.json").write_text('{"cases": {}}')
    sizes = {"patch_size": 8, "embed_dim": 12, "num_blocks": 2, "num_classes": 3}
    model = timm.models.mlp_mixer.MlpMixer(img_size=32, **sizes)
    record(
        model,
        "small",
        inside=["stem", "blocks.0", "blocks.1"],
        image_size=(32, 32),
        root=tmp_path,
        kind="timm_mixer",
        config=sizes,
        origin=f"timm {timm.__version__} MlpMixer",
    )
    ((name, case),) = read_manifest(tmp_path).items()
    ((_, result),) = check_case(tmp_path, name, case)
    assert result.wrong is None, str(result)
    inside = {"hook/stem", "hook/blocks.0", "hook/blocks.1"}
    assert set(result.errors) == {*inside, "logits"}


def test_variances_are_positive(timm, tmp_path):
    (tmp_path / "manifest.json").write_text('{"cases": {}}')
    model = timm.models.convmixer.ConvMixer(dim=8, depth=1, num_classes=3)
    record(model, "small", inside=[], image_size=(14, 21), root=tmp_path, kind="none")
    with np.load(tmp_path / "models/small/expected.npz") as arrays:
        assert np.isfinite(arrays["logits_f64"]).all()
