"""Published results of models whose weights have a name.

    published.RESULTS["ViTB16/sam"]["imagenet2012"]     # 79.9
    published.COSTS["ViTB16/sam"]   # parameters, multiply-adds and speed, as text

Source: Chen et al. 2022, arXiv 2106.01548, Table 2: models trained from scratch on
ImageNet with SAM, 224 × 224 pixels. ImageNet-R is of all 1,000 classes: timm's results
of the same weights, of 200 classes, are 40.1 and not 26.4 for ViT-B/16. ImageNet-C is
the mean accuracy of all corruptions and severities. The paper has no multiply-adds.
"""

SOURCE = "arXiv 2106.01548, Table 2"
COLUMNS = (
    *("imagenet2012", "imagenet2012_real", "imagenet_v2/matched-frequency"),
    *("imagenet_r", "imagenet2012_corrupted"),
)
_WITH_SAM = {
    "ViTS16": (78.1, 84.1, 65.6, 24.7, 53.0),
    "ViTB32": (73.6, 80.3, 60.0, 24.0, 50.7),
    "ViTB16": (79.9, 85.2, 67.5, 26.4, 56.5),
    "MixerB32": (72.4, 79.0, 58.0, 22.8, 46.2),
    "MixerB16": (77.4, 83.5, 63.9, 24.7, 48.8),
}
RESULTS = {  # {name of the weights: {set: top-1 in %}}
    f"{variant}/sam": dict(zip(COLUMNS, row, strict=True))
    for variant, row in _WITH_SAM.items()
}
_SPEEDS = {  # million parameters, images per second of a TPU core
    "ViTS16": (22, 2043),
    "ViTB32": (88, 2805),
    "ViTB16": (87, 863),
    "MixerB32": (60, 4209),
    "MixerB16": (59, 1390),
}
COSTS = {
    f"{variant}/sam": (f"{parameters}", "", f"{speed:,} (TPU core)")
    for variant, (parameters, speed) in _SPEEDS.items()
}

CORRUPTED_MEAN = "corrupted (mean of the 15 published kinds)"


def column(heading: str) -> str:
    """Returns the name in `RESULTS` of a column of the tables."""
    corrupted = COLUMNS[-1]
    return corrupted if heading == f"{corrupted}, {CORRUPTED_MEAN}" else heading
