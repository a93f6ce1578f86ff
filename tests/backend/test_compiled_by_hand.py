"""`torch.compile(model)` on PyTorch: one graph for each shape, the same results."""

import keras
import numpy as np
import pytest

import kerasvit
from tests.models.tiny import TINY, tiny
from tests.once import elsewhere, rest_long

if keras.backend.backend() != "torch":
    elsewhere("torch.compile compiles models of PyTorch")

import torch  # noqa: E402
from torch._dynamo.backends.registry import lookup_backend  # noqa: E402

SMALLER = {"BigTransfer": {"depths": [1]}}
FIRST = ["VisionTransformer", "MLPMixer", "BigTransfer"]
NAMES = [*FIRST, *sorted(TINY.keys() - FIRST)]


@pytest.fixture(autouse=True)
def compiler():
    torch.compiler.reset()  # it compiles a few graphs of one function


def compiled(model):
    """The model compiled as one graph, or with an error, and the list of graphs."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    return torch.compile(model, backend=backend, fullgraph=True), graphs


def images(model, count):
    shape = (count, *model.input_shape[1:])
    return torch.tensor(np.random.default_rng(0).normal(size=shape), dtype=torch.float)


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_long(NAMES, short=3))
def test_there_is_one_graph_for_each_shape_of_a_batch(name):
    model = tiny(name, **SMALLER.get(name, {}))
    call, graphs = compiled(model)
    counts = []
    with torch.no_grad():
        for count in (1, 8, 8, 1):
            x = images(model, count)
            assert_same(call(x), model(x))
            counts.append(len(graphs))
    assert counts == [1, 2, 2, 2]


@pytest.mark.slow
def test_models_of_one_class_and_their_changes_have_their_own_graphs():
    one, other = tiny("VisionTransformer"), tiny("VisionTransformer", num_heads=4)
    other.set_weights(one.get_weights())
    (call, graphs), (call_other, _) = compiled(one), compiled(other)
    x = images(one, 2)
    with torch.no_grad():
        assert_same(call(x), one(x))
        assert_same(call_other(x), other(x))
        assert abs(one(x) - other(x)).max() > 1e-3
        one.set_weights([1.1 * weight for weight in one.get_weights()])
        assert_same(call(x), one(x))
        assert len(graphs) == 1
        one.quantize("int8")
        assert_same(call(x), one(x))
        assert len(graphs) == 2


@pytest.mark.slow
def test_inference_may_be_part_of_a_module_and_has_gradients():
    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.head = model, torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.head(self.model(2 * x))

    model = tiny("MLPMixer")
    module = Head()
    call, graphs = compiled(module)
    x = images(model, 2)
    weights = [v.value for v in model.trainable_variables] + [module.head.weight]
    found, expected = (
        torch.autograd.grad(each(x).square().sum(), weights) for each in (call, module)
    )
    assert len(graphs) == 1
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_list_of_features_is_one_graph():
    model = kerasvit.features(tiny("VisionTransformer", depth=2), [0, 1])
    call, graphs = compiled(model)
    x = images(model, 2)
    with torch.no_grad():
        for found, expected in zip(call(x), model(x), strict=True):
            assert_same(found, expected)
    assert len(graphs) == 1
