"""Numbers of the papers, beside those of the report.

They are of models trained on ImageNet: ratios can be compared, values hardly.
"""

# Chen, Hsieh and Gong 2021, arXiv 2106.01548, table 3: the largest eigenvalue of the
# embedding, of all attention or token mixing, of all MLPs or channel mixing, of blocks
# 1, 6 and 12 and of the whole; ‖w‖; ‖a‖ of blocks 1, 6 and 12.
COMPONENTS = {
    "ViT-B/16": (300.4, 179.8, 281.4, 44.4, 32.4, 26.9, 738.8)
    + (269.3, 104.9, 104.3, 138.1),
    "ViT-B/16-SAM": (3.8, 8.5, 9.6, 1.7, 1.7, 1.5, 20.9) + (353.8, 117.0, 120.3, 97.2),
    "Mixer-B/16": (1042.3, 95.8, 417.9, 239.3, 41.2, 5.1, 1644.4)
    + (197.6, 96.7, 135.1, 74.9),
    "Mixer-B/16-SAM": (18.2, 1.4, 9.5, 4.0, 1.1, 0.3, 22.5)
    + (389.9, 110.9, 176.0, 216.1),
}
# The same, table 1: the largest eigenvalue of the Hessian.
LARGEST = {
    "R-50": 122.9,
    "R-152": 179.8,
    "ViT-B/16": 738.8,
    "ViT-B/16-SAM": 20.9,
    "Mixer-B/16": 1644.4,
    "Mixer-B/16-SAM": 22.5,
}
# The same, table 1: κ at initialisation.
CONDITION = {"R-50": 2801.6, "R-152": 2801.6, "ViT-B/16": 4205.3, "Mixer-B/16": 14468.0}
FAMILIES = {  # {name of a builder: beginning of the names in the paper}
    "VisionTransformer": "ViT",
    "DistilledVisionTransformer": "ViT",
    "VisionTransformerAblation": "ViT",
    "MLPMixer": "Mixer",
    "BigTransfer": "R-",
}
SOURCE = "arXiv 2106.01548 on ImageNet"


def rows(numbers: dict, results: dict) -> dict:
    """Returns the numbers of a paper about the families of the models.

    Args:
        numbers: {name in the paper: numbers}.
        results: {name: what was measured, with the name of the "builder"}.
    """
    builders = dict.fromkeys(each["builder"] for each in results.values())
    families = tuple(FAMILIES[name] for name in builders if name in FAMILIES)
    return {n: each for n, each in numbers.items() if n.startswith(families)}
