"""Figures of measurements of features."""

import io

import numpy as np
import pytest

from kerasvit.inspection import (
    Alignment,
    Lesions,
    LogAmplitudes,
    NoiseAccuracy,
    ReceptiveFields,
    plot_alignment,
    plot_by_depth,
    plot_lesion,
    plot_log_amplitudes,
    plot_noise_accuracy,
    plot_receptive_fields,
)
from tests.once import on_last_backend

pytestmark = on_last_backend
NAMES = ["encoder_block_0", "encoder_block_1", "encoder_block_2"]
LINE = np.linspace(0, -3, 4)


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def drawn(figure):
    """Draws the figure and returns its axes."""
    figure.savefig(io.BytesIO(), format="png")
    return figure.axes


def test_amplitudes_are_drawn_by_frequency_and_by_depth():
    lines = [LINE * i for i in range(1, 4)]
    result = LogAmplitudes(NAMES, [np.arange(4) / 4] * 3, lines)
    by_frequency, by_depth = drawn(plot_log_amplitudes(result))
    assert "π per cell" in by_frequency.get_xlabel()
    for line, expected in zip(by_frequency.lines, lines):
        np.testing.assert_array_equal(line.get_ydata(), expected)
    np.testing.assert_array_equal(by_depth.lines[0].get_ydata(), [-3, -6, -9])
    assert ticks(by_depth.xaxis) == NAMES


def test_noise_is_drawn_at_the_middle_of_its_band_in_percent():
    result = NoiseAccuracy(((0.0, 0.2), (0.2, 0.4)), np.array([0.5, 0.25]), 0.75)
    (axis,) = drawn(plot_noise_accuracy({"ViT": result}))
    accuracy, clean = axis.lines
    np.testing.assert_allclose(accuracy.get_xdata(), [0.1, 0.3])
    np.testing.assert_allclose(accuracy.get_ydata(), [50, 25])
    np.testing.assert_allclose(clean.get_ydata(), 75)
    assert (axis.get_xlabel(), axis.get_ylabel()) == (
        *("frequency of the noise (π per pixel)", "accuracy (%)"),
    )


def test_models_of_other_layers_are_drawn_over_the_relative_depth():
    one = dict(zip(NAMES, [1.0, 2.0, 3.0]))
    other = {"stage_0": 5.0, "stage_1": 4.0}
    (axis,) = drawn(plot_by_depth({"a": one, "b": one}, "variance"))
    assert ticks(axis.xaxis) == NAMES
    figure = plot_by_depth({"a": one, "b": other}, "variance", log=True)
    (axis,) = drawn(figure)
    np.testing.assert_array_equal(axis.lines[0].get_xdata(), [0, 0.5, 1])
    np.testing.assert_array_equal(axis.lines[1].get_xdata(), [0, 1])
    assert (axis.get_ylabel(), axis.get_yscale()) == ("variance", "log")


def test_alignment_has_the_first_model_upwards():
    result = Alignment(NAMES, NAMES[:2], np.arange(6).reshape(3, 2) / 6)
    axis, bar = drawn(plot_alignment(result))
    assert (ticks(axis.xaxis), ticks(axis.yaxis)) == (NAMES[:2], NAMES)
    np.testing.assert_array_equal(axis.images[0].get_array(), result.values)
    assert axis.images[0].origin == "lower"
    assert bar.get_ylabel().startswith("CKA")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 6])
def test_every_receptive_field_is_drawn_with_its_side(count):
    fields = np.random.default_rng(0).uniform(size=(count, 8, 8))
    result = ReceptiveFields([f"layer_{i}" for i in range(count)], fields)
    axes = drawn(plot_receptive_fields(result))
    titles = [axis.get_title() for axis in axes if axis.images]
    assert titles == [
        f"layer_{i}\nside {side:.0f} px" for i, side in enumerate(result.sides())
    ]


def test_heads_are_drawn_as_a_map_and_blocks_as_bars():
    blocks = Lesions(0.8, dict(zip(NAMES, [0.2, 0.4, 0.6])))
    (axis,) = drawn(plot_lesion(blocks))
    np.testing.assert_allclose([bar.get_height() for bar in axis.patches], [20, 40, 60])
    np.testing.assert_allclose(axis.lines[0].get_ydata(), 80)
    heads = {"a/attention/head_0": 0.7, "b/attention/head_0": 0.8}
    heads["b/attention/head_1"] = 0.5
    axis, _ = drawn(plot_lesion(Lesions(0.8, heads)))
    expected = np.array([[-10, np.nan], [0, -30]])
    np.testing.assert_allclose(axis.images[0].get_array().filled(np.nan), expected)
    assert ticks(axis.yaxis) == ["a/attention", "b/attention"]


def test_long_models_have_a_part_of_their_names():
    values = {f"block_{i}": float(i) for i in range(100)}
    (axis,) = drawn(plot_by_depth({"a": values}, "norm"))
    assert ticks(axis.xaxis)[:2] == ["block_0", "block_3"]


@pytest.mark.parametrize("count", [0, 7])
def test_no_models_or_too_many_for_the_colours_are_an_error(count):
    results = {str(i): {"block": 1.0} for i in range(count)}
    with pytest.raises(ValueError, match=f"1 to 6 models. Received: {count}"):
        plot_by_depth(results, "norm")
