"""Calls of one model by several threads: the results of one, and no lost weights."""

import tempfile
import threading

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit import inspection
from kerasvit.backend.forward import outputs_of
from kerasvit.backend.keras_private import in_dtype
from kerasvit.backend.threads import seen_here, using
from tests.contract import to_numpy
from tests.once import rest_long_elsewhere
from tests.random_weights import randomised

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
RNG = np.random.default_rng(0)
X, OTHERS = RNG.normal(size=(2, 4, 16, 16, 3)).astype("float32")
Y = np.array([0, 1, 2, 0])


def vit(**kwargs):
    sizes = {"patch_size": 8, "width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 16}
    sizes |= {"image_size": 16, "num_classes": 3, **kwargs}
    return randomised(kerasvit.VisionTransformer(**sizes))


def beside(first, *others):
    """Calls a function while other threads call theirs; returns all of their results.

    The others are called at least once, and until the first has ended.
    """
    results, errors, done = [[] for _ in (first, *others)], [], threading.Event()

    def run(i, function):
        try:
            while not (results[i] and (i == 0 or done.is_set())):
                results[i].append(function())
        except Exception as error:
            errors.append(error)
        finally:
            if i == 0:
                done.set()

    threads = [
        threading.Thread(target=run, args=pair, daemon=True)
        for pair in enumerate((first, *others))
    ]
    [each.start() for each in threads]
    [each.join(120) for each in threads]
    assert not any(each.is_alive() for each in threads)
    assert not errors, errors
    return results


def check_all(results, right, tolerance=1e-5):
    for each in results:
        np.testing.assert_allclose(to_numpy(each), right, tolerance, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("size", [16, (None, None)])
def test_classify(dtype, size):
    model = vit(dtype=dtype, image_size=size)
    weights = [w.copy() for w in model.get_weights()]
    right = kerasvit.classify(model, X)

    def classify():
        return [kerasvit.classify(model, X) for _ in range(3)]

    for results in beside(classify, classify, classify):
        assert all(each == right for part in results for each in part)
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        kerasvit.save_pretrained(model, folder)
        return kerasvit.from_pretrained(folder).get_weights()


TOOLS = {
    "maps": lambda model: inspection.attention_maps(model, X).heat,
    "gradient": lambda model: inspection.Hessian(model, X, Y, LOSS) @ VECTOR,
    "features": lambda model: inspection.Activations(model, "mlp$")(X)[0],
    "kernel": lambda model: inspection.ntk(model, X, form="summed").matrix,
    "field": lambda model: inspection.effective_receptive_field(model, X).fields,
    "sharpness": lambda model: inspection.sharpness(model, X, Y, LOSS, rho=0.1),
    "embeddings": lambda model: inspection.embeddings(model).similarity,
    "resized": lambda model: to_numpy(kerasvit.resize(model, 16).weights[0]),
    "saved": lambda model: saved(model)[0],
}
VECTOR = RNG.normal(size=sum(w.size for w in vit().get_weights()))


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_long_elsewhere(TOOLS, 2))
def test_a_tool_beside_itself_and_predictions(name):
    model = vit(dtype="mixed_bfloat16")
    weights = [w.copy() for w in model.get_weights()]
    right, logits = TOOLS[name](model), model.predict(OTHERS, verbose=0)
    found, again, predicted, called = beside(
        lambda: TOOLS[name](model),
        lambda: TOOLS[name](model),
        lambda: model.predict(OTHERS, verbose=0),
        lambda: outputs_of(model, OTHERS),
    )
    check_all([*found, *again], right, 1e-3)
    check_all([*predicted, *called], logits)
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.slow
def test_classify_while_the_model_is_trained():
    model = vit()
    model.compile(keras.optimizers.SGD(0.0), LOSS)
    trainer = kerasvit.SAM(model, rho=0.05)
    trainer.compile(keras.optimizers.SGD(0.0), LOSS)
    right = kerasvit.classify(model, X)
    for each in (model, trainer):
        _, found = beside(
            lambda each=each: each.fit(X, Y, epochs=3, verbose=0).epoch,
            lambda: kerasvit.classify(model, X),
        )
        assert all(result == right for result in found)
    assert kerasvit.classify(model, X) == right


@pytest.mark.only_on("jax", reason="only there Keras takes the weights out")
def test_a_model_of_keras_without_its_weights(monkeypatch):
    monkeypatch.setattr("kerasvit.backend.forward.PATIENCE", 0.1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    kernel = model.weights[0]
    value, kernel._value = kernel._value, None
    with pytest.raises(ValueError, match="another thread has taken"):
        outputs_of(model, np.ones((1, 2), "float32"))
    monkeypatch.setattr("kerasvit.backend.forward.PATIENCE", 60.0)
    threading.Timer(0.1, lambda: setattr(kernel, "_value", value)).start()
    assert outputs_of(model, np.ones((1, 2), "float32")).shape == (1, 1)


def test_a_merge_waits_for_a_prediction():
    model = vit()
    kerasvit.add_lora(model, 1)
    merged = threading.Thread(target=kerasvit.merge_lora, args=[model])
    with using(kerasvit.features(model).variables):  # which are among the model's
        merged.start()
        merged.join(0.3)
        assert merged.is_alive()
        with using(model.variables, alone=True):  # of this thread: no one to wait for
            assert model.adapters
    merged.join(60)
    assert not merged.is_alive()
    assert model.adapters is None


def test_another_thread_sees_neither_policy_nor_method():
    layer = keras.layers.Dense(1, dtype="mixed_bfloat16", kernel_initializer="ones")
    layer.build((None, 1))
    x, seen = np.ones((1, 1), "float32"), []

    def look():
        policy = layer.dtype_policy
        seen.append((layer.compute_dtype, policy == keras.DTypePolicy(policy.name)))
        seen.append((keras.dtype_policies.serialize(policy), to_numpy(layer(x)).item()))

    def other():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    other()
    with (
        in_dtype(keras.Sequential([layer]), "float32"),
        seen_here([(layer, "call", lambda call: lambda x: 2 * call(x))]),
        seen_here([(layer, "call", lambda call: lambda x: 3 * call(x))]),
    ):
        other()
        assert layer.compute_dtype == "float32"
        assert to_numpy(layer(x)).item() == 6
    other()
    assert seen[:2] == seen[2:4] == seen[4:]
    assert "call" not in vars(layer)
    assert type(layer.dtype_policy) is keras.DTypePolicy
