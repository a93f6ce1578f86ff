"""Choice of ranges on known distributions, against longhand arithmetic."""

import numpy as np
import pytest

from kerasvit.quantization import Log2, Uniform, ranges
from tests.once import on_last_backend

RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=50_000).astype("float32")
LAPLACE = RNG.laplace(size=50_000).astype("float32")
# Of rows of 197 scores, as of a ViT: long tails.
SCORES = RNG.normal(size=(300, 197), scale=2)
SOFTMAX = (np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)).astype("float32")
GELU = (LAPLACE * (1 + np.tanh(0.8 * LAPLACE * (1 + 0.045 * LAPLACE**2))) / 2) * 1.5

pytestmark = on_last_backend


def error(quantizer, values):
    return float(np.square(quantizer.rounded(values)[0] - values).mean())


def test_min_max_covers_all_values():
    values = np.array([-0.5, 0.1, 7.0], "float32")
    quantizer = ranges.of_activations(values, "min_max", 8)
    assert quantizer.scale == np.float32(7.5 / 255)
    assert quantizer.zero == round(0.5 / (7.5 / 255)) == 17
    assert (quantizer.lowest, quantizer.highest) == (0, 255)


def test_the_percentile_leaves_out_one_value_of_ten_thousand():
    values = np.append(np.linspace(-1, 1, 20_000), [50, 60]).astype("float32")
    sizes = np.sort(np.abs(values))
    place = 0.9999 * (len(sizes) - 1)
    below = int(place)
    limit = sizes[below] + (place - below) * (sizes[below + 1] - sizes[below])
    quantizer = ranges.of_activations(values, "percentile", 8)
    assert quantizer.scale == pytest.approx((1 + limit) / 255, rel=1e-5)
    assert limit < 2


# Optimal ends, in units of σ and b, of arXiv 1810.05723, section 3.
@pytest.mark.parametrize(
    ("values", "bits", "optimal"),
    [(NORMAL, 3, 2.15), (NORMAL, 4, 2.55), (LAPLACE, 3, 3.89), (LAPLACE, 4, 5.03)],
)
def test_the_least_squared_error_is_that_of_the_known_optimum(values, bits, optimal):
    quantizer = ranges.of_activations(values, "mse", bits)
    assert quantizer.scale * (2**bits - 1) / 2 == pytest.approx(optimal, rel=0.1)
    largest = np.abs(values).max()
    for part in np.linspace(0.05, 1, 60):
        t = part * largest
        step = 2 * t / (2**bits - 1)
        half = 2 ** (bits - 1)
        rounded = np.clip(np.round(values / step), -half, half - 1) * step
        assert error(quantizer, values) < 1.02 * np.square(rounded - values).mean()


def relative_entropy(counts, end, levels):
    """As the pseudocode of TensorRT, bin by bin."""
    p = [float(c) for c in counts[:end]]
    p[-1] += sum(counts[end:])
    q = [0.0] * end
    for level in range(levels):
        group = [i for i in range(end) if i * levels // end == level]
        full = [i for i in group if counts[i]]
        for i in full:
            q[i] = sum(counts[j] for j in group) / len(full)
    total, inner = sum(p), sum(q)
    if any(a and not b for a, b in zip(p, q)):
        return np.inf
    return sum(a / total * np.log(a / total * inner / b) for a, b in zip(p, q) if a)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 6])
def test_the_least_relative_entropy(bits):
    values = np.append(np.abs(LAPLACE[:5_000]), [40.0]).astype("float32")
    counts, edges = np.histogram(values, 2048, (0, 40))
    counts[0] = counts[1]
    levels = 2**bits
    ends = range(2048, 127, -16)
    entropies = [relative_entropy(counts, end, levels) for end in ends]
    expected = edges[ends[int(np.argmin(entropies))]]
    assert ranges.entropy_limit(values, levels) == pytest.approx(expected)
    assert expected < 12
    quantizer = ranges.of_activations(values, "entropy", bits)
    assert quantizer.scale == pytest.approx(expected / (levels - 1), rel=1e-5)


def test_the_entropy_of_many_levels_and_of_zeros_takes_the_largest_value():
    assert ranges.entropy_limit(np.array([0.5, 3.0]), 2048) == 3
    assert ranges.entropy_limit(np.zeros(4), 4096) == 0


def test_kernels_have_a_scale_for_each_output():
    kernel = RNG.laplace(size=(200, 5)).astype("float32") * [1, 2, 3, 4, 0]
    largest = np.abs(kernel).max(0)
    quantizer = ranges.of_kernel(kernel, "kernel", "min_max", 4)
    np.testing.assert_allclose(quantizer.scale[0, :4], largest[:4] / 7, rtol=1e-6)
    finer = ranges.of_kernel(kernel, "kernel", "mse", 4)
    for i in range(4):
        errors = []
        for part in ranges.PARTS:
            scale = largest[i] * part / 7
            rounded = np.clip(np.round(kernel[:, i] / scale), -7, 7) * scale
            errors.append(np.square(rounded - kernel[:, i]).mean())
        best = largest[i] * ranges.PARTS[np.argmin(errors)] / 7
        assert finer.scale[0, i] == pytest.approx(best, rel=1e-6)
        assert best < largest[i] / 7


def test_depthwise_kernels_have_two_axes_of_outputs():
    kernel = RNG.normal(size=(3, 3, 4, 2)).astype("float32")
    quantizer = ranges.of_kernel(kernel, "depthwise_kernel", "min_max", 8)
    assert quantizer.scale.shape == (1, 1, 4, 2)


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_two_ranges_are_closer_than_one_on_long_tails(bits):
    """PTQ4ViT, section 3.2; for GELU, symmetric ranges are its one range."""
    softmax = SOFTMAX.ravel()
    ends = np.abs(GELU).max() * ranges.PARTS
    symmetric = ranges.best((Uniform.symmetric(end, bits) for end in ends), GELU)
    for values, one, two in (
        (
            softmax,
            ranges.of_activations(softmax, "mse", bits),
            ranges.of_softmax(softmax, bits),
        ),
        (GELU, symmetric, ranges.of_gelu(GELU, bits)),
    ):
        factor = two.large.scale / two.small.scale
        assert factor == 2 ** round(np.log2(factor))
        assert error(two, values) < error(one, values)
    least = min(
        error(type(two).of_gelu(float(GELU.min()), m, bits), GELU)
        for m in ranges.SHIFTS
    )
    assert error(two, GELU) == least


def test_powers_of_two_keep_the_small_weights_of_a_softmax():
    """FQ-ViT, section 4.2: uniform values of 4 bits are 0 for most weights."""
    one = ranges.of_activations(SOFTMAX.ravel(), "min_max", 4)
    assert (one.rounded(SOFTMAX)[0] == 0).mean() > 0.8
    assert (Log2(4).rounded(SOFTMAX)[0] == 0).mean() < 0.05


def test_a_power_of_two_for_each_channel():
    rows = NORMAL[:4_000].reshape(500, 8) * np.float32([8, 4, 2, 1, 0.5, 0.1, 8, 3])
    quantizer = ranges.with_factors(rows, 6)
    step = (rows.max() - rows.min()) / 63
    zero = round(-rows.min() / step)
    for c in range(8):
        errors = []
        for exponent in range(4):
            scale = step / 8 * 2**exponent
            q = np.clip(np.round(rows[:, c] / scale) + zero, 0, 63)
            errors.append(np.square((q - zero) * scale - rows[:, c]).mean())
        best = step / 8 * 2 ** int(np.argmin(errors))
        assert quantizer.scale[c] == pytest.approx(best, rel=1e-5)
    assert len(set(quantizer.scale.tolist())) == 4
    common = ranges.of_activations(rows.ravel(), "min_max", 6)
    assert error(quantizer, rows) < 0.7 * error(common, rows)
