"""One sentence on how to read each picture of the page."""

READINGS = {  # {beginning of the caption: sentence}
    "λmax of each block": "A lower point is a block in whose weights the loss is "
    "flatter.",
    "Norm of each block": "A high point is a block with large outputs, the mean over "
    "the images.",
    "Density of the eigenvalues": "The height at a value of λ says how many "
    "eigenvalues lie there.",
    "Eigenvalues of each mini-batch": "Each column of points is a mini-batch; points "
    "below 0 are directions in which its loss curves downwards.",
    "Loss along": "Each line is one direction, and its lowest point should be near "
    "α = 0, the trained weights.",
    "Loss between": "The ends are the two models, and the highest point is the barrier "
    "between them.",
    "Loss on a plane": "The trained weights are in the centre, and contours lie close "
    "where the loss is steep.",
    "Rise of the loss": "A steeper line is a sharper minimum.",
    "Eigenvalues of the kernel": "From the left end of a line to its right end the "
    "eigenvalues fall by the factor κ.",
    "Mean attention distance": "Each point is a head, and a high one looks far.",
    "Heat of the last": "The first row has the images; bright cells below are where "
    "the last layer looks.",
    "Attention rollout": "Bright cells are the patches from which, over all layers, "
    "most of the output comes.",
    "IoU of each head": "Each point is a head, and at 1 its hottest patches are the "
    "object.",
    "Objects, and the heat": "Compare the objects of the first row with the bright "
    "cells below.",
    "Principal filters": "Each square is a filter of one patch, from the one with the "
    "largest share.",
    "Similarity of the positions": "Each square compares one patch with all patches: "
    "the cell of 1 is the patch itself.",
    "By frequency": "A line that falls more to the right has lost more of the high "
    "frequencies.",
    "Highest frequency": "A falling line is a model that removes high frequencies with "
    "depth.",
    "Accuracy under noise": "A dip is a band of frequencies that the model depends on.",
    "Variance of the features": "A rising line is features that grow with depth, and a "
    "falling one layers that average.",
    "Active neurons": "A low point is a layer of which few neurons are above 0.",
    "CKA of": "A bright cell is two layers with similar features; the diagonal of one "
    "model is 1.",
    "Effective receptive field": "Bright pixels are those on which the centre of the "
    "features depends.",
    "Side of the receptive": "A rising line is a field that grows with depth.",
    "Norm of the gradient": "A flat line is a training whose layers learn at equal "
    "rates at the start.",
    "Accuracy without a block": "A low point is a block that the model needs; the "
    "dotted line is the whole model.",
    "Accuracy without a head": "Each point is a head, and a low one is a head that the "
    "model needs; the dotted line is the whole model.",
}


def of(caption: str) -> str:
    """Returns the sentence of a picture.

    Raises:
        KeyError: There is none.
    """
    for start, sentence in READINGS.items():
        if caption.startswith(start):
            return sentence
    raise KeyError(caption)
