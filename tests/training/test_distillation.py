"""Distillation, compared with the formulas in NumPy."""

import functools

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.training import GSAM, SAM, DistillationTrainer, LookSAM
from tests.once import long_elsewhere, on_last_backend, rest_long_elsewhere
from tests.trainers import COMPILED, assert_same, batch, compiled, small, values

RATE, RHO = 0.1, 0.3
CLASSES = 3
backend = keras.backend.backend()


def images(n=6):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, 5)).astype("float32"), rng.integers(CLASSES, size=n)


def linear(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((5,)), layers.Dense(CLASSES, use_bias=False, name="head")]
    )


def with_token(seed=0):
    """Two linear heads whose average is the output."""
    keras.utils.set_random_seed(seed)
    x = keras.Input((5,))
    heads = [layers.Dense(CLASSES, use_bias=False, name=name)(x) for name in "ab"]
    return keras.Model(x, layers.Average()(heads))


STUDENTS = {"one head": linear, "two heads": with_token}


class Counting(keras.Model):
    """A teacher that notes its calls, and counts those of a compiled step too."""

    def __init__(self, events):
        super().__init__()
        self.net, self.note = linear(5), functools.partial(list.append, events)
        self.counter = self.add_weight(
            shape=(), initializer="zeros", trainable=False, dtype="int32"
        )
        self(np.zeros((1, 5), "float32"))
        self.counter.assign(0)
        events.clear()

    def call(self, inputs, training=None):
        self.note("training" if training else "teacher")
        self.counter.assign_add(1)
        return self.net(inputs)


class Noting(layers.Layer):
    """A layer of a student that notes its calls."""

    def __init__(self, events):
        super().__init__()
        self.note = functools.partial(list.append, events)  # Keras copies lists

    def call(self, inputs):
        self.note("student")
        return inputs


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def longhand(weights, x, y, teacher, distill, alpha, tau, smoothing=0.0, share=1.0):
    """Loss and gradients of a student of one or two linear heads, in float64."""
    first, second = x @ weights[0], x @ weights[-1]
    z = x @ teacher
    labels = np.eye(CLASSES)[y] * (1 - smoothing) + smoothing / CLASSES
    share = share * np.ones(len(x))
    by_labels = -np.sum(labels * np.log(softmax(first)), -1)
    slopes = [(1 - alpha) * (softmax(first) - labels)]
    if distill == "hard":
        target = np.eye(CLASSES)[z.argmax(-1)]
        by_teacher = -np.sum(target * np.log(softmax(second)), -1)
        slopes.append(alpha * (softmax(second) - target))
    else:
        t, s = softmax(z / tau), softmax(second / tau)
        by_teacher = tau**2 * np.sum(t * np.log(t / s), -1)
        slopes.append(alpha * tau * (s - t))
    loss = np.mean(share * ((1 - alpha) * by_labels + alpha * by_teacher))
    gradients = [x.T @ (share[:, None] * slope) / len(x) for slope in slopes]
    return loss, gradients if len(weights) == 2 else [sum(gradients)]


def uphill(weights, gradients):
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradients))
    return [w + RHO * g / norm for w, g in zip(weights, gradients, strict=True)]


def crossentropy(smoothing=0.0):
    if smoothing:
        return keras.losses.CategoricalCrossentropy(True, label_smoothing=smoothing)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def arrays(model):
    return [np.asarray(w, "float64") for w in model.get_weights()]


@pytest.mark.slow
@pytest.mark.parametrize("student", STUDENTS)
@pytest.mark.parametrize(
    ("distill", "alpha", "tau", "smoothing"),
    [
        ("hard", 0.5, 1.0, 0.0),
        ("hard", 0.3, 3.0, 0.1),
        ("soft", 0.1, 3.0, 0.0),
        ("soft", 1.0, 1.0, 0.2),
    ],
)
def test_loss_and_sam_step_are_the_formulas(student, distill, alpha, tau, smoothing):
    (x, y), model, teacher = images(), STUDENTS[student](), linear(5)
    trainer = DistillationTrainer(
        model, teacher, distill, alpha=alpha, tau=tau, rho=RHO
    )
    compiled(trainer, loss=crossentropy(smoothing))
    before, z = arrays(model), arrays(teacher)[0]
    share = np.linspace(0.5, 1.5, len(x)).astype("float32")
    targets = np.eye(CLASSES, dtype="float32")[y] if smoothing else y
    logs = trainer.train_on_batch(x, targets, share, return_dict=True)

    facts = (x, y, z, distill, alpha, tau, smoothing, share)
    loss, first = longhand(before, *facts)
    np.testing.assert_allclose(logs["loss"], loss, rtol=1e-5)
    _, second = longhand(uphill(before, first), *facts)
    expected = [w - RATE * g for w, g in zip(before, second, strict=True)]
    assert_same(arrays(model), expected)
    assert_same(arrays(teacher), [z], 0)


def test_probabilities_of_a_teacher_are_tempered_as_its_logits():
    (x, y), teacher = images(), linear(5)
    logs = []
    for each in (teacher, keras.Sequential([teacher, layers.Softmax()])):
        trainer = compiled(DistillationTrainer(linear(), each, "soft", tau=4.0))
        assert trainer.probabilities == (each is not teacher)
        trainer.compile(loss=crossentropy())
        logs.append(trainer.train_on_batch(x, y))
    np.testing.assert_allclose(*logs, rtol=1e-5)


@pytest.mark.parametrize("distill", ["hard", "soft"])
def test_micro_batches_and_another_trainer_are_the_formulas(distill):
    """GSAM with alpha 0 is SAM: a trainer around a DistillationTrainer."""
    (x, y), model, teacher = images(), linear(), linear(5)
    inner = DistillationTrainer(model, teacher, distill)
    outer = GSAM(inner, RHO, RHO, 0.0, lr_max=1.0, lr_min=0.0, micro_batches=2)
    compiled(outer, loss=crossentropy())
    before, z = arrays(model), arrays(teacher)[0]
    outer.train_on_batch(x, y)
    seconds = []
    for part in (slice(0, 3), slice(3, 6)):
        facts = (x[part], y[part], z, distill, 0.5, 3.0)
        _, first = longhand(before, *facts)
        seconds.append(longhand(uphill(before, first), *facts)[1][0])
    assert_same(arrays(model), [before[0] - RATE * np.mean(seconds, axis=0)])


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
def test_the_teacher_is_called_once_and_before_the_passes(parts):
    (x, y), events = images(), []
    teacher = Counting(events)
    model = keras.Sequential([keras.Input((5,)), Noting(events), layers.Dense(CLASSES)])
    trainer = DistillationTrainer(
        model, teacher, probabilities=False, rho=RHO, micro_batches=parts
    )
    compiled(trainer, loss=crossentropy())
    trainer.train_on_batch(x, y)
    events.clear()
    trainer.train_on_batch(x, y)
    # JAX computes parts in a loop, which it traces for the shapes and for the values.
    assert events == ["teacher", "student", "student"] * parts
    events.clear()
    trainer.evaluate(x, y, verbose=0)
    trainer.predict(x, verbose=0)
    assert "teacher" not in events


@pytest.mark.slow
@pytest.mark.parametrize("around", [None, SAM, LookSAM])
def test_a_compiled_step_calls_the_teacher_once(around):
    (x, y), events = images(), []
    teacher = Counting(events)
    trainer = DistillationTrainer(
        linear(), teacher, probabilities=False, rho=0.0 if around else RHO
    )
    if around:
        trainer = around(trainer, RHO)
    trainer = compiled(trainer, loss=crossentropy(), **COMPILED)
    trainer.fit(np.tile(x, (4, 1)), np.tile(y, 4), batch_size=len(x), verbose=0)
    if backend == "jax":  # a call writes no variable: one in each traced step
        assert len(events) == (2 if around is LookSAM else 1)
    else:
        assert int(teacher.counter) == 4


@pytest.mark.parametrize("student", STUDENTS)
def test_the_teacher_is_in_no_list_of_variables_and_in_no_file(student, tmp_path):
    (x, y), teacher = images(), Counting([])
    model = STUDENTS[student]()
    trainer = DistillationTrainer(model, teacher, probabilities=False)
    trainer = compiled(SAM(trainer, RHO), loss=crossentropy())
    trainer.train_on_batch(x, y)
    ids = {id(variable) for variable in model.variables}
    assert {id(variable) for variable in trainer.variables} == ids
    assert {id(variable) for variable in trainer.trainable_variables} == ids
    assert not any(layer is teacher for layer in trainer._flatten_layers())
    trainer.save(tmp_path / "trainer.keras")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    np.testing.assert_allclose(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6
    )
    with pytest.raises(ValueError, match="has no teacher"):
        loaded.train_on_batch(x, y)
    loaded.model.set_teacher(teacher)
    assert_same(
        [loaded.train_on_batch(x, y)], [trainer.train_on_batch(x, y)], tolerance=1e-5
    )


def test_evaluation_is_that_of_the_average_by_the_labels():
    (x, y), model = images(), with_token()
    trainer = compiled(
        DistillationTrainer(model, linear(5)),
        loss=crossentropy(),
        metrics=["accuracy"],
    )
    plain = with_token()
    plain.set_weights(model.get_weights())
    plain.compile(loss=crossentropy(), metrics=["accuracy"], run_eagerly=True)
    expected = plain.evaluate(x, y, verbose=0, return_dict=True)
    found = trainer.evaluate(x, y, verbose=0, return_dict=True)
    assert found == pytest.approx(expected, rel=1e-5)
    # The metrics of a step are those of the average before the step.
    logs = trainer.train_on_batch(x, y, return_dict=True)
    assert logs["accuracy"] == pytest.approx(expected["accuracy"])


def test_added_losses_keep_their_weight():
    x, y = images()
    losses = []
    for penalty in (None, keras.regularizers.L2(0.5)):
        model = linear()
        dense = layers.Dense(CLASSES, use_bias=False, kernel_regularizer=penalty)
        student = keras.Sequential([keras.Input((5,)), dense])
        student.set_weights(model.get_weights())
        trainer = DistillationTrainer(student, linear(5), alpha=0.9)
        losses.append(compiled(trainer, loss=crossentropy()).train_on_batch(x, y))
    added = 0.5 * np.sum(np.square(model.get_weights()[0]))
    np.testing.assert_allclose(losses[1] - losses[0], added, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", rest_long_elsewhere(["float32", "mixed_bfloat16", "mixed_float16"])
)
def test_a_compiled_step_equals_an_eager_one(policy):
    (x, y), options = images(), {"dtype": policy}
    results = []
    for mode in ({}, COMPILED):
        model, teacher = small(**options), small(seed=7, **options)
        trainer = DistillationTrainer(model, teacher, "soft", rho=0.05)
        compiled(trainer, loss=crossentropy(), **mode)
        for _ in range(3):
            trainer.train_on_batch(x, y)
        results.append(values(model))
    low = policy != "float32"
    assert_same(*results, 1e-2 if low else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sam", pytest.param("looksam", marks=long_elsewhere)])
def test_a_resumed_training_is_the_uninterrupted_one(name, tmp_path):
    x, y = images()

    def trainer(seed):
        model = small(layers.Dropout(0.5, seed=seed), seed=seed)
        trainer = DistillationTrainer(model, small(seed=7))
        trainer = {"sam": SAM, "looksam": LookSAM}[name](trainer, RHO)
        return compiled(trainer, keras.optimizers.Adam(0.01), crossentropy())

    straight, resumed = trainer(1), trainer(2)
    for i in range(5):
        straight.train_on_batch(x, y)
        if i == 1:
            straight.save_weights(tmp_path / "state.weights.h5")
    resumed.load_weights(tmp_path / "state.weights.h5")
    for _ in range(3):
        resumed.train_on_batch(x, y)
    assert_same(values(resumed.model), values(straight.model))


class Subclass(keras.Model):
    """Its shapes are not known without a call."""

    def __init__(self, classes):
        super().__init__()
        self.dense = layers.Dense(classes)
        self(np.zeros((1, 5), "float32"))

    def call(self, inputs):
        return self.dense(inputs)


def bad(**changes):
    model = changes.pop("model", None) or linear()
    teacher = changes.pop("teacher", None) or linear(5)
    return DistillationTrainer(model, teacher, **changes)


@on_last_backend
def test_wrong_arguments_are_explained():
    cases = {
        "must be one of 'hard', 'soft'": {"distill": "medium"},
        "`alpha` must be a number between 0 and 1": {"alpha": 1.1},
        "`tau` must be a finite number > 0": {"tau": 0.0},
        "`rho` must be": {"rho": -1.0},
        "a keras.Model with weights": {"teacher": "resnet"},
        "a teacher with 4 outputs and a student with 3": {
            "teacher": keras.Sequential([keras.Input((5,)), layers.Dense(4)])
        },
        r"take the inputs of the student. Received: inputs \(None, 4\)": {
            "teacher": keras.Sequential([keras.Input((4,)), layers.Dense(CLASSES)])
        },
        "without `distillation_heads`": {"model": _two_outputs()},
    }
    for message, changes in cases.items():
        with pytest.raises(ValueError, match=message):
            bad(**changes)
    model = linear()
    with pytest.raises(ValueError, match="its own weights"):
        DistillationTrainer(model, keras.Sequential([keras.Input((5,)), model]))
    inner = bad(rho=0.1)
    with pytest.raises(ValueError, match="settings of its own"):
        SAM(inner, 0.1)
    with pytest.raises(ValueError, match="has its own train_step|around a SAM"):
        DistillationTrainer(SAM(linear(), 0.1), linear(5))
    one = [keras.Sequential([keras.Input((5,)), layers.Dense(1)]) for _ in range(2)]
    with pytest.raises(ValueError, match="must have two classes or more"):
        DistillationTrainer(*one)
    teacher = linear(5)
    teacher.record = {"problem_type": "multi_label_classification"}
    with pytest.raises(ValueError, match="one label per image.*'multi_label_"):
        DistillationTrainer(linear(), teacher)


def _two_outputs():
    x = keras.Input((5,))
    return keras.Model(x, {name: layers.Dense(CLASSES)(x) for name in "ab"})


def test_a_subclass_says_what_it_returns_and_its_classes_are_checked():
    x, y = images()
    with pytest.raises(ValueError, match="`probabilities` must be True or False"):
        DistillationTrainer(Subclass(CLASSES), Subclass(4))
    trainer = DistillationTrainer(Subclass(CLASSES), Subclass(4), probabilities=False)
    with pytest.raises(ValueError, match="a teacher with 4 outputs"):
        compiled(trainer, loss=crossentropy()).train_on_batch(x, y)


def test_settings_survive_a_file(tmp_path):
    trainer = DistillationTrainer(
        linear(), linear(5), "soft", alpha=0.2, tau=2, rho=0.1
    )
    trainer.save(tmp_path / "trainer.keras")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    assert loaded.settings() == trainer.settings()
    assert loaded.teacher is None and "distill='soft'" in repr(loaded)


def test_regression_losses_are_weighted_too():
    x, y = batch()
    logs = []
    for alpha in (0.0, 0.5, 1.0):
        trainer = DistillationTrainer(linear(), linear(5), alpha=alpha)
        logs.append(compiled(trainer).train_on_batch(x, y))
    np.testing.assert_allclose(logs[1], (logs[0] + logs[2]) / 2, rtol=1e-5)
    assert logs[0] == pytest.approx(
        np.mean(np.square(ops.convert_to_numpy(linear()(x)) - y)), rel=1e-5
    )
