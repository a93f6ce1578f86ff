"""Fixtures: a local Hub and a client that uses it."""

import pytest

from .accidents import NO_TIME
from .local_hub import LocalHub


@pytest.fixture
def hub(alike, monkeypatch, tmp_path):
    """A fresh Hub; caches are in the test's own folder, and no pause is long."""
    import huggingface_hub
    from huggingface_hub import constants, file_download, hf_api
    from huggingface_hub.utils import _http

    from kerasvit.hub import errors

    hub = LocalHub()
    cache = str(tmp_path / "cache")
    for name, value in {
        "ENDPOINT": hub.endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.endpoint + "/{repo_id}/resolve/{revision}"
        "/{filename}",
        "HF_HUB_CACHE": cache,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
        "HF_ASSETS_CACHE": str(tmp_path / "assets"),
        "HF_TOKEN_PATH": str(tmp_path / "token"),
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(hf_api.api, "endpoint", hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.delenv("KERASVIT_WEIGHTS_DIR", raising=False)
    monkeypatch.setattr(errors, "PAUSES", (0, 0))
    monkeypatch.setattr(file_download, "time", NO_TIME)
    monkeypatch.setattr(_http, "time", NO_TIME)
    yield hub
    hub.close()
    huggingface_hub.close_session()
