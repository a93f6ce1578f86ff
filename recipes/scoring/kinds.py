"""Names of the corruptions of images.

Reference: Hendrycks and Dietterich 2019, arXiv 1903.12261, section 3. This module
imports neither Keras nor TensorFlow, so that a command is parsed first.
"""

import importlib.util

from command.names import check_name

# Those of the papers' means, in the order of their tables.
PUBLISHED = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
KINDS = (*PUBLISHED, "gaussian_blur", "saturate", "spatter", "speckle_noise")
GROUPS = {"all": KINDS, "published": PUBLISHED}
SEVERITIES = (1, 2, 3, 4, 5)
PACKAGES = {"cv2": "opencv-python-headless", "skimage": "scikit-image"}


def chosen(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the corruptions that names or `GROUPS` select, in the order of `KINDS`.

    Raises:
        ValueError: A name is unknown.
    """
    for name in names:
        check_name("corrupt", name, [*GROUPS, *KINDS])
    selected = {kind for name in names for kind in GROUPS.get(name, (name,))}
    return tuple(kind for kind in KINDS if kind in selected)


def check_installed() -> None:
    """Raises a `ValueError` if a package that corrupts images is not installed."""
    for module, package in PACKAGES.items():
        if not importlib.util.find_spec(module):
            raise ValueError(
                f"`corrupt`: {package}, which corrupts images, is not installed. "
                'Install it: pip install -e ".[evaluate]".'
            )
