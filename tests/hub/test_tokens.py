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
def captured(hub, monkeypatch, caplog, capfd):
    """Returns the errors of a function, its logs and its output as one string."""
    monkeypatch.setattr(constants, "HF_DEBUG", True)
    client_logging.set_verbosity_debug()
    client_logging.enable_propagation()
    caplog.set_level(logging.DEBUG)

    def run(function, *arguments, **options):
        with pytest.raises(ValueError) as caught:
            function(*arguments, **options)
        parts = [*traceback.format_exception(caught.value)]
        error = caught.value
        while error:
            parts += [str(error), repr(error), repr(error.args)]
            error = error.__cause__ or error.__context__
        out, err = capfd.readouterr()
        return "".join([*parts, caplog.text, out, err])

    yield run
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
def test_downloads(hub, captured, accident, monkeypatch):
    hub.tokens = {SECRET}
    hub.add("me/vit", FILES, private=True)
    hub.faults = accidents.always(accident)
    load = kerasvit.from_pretrained
    output = captured(load, "hf://me/vit", token=SECRET)
    assert "GET" in output or "HEAD" in output  # the client's own log is there
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert SECRET not in output + captured(load, "hf://me/vit")


@pytest.mark.parametrize(
    "accident",
    [*ACCIDENTS[2:], lambda h, kind: "/commit/" in h.path and ACCIDENTS[4](h, kind)],
)
def test_uploads(hub, captured, accident, monkeypatch):
    hub.tokens = {SECRET}
    hub.faults = accidents.always(accident)
    model = TinyViT(image_size=8, num_classes=3)
    output = captured(kerasvit.push_to_hub, model, "me/vit", token=SECRET)
    assert "POST" in output
    monkeypatch.setenv("HF_TOKEN", SECRET)
    output += captured(kerasvit.push_to_hub, model, "me/vit")
    assert SECRET not in output


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
    hub, captured, accident, address, monkeypatch
):
    mirror = hub.endpoint.replace("://", f"://{address.format(SECRET)}")
    hub.faults = accidents.always(accident)
    model = TinyViT(image_size=8, num_classes=3)
    access = {"endpoint": mirror, "token": "good"}
    down, up = kerasvit.from_pretrained, kerasvit.push_to_hub
    output = captured(down, "hf://me/vit", **access)
    output += captured(up, model, "me/vit", **access)
    assert output.count("`endpoint` must be an address") >= 2
    monkeypatch.setattr(constants, "ENDPOINT", mirror)  # as HF_ENDPOINT sets it
    from_environment = captured(down, "hf://me/vit")
    from_environment += captured(up, model, "me/vit", token="good")
    assert from_environment.count("The environment variable HF_ENDPOINT must be") >= 2
    assert SECRET not in output + from_environment
    assert not hub.requests


def test_a_password_in_an_address_that_is_no_hub_is_not_shown(captured):
    output = captured(TinyViT, f"https://me:{SECRET}@host.example/vit.npz")
    assert "host.example/vit.npz" in output and SECRET not in output


@pytest.mark.parametrize("token", [SECRET + "\n", f"{SECRET} x", SECRET + "é"])
def test_a_token_that_cannot_be_sent_is_not_shown(hub, captured, token):
    hub.add("me/vit", FILES)
    model = TinyViT(image_size=8, num_classes=3)
    output = captured(kerasvit.from_pretrained, "hf://me/vit", token=token)
    output += captured(kerasvit.push_to_hub, model, "me/vit", token=token)
    assert "without spaces and line breaks" in output and SECRET not in output
    assert not hub.requests
