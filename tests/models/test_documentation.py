"""`help` and `inspect.signature` of every variant."""

import copy
import inspect
import os
import pickle
import pydoc
import subprocess
import sys

import pytest

import kerasvit
from kerasvit.hub.manifest import published
from kerasvit.models import VARIANTS
from tests.once import on_last_backend

pytestmark = on_last_backend
OF_THE_CALL = ("weights", "num_classes", "image_size", "include_preprocessing")
OF_THE_CALL += ("source_grid", "kernel", "preprocessing", "label_names", "state")
OF_THE_CALL += ("dtype",)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_signature_has_the_arguments_and_the_defaults(variant):
    signature = inspect.signature(variant)
    parameters = dict(signature.parameters)
    assert [*parameters][: len(OF_THE_CALL)] == list(OF_THE_CALL)
    of_builder = inspect.signature(variant.builder).parameters
    assert parameters.keys() == {*OF_THE_CALL, *of_builder}
    assert signature.return_annotation is kerasvit.ImageModel
    for name, value in {**variant.defaults, **variant.numbers}.items():
        expected = None if name in OF_THE_CALL else value
        assert parameters[name].default == expected
        assert parameters[name].annotation is not inspect.Parameter.empty


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_help_documents_every_argument_once(variant):
    shown = pydoc.render_doc(variant, renderer=pydoc.plaintext)
    assert inspect.getdoc(variant).splitlines()[0] in shown
    lines = variant.__doc__.splitlines()
    assert lines[0].startswith(f"{variant.name}: ") and "arXiv" in variant.__doc__
    assert f"{variant.parameters:,} parameters" in lines[0]
    assert max(map(len, lines)) <= 90
    for name in inspect.signature(variant).parameters:
        entries = [line for line in lines if line.startswith(f"    {name}: ")]
        assert len(entries) == 1, name
        assert f"        {name}: " in shown  # indented under the repr
    for name, value in variant.numbers.items():
        assert f"Default: {value!r}." in variant.__doc__, name
    for tag in published(variant.name):
        assert f'"{tag}"' in variant.__doc__
    assert "Raises:" in lines and "Returns:" in lines


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_copies_of_a_variant_have_its_documentation(variant):
    for again in (pickle.loads(pickle.dumps(variant)), copy.deepcopy(variant)):
        assert repr(again) == repr(variant)
        assert again.__doc__ == variant.__doc__
        assert inspect.signature(again) == inspect.signature(variant)


def test_the_class_has_its_own_documentation():
    assert kerasvit.Variant.__doc__.startswith("A named model; a call builds it")
    assert [*inspect.signature(kerasvit.Variant).parameters][:2] == ["name", "builder"]


def test_a_variant_that_is_not_exported_is_documented():
    own = kerasvit.Variant(None, kerasvit.MLPMixer, patch_size=4)
    width = inspect.signature(own).parameters["width"]
    assert width.default is inspect.Parameter.empty
    assert "VisionTransformer" not in own.__doc__
    assert own.__doc__.startswith("MLPMixer: MLP-Mixer.\n")
    assert "    width: C, size of a token.\n" in own.__doc__


@pytest.mark.long  # it compiles all that is imported
def test_without_docstrings_the_package_works():
    program = "import kerasvit; kerasvit.ViTS16.__doc__; print(kerasvit.ViTS16)"
    command = [sys.executable, "-OO", "-c", program]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ViTS16(")
