"""`calibrate`, and what `classify` answers then."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit import evaluation
from tests.models.tiny import TINY
from tests.once import mainly_on_last, on_last_backend

random = np.random.default_rng(0)


def model(classes=4):
    keras.utils.set_random_seed(0)
    options = {**TINY["VisionTransformer"], "num_classes": classes}
    made = kerasvit.VisionTransformer(**options)
    made.record["label_names"] = [f"name {i}" for i in range(classes)]
    return made


def single(count, of, classes=4):
    labels = random.integers(classes, size=count)
    x = random.normal(size=(count, *of.input_shape[1:])) * 0.4
    x += 0.2 * (labels - 1.5)[:, None, None, None]
    return np.clip(x, -1, 1).astype("float32"), labels


def several(count, of, classes=4):
    labels = random.random((count, classes)) < 0.4
    x = random.normal(size=(count, *of.input_shape[1:])) * 0.4
    for i in range(classes):
        x[:, 2 * i : 2 * i + 2] += labels[:, i, None, None, None]
    return np.clip(x, -1, 1).astype("float32"), labels.astype("float32")


@pytest.fixture(scope="module")
def fitted():
    made = model()
    kerasvit.fit_head(made, single(200, made))
    return made


@pytest.fixture(scope="module")
def labelled():
    made = model()
    kerasvit.fit_head(made, several(200, made), task="multilabel")
    return made


def test_each_half_has_its_purpose(fitted):
    x, y = single(300, fitted)
    found = kerasvit.calibrate(fitted, (x, y))
    assert found.images == [150, 150] and len(found.scores) == 150
    logits = fitted.predict(x, verbose=0)
    first, second = kerasvit.Calibration.halves(300)
    assert not set(first) & set(second)
    known = logits[first], y[first]
    t = evaluation.fit_temperature(*known, deviation=0.5)
    assert found.temperature == pytest.approx(t, rel=1e-4)
    rule = evaluation.fit_conformal(logits[second] / t, y[second], 0.8)
    others = logits[first]
    np.testing.assert_array_equal(found.sets(others, 0.8), rule(others / t))


@on_last_backend
def test_few_images_do_not_make_a_good_model_worse(fitted):
    """The likelihood of a half without an error is largest at T = 0."""
    random, before, after = np.random.default_rng(0), [], []
    for _ in range(40):
        labels = random.integers(3, size=540)
        logits = random.normal(size=(540, 3)) + 6 * np.eye(3)[labels]
        found = kerasvit.Calibration.fit(fitted, logits[:40], labels[:40])
        assert found.temperature > 0.2
        for scale, losses in ((1, before), (found.temperature, after)):
            scores = logits[40:] / scale, labels[40:]
            losses.append(evaluation.negative_log_likelihood(*scores).mean())
    assert np.mean(after) < 2 * np.mean(before) and max(after) < 0.2
    rare = (random.random((60, 1)) < 0.1).astype(int)
    logits = np.where(rare == 1, 3.0, -3.0) + random.normal(size=(60, 1))
    t = evaluation.fit_label_temperatures(logits, rare)
    near = evaluation.fit_label_temperatures(logits, rare, deviation=0.5)
    assert abs(np.log(near[0])) < abs(np.log(t[0]))


def test_a_training_of_the_body_or_another_size_is_noticed(fitted, caplog):
    x, y = single(60, fitted)
    kerasvit.calibrate(fitted, (x, y))
    vector = next(w for w in fitted.trainable_weights if len(w.shape) == 1)
    kept = keras.ops.convert_to_numpy(vector)
    vector.assign(kept + 0.5)
    with pytest.raises(ValueError, match="the model has changed since"):
        kerasvit.classify(fitted, x[0], coverage=0.9)
    vector.assign(kept)
    kerasvit.classify(fitted, x[0], coverage=0.9)
    fitted.record.pop("calibration")


@pytest.mark.slow
def test_sets_have_the_right_class_at_the_stated_rate(fitted):
    kerasvit.calibrate(fitted, single(400, fitted))
    x, y = single(600, fitted)
    for coverage in (0.5, 0.9):
        sets = kerasvit.classify(fitted, x, coverage=coverage)
        right = [f"name {i}" in dict(found) for i, found in zip(y, sets)]
        assert np.mean(right) > coverage - 0.07
        assert all(len(found) >= 1 for found in sets)
        for found in sets:
            assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)
    sizes = [
        np.mean([*map(len, kerasvit.classify(fitted, x, coverage=c))])
        for c in (0.5, 0.9)
    ]
    assert sizes[0] < sizes[1]


def test_probabilities_are_calibrated(fitted):
    x, y = single(2, fitted)
    found = kerasvit.calibrate(fitted, single(100, fitted))
    logits = fitted.predict(x, verbose=0).astype("float64") / found.temperature
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for row, answer in zip(expected, kerasvit.classify(fitted, x, top=4)):
        assert [p for _, p in answer] == pytest.approx(sorted(row)[::-1], rel=1e-4)


def test_an_unlike_image_has_a_high_share(fitted):
    x, _ = single(40, fitted)
    kerasvit.calibrate(fitted, single(200, fitted))
    found = kerasvit.classify(fitted, x, ood=True)
    shares = [share for _, share in found]
    assert 0.2 < np.mean(shares) < 0.8 and all(0 <= s <= 1 for s in shares)
    best, share = kerasvit.classify(fitted, x[0], ood=True)
    assert share == pytest.approx(found[0][1], abs=0.02)
    assert [name for name, _ in best] == [name for name, _ in found[0][0]]


def test_several_labels_reach_their_thresholds(labelled):
    x, y = several(200, labelled)
    found = kerasvit.calibrate(labelled, (x, y))
    assert len(found.temperature) == len(found.thresholds) == 4
    shares = found.probabilities(labelled.predict(x, verbose=0))
    answers = kerasvit.classify(labelled, x)
    predicted = np.array([[f"name {i}" in dict(a) for i in range(4)] for a in answers])
    np.testing.assert_array_equal(predicted, shares >= found.thresholds)
    assert evaluation.f1_scores(predicted, y)["micro"] > 0.6
    strict = kerasvit.calibrate(labelled, (x, y), precision=0.95)
    assert all(a <= b for a, b in zip(found.thresholds, strict.thresholds))
    assert isinstance(kerasvit.classify(labelled, x[0], ood=True)[1], float)
    with pytest.raises(ValueError, match="sets are for models of one label"):
        kerasvit.classify(labelled, x, coverage=0.9)


@on_last_backend
def test_an_offset_corrects_probabilities_of_the_asymmetric_loss(labelled):
    """The loss (1 - p)^0 log p and p^4 log(1 - p), at its optimum for each share."""
    random, p = np.random.default_rng(0), np.linspace(1e-4, 1 - 1e-4, 4_000)
    true = random.beta(1, 4, size=(3_000, 4))
    has = (random.random(true.shape) < true).astype(int)
    losses = -np.log(p), -(p**4) * np.log(1 - p)
    grid = np.linspace(0.001, 0.999, 500)
    best = [p[np.argmin(x * losses[0] + (1 - x) * losses[1])] for x in grid]
    shown = np.interp(true, grid, best)
    logits = np.log(shown / (1 - shown))
    found = kerasvit.Calibration.fit(labelled, logits[:1_000], has[:1_000])
    after = found.probabilities(logits[1_000:])
    brier = [
        ((x - has[1_000:]) ** 2).mean() for x in (shown[1_000:], after, true[1_000:])
    ]
    assert brier[1] < brier[2] + 0.005 < brier[0] - 0.05
    scaled = evaluation.fit_label_scaling(logits[:1_000], has[:1_000])
    sums = scaled(logits[:1_000])
    residual = 1 / (1 + np.exp(-sums)) - has[:1_000]
    np.testing.assert_allclose(residual.mean(0), 0, atol=1e-4)  # of the offset
    np.testing.assert_allclose((residual * logits[:1_000]).mean(0), 0, atol=1e-3)
    rare = np.zeros((30, 2), int)
    rare[:, 1] = 1
    none = evaluation.fit_label_scaling(random.normal(size=(30, 2)), rare)
    assert none.scale.tolist() == [1, 1] and none.offset.tolist() == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", mainly_on_last(["fitted", "labelled"]))
def test_a_folder_keeps_the_calibration(name, request, tmp_path):
    made = request.getfixturevalue(name)
    x, y = (single if name == "fitted" else several)(60, made)
    found = kerasvit.calibrate(made, (x, y))
    kerasvit.save_pretrained(made, tmp_path)
    again = kerasvit.from_pretrained(tmp_path)
    assert kerasvit.Calibration(**again.record["calibration"]) == found
    text = "Calibrated on validation images"
    assert text in (tmp_path / "README.md").read_text()
    del again.record["calibration"]
    kerasvit.save_pretrained(again, tmp_path / "without")
    assert text not in (tmp_path / "without/README.md").read_text()
    found.save(tmp_path / "without")  # of which the weights are the same
    again = kerasvit.from_pretrained(tmp_path / "without")
    assert kerasvit.Calibration.of(again) == found
    with pytest.raises(ValueError, match="must be one of save_pretrained"):
        found.save(tmp_path / "none")
    expected = kerasvit.classify(made, x[:5], ood=True)
    for one, other in zip(kerasvit.classify(again, x[:5], ood=True), expected):
        assert [n for n, _ in one[0]] == [n for n, _ in other[0]]
        assert [p for _, p in one[0]] == pytest.approx([p for _, p in other[0]], 1e-3)
    half = kerasvit.from_pretrained(tmp_path, dtype="bfloat16")
    kerasvit.classify(half, x[:2], ood=True)  # the hash is that of rounded weights
    assert "calibration" not in kerasvit.from_pretrained(tmp_path, num_classes=7).record


@pytest.mark.slow
def test_another_head_is_not_calibrated(fitted, caplog):
    kerasvit.calibrate(fitted, single(40, fitted))
    other = keras.models.clone_model(fitted)
    other.set_weights([w + 0.1 for w in fitted.get_weights()])
    other.record["calibration"] = fitted.record["calibration"]
    with pytest.raises(ValueError, match="is of other outputs: the model has changed"):
        kerasvit.classify(other, single(1, fitted)[0], ood=True)
    best = kerasvit.classify(other, single(1, fitted)[0], top=4)
    assert "It is not used." in caplog.text and len(best[0]) == 4
    damaged = {"temperature": -1}, {"temperature": [1.0, "x", 1, 1]}, {"scores": 3}
    damaged += {"energies": []}, {"rank": -1}, {"images": [1]}, {"scores": None}
    for change in (*damaged, {"method": "lac"}, {"rank": None}, {"energies": ["x"]}):
        stored = {**fitted.record["calibration"], **change}
        fitted_again = keras.models.clone_model(fitted)
        fitted_again.record["calibration"] = stored
        with pytest.raises(ValueError, match="calibration .* is damaged"):
            kerasvit.classify(fitted_again, single(1, fitted)[0], coverage=0.5)
    del other.record["calibration"]
    kerasvit.classify(other, single(1, fitted)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: kerasvit.calibrate(m, single(19, m)), "needs 20 .* Received: 19"),
        (lambda m: kerasvit.calibrate(m, single(40, m), recall=0.9), "several labels"),
        (lambda m: kerasvit.calibrate(m, single(40, m), method="lac"), "`method` must"),
        (
            lambda m: kerasvit.calibrate(m, (np.zeros((40, 5, 6, 3)), np.zeros(40))),
            "`data` must have images of the shape that the model takes",
        ),
        (
            lambda m: kerasvit.calibrate(keras.Sequential([keras.Input((3,))]), ()),
            "must be a classifier of kerasvit",
        ),
        (
            lambda m: kerasvit.calibrate(model(classes=0), single(40, m)),
            "must be a classifier of kerasvit, with a head",
        ),
        (
            lambda m: kerasvit.calibrate(m, several(40, m)),
            "'problem_type'. = 'multi_label_classification' says it",
        ),
        (
            lambda m: kerasvit.classify(m, single(1, m)[0], coverage=0.99),
            "needs at least 100 images. Received: 20",
        ),
        (
            lambda m: kerasvit.classify(m, single(1, m)[0], coverage=90),
            "must be a share between 0 and 1",
        ),
        (
            lambda m: kerasvit.classify(model(), single(1, m)[0], ood=True),
            "`ood`: the model is not calibrated. Call",
        ),
    ],
)
def test_a_wrong_call_gets_a_sentence(fitted, call, message):
    kerasvit.calibrate(fitted, single(40, fitted))
    with pytest.raises(ValueError, match=message):
        call(fitted)
