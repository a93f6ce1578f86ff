"""What the measures are, and how to read them: the text of the page.

This module imports neither Keras nor kerasvit: the options name the measures.
"""

from typing import NamedTuple


class Section(NamedTuple):
    """Text about a measure.

    Attributes:
        title: Heading.
        definition: What is computed.
        source: Paper, with the table, figure or equation.
        reading: How to read the numbers and pictures.
        optional: Whether it is measured only if it is named.
    """

    title: str
    definition: str
    source: str
    reading: str
    optional: bool = False


CHEN = "Chen, Hsieh and Gong 2021, arXiv 2106.01548"
PARK = "Park and Kim 2022, arXiv 2202.06709"
VIT = "Dosovitskiy et al. 2020, arXiv 2010.11929"
SECTIONS = {
    "components": Section(
        "Sharpness by component",
        "The largest eigenvalue λmax of the Hessian of the mean loss, restricted to "
        "the weights of one component, with ‖w‖ of all trainable weights and the norm "
        "‖a‖ of the output of a block, the mean over the images. Attention, MLP, "
        "token and channel mixing are all layers of the kind jointly.",
        f"{CHEN}, table 3",
        "The loss rises by λ r²/2 at a distance r along the sharpest direction: a "
        "smaller λmax is a flatter minimum. In the paper early blocks are sharper "
        "than late ones, and SAM lowers λmax of all of them while ‖w‖ grows.",
    ),
    "eigenvalues": Section(
        "Ends of the spectrum",
        "The five most positive eigenvalues of the Hessian of the mean loss, and the "
        "most negative one, by Lanczos’ method to a residual of 10⁻³ λ. The loss has "
        "no regulariser, and the model runs as in inference. Where the loss has kinks, "
        "as with ReLU and max-pooling, its second derivatives are those of the smooth "
        "pieces.",
        f"{CHEN}, table 1",
        "A large λ1 is a sharp minimum; a λmin far below 0 says that the weights are "
        "not at a minimum on these images.",
    ),
    "density": Section(
        "Density of the spectrum",
        "The trace by Hutchinson’s method from random signs, with the standard error "
        "of its mean, and the density of all eigenvalues by stochastic Lanczos "
        "quadrature; each eigenvalue is drawn as a Gaussian whose deviation is 1 % of "
        "the axis.",
        "Ghorbani et al. 2019, arXiv 1901.10159, algorithms 1 and 2",
        "The peak at 0 holds directions along which the loss is flat; what lies far "
        "to the right are few sharp directions. The vertical axis is logarithmic.",
    ),
    "batch-spectrum": Section(
        "Spectrum of mini-batches",
        "The five eigenvalues of largest magnitude of the Hessian of the loss of each "
        "mini-batch of 16 of these images. Images and labels are changed as in the "
        "training, and the L2 term has its weight decay λ, over all trainable weights, "
        "as far as the config.json of the training or options tell: the first table. "
        "The paper takes training images, early in the training; here the weights are "
        "the given ones, and dropout is off.",
        f"{PARK}, figure 4",
        "Values below 0 show a loss that is not convex there, and values far up a "
        "sharp one.",
    ),
    "landscape": Section(
        "Loss along random directions",
        "The mean loss at w + α d for three Gaussian directions d, filter-normalised: "
        "each filter of d has the norm of the same filter of w. Two models of one "
        "architecture get the same Gaussian numbers, each scaled to its own weights.",
        "Li et al. 2018, arXiv 1712.09913, section 4",
        "The wider the valley around α = 0, the less the loss changes with the "
        "weights.",
    ),
    "between": Section(
        "Loss between the two models",
        "The mean loss at (1 − α) w₀ + α w₁, statistics of batch normalisation "
        "included.",
        "Goodfellow et al. 2015, arXiv 1412.6544",
        "At α = 0 is the first model and at α = 1 the second. A hill between them "
        "says that they lie in different valleys.",
    ),
    "plane": Section(
        "Loss on a plane",
        "The mean loss at w + α d₀ + β d₁ on 21 × 21 points, for the first two "
        "directions of the section above.",
        "Li et al. 2018, arXiv 1712.09913, section 4",
        "Dark is a low loss. The colour scale is the same for both models, in "
        "logarithmic steps.",
        optional=True,
    ),
    "sharpness": Section(
        "Sharpness in a ball and in a box",
        "SAM’s rise L(w + ρ g/‖g‖) − L(w) for several ρ, g the gradient over all "
        "images; m-sharpness, the mean of the same over groups of m = 8 images; and "
        "Keskar’s 100 (max L(w + z) − L(w)) / (1 + L(w)) over |zᵢ| ≤ ε (|wᵢ| + 1), a "
        "lower bound by ten steps.",
        "Foret et al. 2021, arXiv 2010.01412, equation 2; Keskar et al. 2017, arXiv "
        "1609.04836, metric 2.1",
        "The rise is what SAM minimises besides the loss: lower is flatter.",
    ),
    "ntk": Section(
        "Condition number of the tangent kernel",
        "κ = λmax/λmin of the Gram matrix Θ of the gradients of the summed logits on "
        "at most 32 of the images: of the weights, and of a new model of the same "
        "architecture with a random head.",
        f"{CHEN}, table 1; Xiao et al. 2020, arXiv 1912.13053",
        "A large κ at the start predicts a slow training. It grows with the number of "
        "images. The paper does not say on how many, nor how it sums the logits.",
    ),
    "attention": Section(
        "Where attention looks",
        "For each head the mean distance in pixels from a patch to what it attends "
        "to; the heat of the last layer, the mean over its heads, and the rollout, in "
        "% of the attention of the class token, or of the mean over all patches for a "
        "model that averages.",
        f"{VIT}, figures 7 and 11; Abnar and Zuidema 2020, arXiv 2005.00928",
        "Heads near 0 look at neighbours, and high ones at the whole image. Bright "
        "patches of a map get most of the attention.",
    ),
    "segmentation": Section(
        "Attention and the object",
        "The intersection over union (IoU) of a mask of the object and the hottest "
        "patches that hold 60 % of the heat: for each head, for the mean of the last "
        "layer’s heads, for the best of them in each image, and for the rollout. Mean "
        "over the images that have a mask.",
        "Caron et al. 2021, arXiv 2104.14294, figure 4; after "
        "Chen, Hsieh and Gong 2021, arXiv 2106.01548, figure 3",
        "1: the patches are the object. Attention that finds no object is near what "
        "the whole image reaches, the share of the object, or below it.",
    ),
    "embeddings": Section(
        "Patches and positions",
        "The first principal components of the filters that embed the patches, with "
        "their shares of the variance; the cosine similarity of the position "
        "embedding of some patches with those of all patches.",
        f"{VIT}, figure 7",
        "Filters of a trained model look like the waves of a Fourier basis, and "
        "positions are most similar to their neighbours; noise says that little was "
        "learned.",
    ),
    "fourier": Section(
        "Frequencies of the features",
        "The logarithm of the amplitude of feature maps by frequency on the diagonal, "
        "mean over images and channels, relative to frequency 0, after each block. "
        "Frequencies are of the cells of each map, so that a stage with a smaller map "
        "begins anew.",
        f"{PARK}, figures 2a and 8",
        "A line that falls from block to block is a low-pass filter. In the paper "
        "attention lowers high frequencies, and convolutions and MLPs raise them.",
    ),
    "noise": Section(
        "Accuracy under noise of one frequency",
        "The accuracy on the images with Gaussian noise of one band of radial "
        "frequencies, whose root mean square over the image is 0.5 deviations of the "
        "images.",
        f"{PARK}, figure 2b",
        "A model that loses little at the right is robust against high frequencies. "
        "The horizontal lines are the accuracies without noise.",
    ),
    "variance": Section(
        "Variance of the features",
        "The unbiased variance of a feature map over its cells, mean over images and "
        "channels, after each block.",
        f"{PARK}, figure 9",
        "In the paper attention averages feature maps and lowers the variance, and "
        "convolutions and MLPs raise it.",
    ),
    "active": Section(
        "Active neurons",
        "The share of the values of the MLPs’ hidden layers that are above 0, over "
        "all images, tokens and neurons.",
        f"{CHEN}, abstract",
        "In the paper SAM makes the neurons of the first blocks sparser.",
    ),
    "cka": Section(
        "Similarity of layers",
        "Linear centred kernel alignment between the features of all pairs of blocks, "
        "unbiased over mini-batches of at most 64: of each model with itself, and of "
        "the two with each other if they take the same images.",
        "Kornblith et al. 2019, arXiv 1905.00414; Nguyen et al. 2021, arXiv 2010.15327",
        "Bright: the features are the same up to rotation and scale. Bright squares "
        "on the diagonal are groups of blocks that change little.",
    ),
    "receptive-field": Section(
        "Effective receptive field",
        "The gradient of the centre of a feature map by the pixels: the root of its "
        "mean square over at most 32 images, relative to the largest; and the side of "
        "a square of the area in which it is above 4.55 %.",
        "Luo et al. 2016, arXiv 1701.04128",
        "Convolutions see a spot that grows with depth; attention can see the whole "
        "image from the first block.",
    ),
    "gradients": Section(
        "Gradients at the start",
        "The norm of the gradient of the loss by the weights of each block, for a new "
        "model of the same architecture with a random head.",
        "Xiong et al. 2020, arXiv 2002.04745, figure 3",
        "Norms that grow towards the output, as with normalisation after each sum, "
        "need a warm-up of the learning rate.",
    ),
    "lesion": Section(
        "Accuracy without a block or a head",
        "The accuracy on the images with the residual branches of one block set to 0, "
        "and with one attention head set to 0.",
        "Veit et al. 2016, arXiv 1605.06431; Michel et al. 2019, arXiv 1905.10650",
        "A point near the horizontal line is a part that the model hardly needs.",
    ),
}
NAMES = tuple(SECTIONS)
