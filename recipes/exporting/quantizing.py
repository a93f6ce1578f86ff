"""Quantises exported files to int8, with the quantiser of their runtime.

Kernels of products and convolutions have int8 numbers and a factor for each output;
those of ONNX Runtime are from -64 to 64. Without images the inputs of products are
rounded by the range of each batch, while the model runs; with images by the ranges that
these gave. Normalisation layers, softmax, GELU and the last products, the heads, stay
in float32, to which accuracy is sensitive (arXiv 2111.13824).
"""

import contextlib
import dataclasses
import importlib.metadata
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scoring import sets
from scoring.candidates import Candidate

from . import checking, metadata
from .formats import FORMATS
from .writing import Served

FEWEST, MOST = 32, 256  # images that give ranges
SAME = 0.98  # share of images with the same class, below which a line says what helps
BATCH = 8  # images of a call, but for LiteRT, whose quantiser takes single ones


def calibration_images(name: str, served: Served) -> np.ndarray:
    """Returns images that give ranges, float32 (count, height, width, channels).

    Args:
        name: Folder or table; of more than 256 images some are drawn.
        served: The model that is exported; the images have the values that it takes.

    Raises:
        ValueError: There are no such images, or fewer than 32.
    """
    transform = served.transform
    found = sets.find_unlabelled(name, (0, 1), transform.channels, "calibrate")
    if len(found.labels) < FEWEST:
        raise ValueError(
            f"`calibrate`: {name} has {len(found.labels)} images, and at least "
            f"{FEWEST} are needed: their largest values become the ranges of int8. "
            "Give some hundred that are like those to predict, or leave --calibrate "
            "out."
        )
    batches = found.sample(MOST).images.batches(
        transform, BATCH, normalize=served.inputs == "normalized"
    )
    return np.concatenate([x for x, _ in batches.as_numpy_iterator()]).astype("float32")


def quantized(
    name: str,
    folder: Path,
    served: Served,
    images: np.ndarray | None,
    candidate: Candidate,
) -> dict:
    """Quantises the file of an export in place, and compares it with the Keras model.

    Args:
        name: Key of `formats.FORMATS`.
        folder: Folder of the export.
        served: The model that was exported, in float32.
        images: Result of `calibration_images`; None: ranges are those of each batch.
        candidate: The same without what was put around it.

    Returns:
        What export.json says about it.

    Raises:
        ValueError: The runtime cannot run the file, or its outputs are not finite.
    """
    before = _megabytes(folder)
    quantizer = quantize(name, folder, images, served.model.inputs[0].shape[0])
    metadata.write(name, folder, candidate)  # quantisers drop it
    shown = images
    if images is None:
        shown = checking.random_images(served.model, served.low, served.high)
    classes = candidate.task == "single_label" and candidate.has_head
    of_one = classes and images is not None
    found = checking.changes(served.model, name, folder, shown, of_one)
    return {
        "quantizer": quantizer,
        "calibration_images": 0 if images is None else len(images),
        "megabytes": _megabytes(folder),
        "megabytes_of_float32": before,
        "compared": dataclasses.asdict(found),
    }


def report(int8: dict) -> list[str]:
    """Returns lines about a quantised file, by the result of `quantized`."""
    found, count = int8["compared"], int8["calibration_images"]
    ranges = f"of {count} images" if count else "of each batch"
    lines = [
        f"int8 by {int8['quantizer']}, ranges {ranges}: {int8['megabytes']:.1f} MB "
        f"instead of {int8['megabytes_of_float32']:.1f}; the outputs change by "
        f"{found['difference']:.2g} in the quadratic mean, and differ from image to "
        f"image by {found['spread']:.2g}."
    ]
    if (same := found["same_class"]) is None:
        return lines
    lines.append(f"{same:.1%} of {found['images']} images have the same class.")
    if same < SAME:
        lines.append(
            f"That is less than {SAME:.0%}. More --calibrate images may help, or none: "
            "then each batch has its own ranges. On a processor without VNNI, OpenVINO "
            "loses more than LiteRT and ONNX Runtime."
        )
    return lines


def quantize(
    name: str, folder: Path, images: np.ndarray | None, batch: int | None = None
) -> str:
    """Quantises the file of an export in place.

    Args:
        name, folder, images: As for `quantized`.
        batch: Images that a call of the file takes. None: any number.

    Returns:
        The package of the quantiser, with its version.
    """
    path, batches = folder / FORMATS[name].file, None
    if images is not None:
        size = batch or (1 if name == "litert" else BATCH)
        batches = checking.in_batches(images, size)
    with _quiet(), tempfile.TemporaryDirectory() as temporary:
        _QUANTIZERS[name](path, batches, Path(temporary))
    package = next(iter(FORMATS[name].quantizer.values()))
    return f"{package} {importlib.metadata.version(package)}"


def _megabytes(folder):
    return sum(each.stat().st_size for each in folder.iterdir()) / 1e6


def _onnx(path, batches, temporary):
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = temporary / "prepared.onnx"
    quant_pre_process(path, prepared)  # kernels become constants
    operations = [
        (node, node.input, node.output) for node in onnx.load(prepared).graph.node
    ]
    heads = last(operations, lambda node: node.op_type in ("MatMul", "Gemm"))
    options = {
        "per_channel": True,
        # Processors without VNNI add two products in 16 bits, in which those of
        # kernels from -64 to 64 fit. Unsigned kernels fit, too, but are slow with VNNI.
        "weight_type": quantization.QuantType.QInt8,
        "reduce_range": True,
        "extra_options": {"WeightSymmetric": True},
        # The second is what `quantize_dynamic` calls a product of the first, a Gemm.
        "nodes_to_exclude": [
            name for head in heads for name in (head.name, f"{head.name}_MatMul")
        ],
        "op_types_to_quantize": ["MatMul", "Gemm"],
    }
    if batches is None:
        return quantization.quantize_dynamic(prepared, path, **options)

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.batches = iter(batches)

        def get_next(self):
            batch = next(self.batches, None)
            return None if batch is None else {"image": batch}

    options["op_types_to_quantize"].append("Conv")
    # With signed inputs, products of the same input stay in float32.
    options["activation_type"] = quantization.QuantType.QUInt8
    # Outputs of products stay in float32, which is more exact, and faster.
    products = ["MatMul", "Gemm"]
    options["extra_options"]["OpTypesToExcludeOutputQuantization"] = products
    quantization.quantize_static(prepared, path, Reader(), **options)


def _openvino(path, batches, temporary):
    import nncf
    import openvino

    weights = path.with_suffix(".bin")
    for each in (path, weights):
        each.rename(temporary / each.name)
    model = openvino.Core().read_model(temporary / path.name)
    operations = model.get_ordered_ops()
    edges = [
        (op, [_name(each.get_node()) for each in op.input_values()], [_name(op)])
        for op in operations
    ]
    floats = last(edges, lambda op: op.get_type_name() == "MatMul")
    convolutions = [op for op in operations if op.get_type_name() == "Convolution"]
    if batches is None:
        # OpenVINO moves the strides of these to earlier layers, and fails if their
        # kernels are int8.
        floats += filter(_is_pointwise_with_strides, convolutions)
    else:
        # With the first, a hybrid had another class for 7 % of its images.
        floats += convolutions[:1]
    ignored = nncf.IgnoredScope(names=[*map(_name, floats)])
    if batches is None:
        mode = nncf.CompressWeightsMode.INT8_SYM
        model = nncf.compress_weights(model, mode=mode, ignored_scope=ignored)
    else:
        model = nncf.quantize(
            model,
            nncf.Dataset(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
            ignored_scope=ignored,
        )
    openvino.save_model(model, path, compress_to_fp16=False)


def _name(operation):
    return operation.get_friendly_name()


def _is_pointwise_with_strides(op):
    height, width = op.input(1).get_shape()[2:]  # of the kernel
    return height == width == 1 < max(op.get_strides())


def _litert(path, batches, temporary):
    from ai_edge_litert.schema_py_generated import BuiltinOperator
    from ai_edge_litert.tools import flatbuffer_utils
    from litert_quantizer import quantizer
    from litert_quantizer.qtyping import TFLOperationName

    made = quantizer.Quantizer(str(path))
    for kind in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"):
        if batches is None:
            made.add_dynamic_config(".*", TFLOperationName[kind], 8)
        else:
            made.add_static_config(".*", TFLOperationName[kind], 8, 8)
    model = flatbuffer_utils.read_model(str(path))
    graph = model.subgraphs[0]
    operations = [(op, op.inputs, op.outputs) for op in graph.operators]

    def is_a(op, *kinds):
        code = model.operatorCodes[op.opcodeIndex].builtinCode
        return code in [getattr(BuiltinOperator, kind) for kind in kinds]

    def pattern(op):
        return re.escape(graph.tensors[op.outputs[0]].name.decode())

    if batches is not None:
        # Their results are rounded, too, if the ranges are known; those that are added
        # to the input of a block have rare large values.
        for product in residuals(graph.operators, is_a):
            name = pattern(product)
            made.add_dynamic_config(name, TFLOperationName.FULLY_CONNECTED, 8)
    for head in last(operations, lambda op: is_a(op, "FULLY_CONNECTED")):
        made.update_quantization_recipe(
            pattern(head),
            TFLOperationName.FULLY_CONNECTED,
            algorithm_key="no_quantize",
        )
    ranges = None
    if batches is not None:
        samples = [{"image": batch} for batch in batches]
        ranges = made.calibrate({"serving_default": samples})
    made.quantize(ranges).export_model(str(path), overwrite=True)


_QUANTIZERS = {"onnx": _onnx, "openvino": _openvino, "litert": _litert}


def residuals(operations: Iterable[Any], is_a: Callable[..., bool]) -> Iterator[Any]:
    """Yields products of LiteRT whose results, moved or scaled, are added to others.

    Args:
        operations: Operations, with numbers of tensors as `inputs` and `outputs`.
        is_a: (operation, names of LiteRT's operations) → whether it is one of them.
    """
    writers = {tensor: op for op in operations for tensor in op.outputs}
    for add in operations:
        written = [writers.get(tensor) for tensor in add.inputs]
        if not is_a(add, "ADD") or None in written:
            continue
        for op in written:
            while op and is_a(op, "RESHAPE", "TRANSPOSE", "MUL"):
                op = next((writers[x] for x in op.inputs if x in writers), None)
            if op and is_a(op, "FULLY_CONNECTED"):
                yield op


def last(
    operations: Iterable[tuple[Any, Iterable, Iterable]],
    is_product: Callable[[Any], bool],
) -> list[Any]:
    """Returns the products of a graph that no other product follows: the heads.

    Args:
        operations: (operation, its inputs, its outputs) in the order of computation.
        is_product: Whether an operation is a product.
    """
    followed, found = set(), []
    for operation, inputs, outputs in reversed([*operations]):
        follows, product = not followed.isdisjoint(outputs), is_product(operation)
        if product and not follows:
            found.append(operation)
        if product or follows:
            followed.update(inputs)
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context without the reports of the quantisers about their own work."""
    logging.getLogger("nncf").setLevel(logging.ERROR)
    with (
        warnings.catch_warnings(),
        open(os.devnull, "w", encoding="utf-8") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        warnings.simplefilter("ignore")
        yield
