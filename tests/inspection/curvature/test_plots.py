"""Plots of curvature: what is drawn, with which labels and scales."""

import numpy as np
import pytest

from kerasvit.inspection import (
    NTK,
    BatchSpectrum,
    Landscape,
    plot_batch_spectrum,
    plot_landscape,
    plot_ntk,
    plot_spectral_density,
    spectral_density,
)
from tests.once import on_last_backend

pytestmark = on_last_backend


def density(scale=1):
    return spectral_density(
        np.diag(scale * np.linspace(-1, 4, 30)), starts=2, sigma=0.1
    )


def plane(scale=1.0, points=5):
    a, b = np.linspace(-1, 1, points), np.linspace(-2, 2, 7)
    return Landscape(scale * (a[:, None] ** 2 + 0.1 * b**2 + 0.5), (a, b))


def kernel(values):
    values = np.array(values)
    return NTK(np.diag(values), values, values[-1] / values[0])


def spectrum(values):
    values = np.array(values)
    return BatchSpectrum(values, 0 * values, np.ones(len(values), bool))


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def png(figure, path):
    figure.savefig(path / "plot.png")
    return (path / "plot.png").stat().st_size


def test_densities(tmp_path):
    found = {"ViT": density(), "ViT-SAM": density(0.1)}
    figure = plot_spectral_density(found)
    (axes,) = figure.axes
    for line, each in zip(axes.lines, found.values()):
        np.testing.assert_array_equal(line.get_ydata(), each.density)
    assert axes.get_yscale() == "log" and labels(axes) == [*found]
    assert "Eigenvalue" in axes.get_xlabel() and "share" in axes.get_ylabel()
    assert axes.lines[0].get_linestyle() != axes.lines[1].get_linestyle()
    assert png(figure, tmp_path) > 5000
    assert plot_spectral_density(density()).axes[0].get_legend() is None


@pytest.mark.slow
@pytest.mark.parametrize("log", [False, True])
def test_planes_have_one_scale_of_colours(log, tmp_path):
    named = {"plain": plane(3), "SAM": plane()}
    figure = plot_landscape(named, log=log)
    plain, sam, bar = figure.axes
    images = [axes.collections[0] for axes in (plain, sam)]
    lowest, highest = named["SAM"].loss.min(), named["plain"].loss.max()
    assert {image.get_clim() for image in images} == {(lowest, highest)}
    # The first direction is horizontal.
    np.testing.assert_allclose(images[1].get_array(), named["SAM"].loss.T)
    assert images[0].get_array().shape == (7, 5)
    assert images[0].get_cmap().name == "cividis"
    levels = [axes.collections[1].levels for axes in (plain, sam)]
    np.testing.assert_array_equal(*levels)
    assert [axes.get_title() for axes in (plain, sam)] == [*named]
    assert "first direction" in sam.get_xlabel() and bar.get_ylabel() == "Loss"
    assert png(figure, tmp_path) > 5000


def test_curves():
    a = np.linspace(-1, 1, 5)
    named = {"plain": Landscape(3 * a**2, (a,)), "SAM": Landscape(a**2, (a,))}
    (axes,) = plot_landscape(named).axes
    for line, each in zip(axes.lines, named.values()):
        np.testing.assert_array_equal(line.get_xydata().T, [a, each.loss])
    assert labels(axes) == [*named] and axes.get_ylabel() == "Loss"


def test_a_flat_plane_is_drawn(tmp_path):
    flat = Landscape(np.ones((3, 3)), (np.arange(3.0), np.arange(3.0)))
    assert png(plot_landscape(flat), tmp_path) > 1000


def test_a_plane_of_one_row_is_drawn(tmp_path):
    row = Landscape(np.ones((1, 3)) * [1, 2, 3], (np.zeros(1), np.arange(3.0)))
    assert png(plot_landscape(row), tmp_path) > 1000


def test_kernels(tmp_path):
    found = {"ViT": kernel([0.5, 2, 8]), "Mixer": kernel([-1e-9, 1, 4])}
    found["Mixer"] = NTK(found["Mixer"].matrix, found["Mixer"].eigenvalues, np.inf)
    figure = plot_ntk(found)
    (axes,) = figure.axes
    np.testing.assert_allclose(
        axes.lines[0].get_xydata(), [[1, 1], [2, 0.25], [3, 1 / 16]]
    )
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[1, 1], [2, 0.25]])
    assert labels(axes) == ["ViT: κ = 16", "Mixer: κ = inf"]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert png(figure, tmp_path) > 5000
    assert labels(plot_ntk(found["ViT"]).axes[0]) == ["κ = 16"]


def test_batch_spectra(tmp_path):
    found = {
        "ViT": spectrum([[5.0, -2], [4, -1]]),
        "ResNet": spectrum([[9.0, 8], [7, 6]]),
    }
    figure = plot_batch_spectrum(found)
    negative, positive = figure.axes
    assert labels(positive) == ["ViT: 50.0 % negative", "ResNet: 0.0 % negative"]
    areas = [
        [
            np.sum(line.get_ydata()[1:] * np.diff(np.log10(line.get_xdata())))
            for line in axes.lines
        ]
        for axes in (negative, positive)
    ]
    np.testing.assert_allclose(areas, [[0.5, 0], [0.5, 1]], atol=1e-3)
    peak = positive.lines[1].get_ydata().argmax()
    np.testing.assert_allclose(positive.lines[1].get_xdata()[peak], 7.4, atol=0.6)
    assert "negative" in negative.get_xlabel() and "positive" in positive.get_xlabel()
    assert negative.get_ylim() == positive.get_ylim() and negative.xaxis_inverted()
    assert png(figure, tmp_path) > 5000


def test_a_batch_spectrum_of_zeros_is_drawn(tmp_path):
    assert png(plot_batch_spectrum(spectrum([[0.0], [0.0]])), tmp_path) > 1000


@pytest.mark.parametrize(
    ("plot", "given", "expected"),
    [
        (
            plot_landscape,
            {"a": plane(), "b": plane(points=4)},
            "must have the same grid",
        ),
        (plot_landscape, {}, "Pass a Landscape, or .* Received: "),
        (plot_ntk, {"a": plane()}, r"Pass a NTK, .*\['Landscape'\]"),
        (plot_ntk, NTK(np.eye(2), np.ones((3, 2)), 1), r'"summed".*shape \(3, 2\)'),
        (plot_spectral_density, [1], r"Pass a SpectralDensity.*\['list'\]"),
        (plot_batch_spectrum, None, "Pass a BatchSpectrum"),
    ],
)
def test_what_cannot_be_drawn(plot, given, expected):
    with pytest.raises(ValueError, match=expected):
        plot(given)


def test_a_logarithm_needs_positive_losses():
    with pytest.raises(ValueError, match="`log` must be False .*a loss of 0"):
        plot_landscape(Landscape(np.zeros(3), (np.arange(3.0),)), log=True)
