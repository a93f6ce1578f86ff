"""A token is in no error, log, file or repr."""

import logging
import traceback

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import logging as client_logging

import kerasvit
from kerasvit.hub.download import DownloadError
from tests.tiny_vit import TinyViT

from . import accidents
from .some_weights import FILES, entry

pytestmark = pytest.mark.slow

SECRET = "hf_sEcReT"


@pytest.fixture
def all_that_is_said(hub, monkeypatch, caplog, capfd):
    """Errors of a function, what was logged, and what came out, all at once."""
    monkeypatch.setattr(constants, "HF_DEBUG", True)
    client_logging.set_verbosity_debug()
    client_logging.enable_propagation()
    caplog.set_level(logging.DEBUG)

    def of(function, *arguments, **options):
        with pytest.raises(ValueError) as caught:
            function(*arguments, **options)
        said = [*traceback.format_exception(caught.value)]
        error = caught.value
        while error:
            said += [str(error), repr(error), repr(error.args)]
            error = error.__cause__ or error.__context__
        out, err = capfd.readouterr()
        return "".join([*said, caplog.text, out, err])

    yield of
    client_logging.disable_propagation()
    client_logging.set_verbosity_warning()


ACCIDENTS = [
    accidents.portal,
    accidents.reset,
    accidents.status(401, ("head", "api")),
    accidents.status(403, ("head", "api")),
    accidents.status(500, ("head", "body", "api")),
]


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_downloads(hub, all_that_is_said, accident, monkeypatch):
    hub.tokens = {SECRET}
    hub.add("me/vit", FILES, private=True)
    hub.faults = accidents.always(accident)
    load = kerasvit.from_pretrained
    said = all_that_is_said(load, "hf://me/vit", token=SECRET)
    assert "GET" in said or "HEAD" in said  # the client's own log is there
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert SECRET not in said + all_that_is_said(load, "hf://me/vit")


@pytest.mark.parametrize(
    "accident",
    [*ACCIDENTS[2:], lambda h, kind: "/commit/" in h.path and ACCIDENTS[4](h, kind)],
)
def test_uploads(hub, all_that_is_said, accident, monkeypatch):
    hub.tokens = {SECRET}
    hub.faults = accidents.always(accident)
    model = TinyViT(image_size=8, num_classes=3)
    said = all_that_is_said(kerasvit.push_to_hub, model, "me/vit", token=SECRET)
    assert "POST" in said
    monkeypatch.setenv("HF_TOKEN", SECRET)
    said += all_that_is_said(kerasvit.push_to_hub, model, "me/vit")
    assert SECRET not in said


def test_addresses_are_not_sent_the_token(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    sent = []
    hub.faults = [lambda h, kind: sent.append(str(h.headers)) or h.send(404) or True]
    with pytest.raises(DownloadError):
        kerasvit.hub.download.fetch(entry(hub.address("x.npz")))
    assert sent and SECRET not in sent[0]


@pytest.mark.parametrize(
    "address", ["me:{}@", "{}@", "me:a/{}@", "me:{}%40x@", "me:a@{}@", "host?x={}#"]
)
@pytest.mark.parametrize("accident", ACCIDENTS[2:])
def test_a_password_in_an_address_raises_and_is_not_shown(
    hub, all_that_is_said, accident, address, monkeypatch
):
    mirror = hub.endpoint.replace("://", f"://{address.format(SECRET)}")
    hub.faults = accidents.always(accident)
    model = TinyViT(image_size=8, num_classes=3)
    access = {"endpoint": mirror, "token": "good"}
    down, up = kerasvit.from_pretrained, kerasvit.push_to_hub
    said = all_that_is_said(down, "hf://me/vit", **access)
    said += all_that_is_said(up, model, "me/vit", **access)
    assert said.count("`endpoint` must be an address") >= 2
    monkeypatch.setattr(constants, "ENDPOINT", mirror)  # as of HF_ENDPOINT
    of_environment = all_that_is_said(down, "hf://me/vit")
    of_environment += all_that_is_said(up, model, "me/vit", token="good")
    assert of_environment.count("The environment variable HF_ENDPOINT must be") >= 2
    assert SECRET not in said + of_environment
    assert not hub.requests


def test_a_password_in_an_address_that_is_no_hub_is_not_shown(all_that_is_said):
    said = all_that_is_said(TinyViT, f"https://me:{SECRET}@host.example/vit.npz")
    assert "host.example/vit.npz" in said and SECRET not in said


@pytest.mark.parametrize("token", [SECRET + "\n", f"{SECRET} x", SECRET + "é"])
def test_a_token_that_cannot_be_sent_is_not_shown(hub, all_that_is_said, token):
    hub.add("me/vit", FILES)
    model = TinyViT(image_size=8, num_classes=3)
    said = all_that_is_said(kerasvit.from_pretrained, "hf://me/vit", token=token)
    said += all_that_is_said(kerasvit.push_to_hub, model, "me/vit", token=token)
    assert "without spaces and line breaks" in said and SECRET not in said
    assert not hub.requests
