"""Frequencies of feature maps, and accuracy under noise of one frequency band."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.inspection import (
    Activations,
    frequency_noise_accuracy,
    relative_log_amplitudes,
)
from kerasvit.inspection.features.fourier import band_noise
from tests.models.tiny import tiny
from tests.once import mainly_on_last, on_last_backend

X = np.random.default_rng(0).normal(size=(3, 16, 16, 3)).astype("float32")
Y = np.array([0, 2, 1])


def as_in_the_notebook(maps):
    """Longhand: roll frequency 0 to the middle, take the second half of the diagonal.

    `maps` are (batch, h, h, channels).
    """
    maps = maps.transpose(0, 3, 1, 2).astype("float64")
    logs = np.log(abs(np.fft.fft2(maps)) + 1e-6)
    half = maps.shape[2] // 2
    mean = np.roll(logs, (half, half), axis=(2, 3)).mean(axis=(0, 1))
    diagonal = np.diag(mean)[half:]
    return diagonal - diagonal[0]


@pytest.mark.parametrize(
    "name",
    mainly_on_last(["VisionTransformer", "MLPMixer", "AlterNet", "PreActResNet"]),
)
def test_amplitudes_are_those_of_the_notebook(name):
    model = tiny(name)
    found = relative_log_amplitudes(model, X, batch_size=2)
    (maps,) = Activations(model).maps(X)
    assert found.names == Activations(model).names
    for each, amplitudes, frequencies in zip(
        maps, found.amplitudes, found.frequencies, strict=True
    ):
        expected = as_in_the_notebook(each)
        np.testing.assert_allclose(amplitudes, expected, rtol=1e-4, atol=1e-4)
        side = each.shape[1]
        np.testing.assert_allclose(frequencies, 2 * np.arange(len(expected)) / side)
    np.testing.assert_array_equal(found.high, [a[-1] for a in found.amplitudes])


def of_maps(maps):
    """Amplitudes of given maps, by a model that returns its images."""
    image = keras.Input(maps.shape[1:])
    model = keras.Model(image, layers.Activation("linear", name="map")(image))
    return relative_log_amplitudes(Activations(model, "map$"), maps)


@on_last_backend
def test_odd_maps_have_their_highest_frequency_too():
    maps = np.random.default_rng(1).normal(size=(2, 7, 7, 3)).astype("float32")
    found = of_maps(maps)
    np.testing.assert_allclose(found.frequencies[0], [0, 2 / 7, 4 / 7, 6 / 7])
    np.testing.assert_allclose(
        found.amplitudes[0], as_in_the_notebook(maps), rtol=1e-4, atol=1e-4
    )


@on_last_backend
def test_a_wave_has_its_amplitude_at_its_frequency():
    rows, columns = np.mgrid[:8, :16]
    # Two cells of eight and four of sixteen: half of π in both directions.
    wave = np.cos(2 * np.pi * (2 * rows / 8 + 4 * columns / 16))
    found = of_maps((1 + 0.1 * wave)[None, ..., None].astype("float32"))
    np.testing.assert_allclose(found.frequencies[0], [0, 0.25, 0.5, 0.75])
    assert np.argmax(found.amplitudes[0][1:]) == 1
    np.testing.assert_allclose(found.amplitudes[0][2], np.log(0.05), rtol=1e-4)


@on_last_backend
def test_maps_without_a_frequency_are_an_error():
    with pytest.raises(ValueError, match="3 cells.*2 × 2 of 'stage_1_block_0'"):
        relative_log_amplitudes(tiny("SwinTransformer"), X)


def mask(low, high, sides=(16, 16)):
    down, across = (2 * np.fft.fftfreq(side) for side in sides)
    radius = np.sqrt(down[:, None] ** 2 + across[None, :] ** 2)
    return (low <= radius) & (radius < high)


@on_last_backend
def test_noise_has_the_frequencies_of_its_band_and_unit_power():
    noise = band_noise((16, 16, 3), mask(0.3, 0.5), (0, 7))
    power = abs(np.fft.fft2(noise, axes=(0, 1))).max(-1)
    assert (power[mask(0.3, 0.5)] > 1e-3).all()
    assert power[~mask(0.3, 0.5)].max() < 1e-10
    np.testing.assert_allclose(np.mean(noise**2), 1)


@on_last_backend
def test_noise_is_that_of_the_masked_spectrum():
    delta = np.random.default_rng((0, 7)).standard_normal((16, 16, 3))
    spectrum = np.fft.fft2(delta, axes=(0, 1)) * mask(0.3, 0.5)[..., None]
    expected = np.fft.ifft2(spectrum, axes=(0, 1))
    assert abs(expected.imag).max() < 1e-12
    expected = expected.real / np.sqrt(np.mean(expected.real**2))
    found = band_noise((16, 16, 3), mask(0.3, 0.5), (0, 7))
    np.testing.assert_allclose(found, expected)


def linear():
    image = keras.Input((16, 16, 3))
    model = keras.Model(image, layers.Dense(3)(layers.Flatten()(image)))
    rng = np.random.default_rng(0)
    model.set_weights([rng.standard_normal((768, 3)), np.zeros(3)])
    return model


def test_accuracy_under_noise_is_that_of_the_noisy_images():
    model = linear()
    kernel = model.get_weights()[0]
    x = np.random.default_rng(3).normal(size=(20, 16, 16, 3)).astype("float32")
    y = (x.reshape(20, -1) @ kernel).argmax(-1)
    bands = [(0, 0.2), (0.5, 0.7), (1.2, 1.41)]
    found = frequency_noise_accuracy(model, x, y, 1.5, bands=bands, batch_size=7)
    assert found.clean == 1
    assert found.bands == tuple(bands)
    for band, accuracy in zip(bands, found.accuracies, strict=True):
        noise = [band_noise((16, 16, 3), mask(*band), (0, i)) for i in range(20)]
        noisy = (x + 1.5 * np.stack(noise)).reshape(20, -1)
        predicted = (noisy @ kernel).argmax(-1)
        np.testing.assert_allclose(accuracy, np.mean(predicted == y))
    assert 0 < found.accuracies.min() < found.accuracies.max() < 1


def low_pass():
    """The class is the sign of the mean of the image."""
    image = keras.Input((16, 16, 3))
    mean = ops.mean(image, axis=(1, 2, 3))[:, None]
    return keras.Model(image, ops.concatenate([-mean, mean], axis=-1))


@on_last_backend
def test_a_low_pass_filter_is_robust_to_high_frequencies_alone():
    x = X - X.mean((1, 2, 3), keepdims=True)
    x = np.concatenate([x + 0.02, x - 0.02])
    y = np.array([1, 1, 1, 0, 0, 0])
    found = frequency_noise_accuracy(low_pass(), x, y, 2.0, seed=1)
    assert found.clean == 1
    assert found.accuracies[0] < 1
    np.testing.assert_array_equal(found.accuracies[2:], 1)


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"y": Y[:2]}, r"each of the 3 images.*shape \(2,\)"),
        ({"y": np.eye(3)[Y]}, r"argmax"),
        ({"y": Y + 1}, r"in \[0, 2\], for 3 classes.*from 1 to 3"),
        ({"x": X[:, :8]}, r"images \(16, 16, 3\)"),
        ({"x": X * np.nan}, "outputs of the model must be finite"),
        ({"rms": 0}, "`rms` must be"),
        ({"bands": [0.5]}, r"`bands` must be pairs .low, high.*Received: .0.5"),
        ({"bands": []}, "`bands` must be pairs"),
        ({"bands": [(0.51, 0.515)]}, r"contain a frequency.*\(0.51, 0.515\)"),
    ],
)
def test_wrong_arguments_of_the_noise_are_errors(changes, expected):
    arguments = {"x": X, "y": Y, "rms": 1.0, **changes}
    with pytest.raises(ValueError, match=expected):
        frequency_noise_accuracy(tiny("MLPMixer"), **arguments)


@on_last_backend
def test_images_may_be_a_tensor():
    model = tiny("MLPMixer")
    found, expected = (
        frequency_noise_accuracy(model, x, Y, 3.0)
        for x in (ops.convert_to_tensor(X), X)
    )
    np.testing.assert_array_equal(found.accuracies, expected.accuracies)


@on_last_backend
def test_a_model_without_classes_is_an_error():
    with pytest.raises(ValueError, match="logits or probabilities"):
        model = tiny("MLPMixer")
        frequency_noise_accuracy(
            keras.Model(model.input, model.get_layer("stem").output), X, Y, 1.0
        )
