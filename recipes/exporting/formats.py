"""What each format needs, and which backend writes it.

This module imports neither Keras nor kerasvit, so that a command is checked first. The
reasons were found with Keras 3.15; MEASURED.md has the versions of the converters.
"""

import dataclasses
import importlib.util
from collections.abc import Mapping

DTYPES = ("float32", "mixed_bfloat16", "int8", "int4")


@dataclasses.dataclass(frozen=True)
class Format:
    """A file format, and what it takes to write and read it.

    Attributes:
        file: Main file in the folder of an export.
        backends: Backends of Keras that write it, the first by default.
        refused: {backend, dtype, or "dtype on backend": why it is refused}. A dtype
            is one of `DTYPES`, or "float8".
        modules: {module that must be installed: its package}, beside the backend.
        quantizer: The same for --dtype int8, if the runtime's own quantiser makes it;
            else Keras does. `refused` is about what Keras makes.
    """

    file: str
    backends: tuple[str, ...]
    refused: Mapping[str, str]
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    quantizer: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def reason(self, dtype: str, backend: str) -> str | None:
        """Returns why a dtype is refused on a backend that writes it, or None."""
        return self.refused.get(dtype) or self.refused.get(f"{dtype} on {backend}")


FORMATS = {
    "savedmodel": Format(
        "saved_model.pb",
        ("tensorflow", "jax"),
        {"torch": "Keras converts it with torch_xla, whose newest version, 2.9, is for "
         "PyTorch 2.9"},
        {"tensorflow": "tensorflow"},
    ),
    "litert": Format(
        "model.tflite",
        ("tensorflow",),
        {
            "jax": "Keras writes LiteRT on TensorFlow and PyTorch only",
            "torch": "litert-torch 0.10 cannot be installed beside the versions of "
            "constraints.txt (immutabledict)",
            "mixed_bfloat16": "the converter of LiteRT has no bfloat16",
            "int8": "the converter of LiteRT rejects Keras's products of int8 matrices",
            "float8": "the converter of LiteRT has no float8",
        },
        quantizer={"litert_quantizer": "litert-quantizer"},
    ),
    "onnx": Format(
        "model.onnx",
        ("torch",),
        {
            "tensorflow": "tf2onnx 1.17 has no rule for Erfc, a part of GELU",
            "jax": "jax2onnx 0.17 has no rule for a reshape with a batch of any size",
            "mixed_bfloat16": "ONNX Runtime has no bfloat16 on processors",
            "int8": "ONNX Runtime computes Keras's products of int8 many times slower "
            "than those of float32",
            "int4": "PyTorch's exporter writes the subtraction that unpacks int4 with "
            "two types, which ONNX Runtime does not load",
        },
        {name: name for name in ("onnx", "onnxscript", "onnxruntime")},
        {"onnxruntime": "onnxruntime"},
    ),
    "openvino": Format(
        "model.xml",
        ("tensorflow", "torch"),
        {
            "jax": "OpenVINO has no rule for XlaCallModule, which JAX writes",
            "mixed_bfloat16": "OpenVINO reads no bfloat16 constants of TensorFlow; it "
            "chooses the precision when it loads a float32 file",
            "int8": "OpenVINO's result of int8 models of TensorFlow is wrong (by 0.3), "
            "and tracing those of PyTorch fails",
            "int4 on torch": "OpenVINO has no rule for the bit shifts that unpack int4",
            "float8 on tensorflow": "OpenVINO cannot run TensorFlow's casts to float8",
        },
        {"openvino": "openvino"},
        {"nncf": "nncf"},
    ),
    "torch": Format(
        "model.pt2",
        ("torch",),
        {
            name: "torch.export traces models of PyTorch only"
            for name in ("tensorflow", "jax")
        },
    ),
}  # fmt: skip


def backend_for(name: str, dtype: str, chosen: str | None) -> str:
    """Returns the backend that writes a format: the chosen one, if it does.

    Args:
        name: Key of `FORMATS`.
        dtype: One of `DTYPES`. If no backend writes it, one of float32 is returned.
        chosen: Backend that the user chose, or None.

    Raises:
        ValueError: No backend that writes it is installed.
    """
    able = writers(name, dtype) or writers(name, "float32")
    ordered = sorted(able, key=lambda each: each != chosen)
    installed = [each for each in ordered if importlib.util.find_spec(each)]
    if not installed:
        raise ValueError(
            f"`format`: {name} is written on {' or '.join(able)}, which is not "
            f'installed: pip install -e ".[{able[0]},recipes]".'
        )
    return installed[0]


def writers(name: str, dtype: str) -> list[str]:
    """Returns the backends that write a dtype in a format, the first by default."""
    form, own = FORMATS[name], by_runtime(name, dtype)
    return [each for each in form.backends if own or not form.reason(dtype, each)]


def by_runtime(name: str, dtype: str) -> bool:
    """Whether the quantiser of a format's runtime makes a dtype, and not Keras."""
    return dtype == "int8" and bool(FORMATS[name].quantizer)


def calibrated() -> str:
    """Returns the names of the formats with a quantiser of their own."""
    return ", ".join(name for name, each in FORMATS.items() if each.quantizer)


def check(name: str, dtype: str, backend: str) -> None:
    """Raises a `ValueError` for a backend or dtype, or if a package is missing."""
    wanted = FORMATS[name]
    if reason := wanted.refused.get(backend):
        raise ValueError(
            f"`format`: {name} is not written on {backend}: {reason}. Take "
            f"KERAS_BACKEND={' or '.join(wanted.backends)}."
        )
    own = by_runtime(name, dtype)
    if not own and (reason := wanted.reason(dtype, backend)):
        others = [
            each
            for each in DTYPES
            if by_runtime(name, each) or not wanted.reason(each, backend)
        ]
        raise ValueError(
            f"`dtype`: {name} takes no {dtype}: {reason}. Take --dtype "
            f"{' or '.join(others)}{elsewhere(name, dtype)}."
        )
    modules = {**wanted.modules, **(wanted.quantizer if own else {})}
    missing = [
        package
        for module, package in modules.items()
        if not importlib.util.find_spec(module)
    ]
    if missing:
        raise ValueError(
            f"`format`: {name} of {dtype} needs {', '.join(missing)}, not installed "
            f"here: pip install {' '.join(missing)}, or all formats: pip install -e "
            '".[export]".'
        )


def check_model(name: str, precision: str, backend: str) -> None:
    """Raises a `ValueError` if a format refuses what a file says of its model.

    Args:
        name: Key of `FORMATS`.
        precision: Result of `writing.precision`.
        backend: Backend that writes it.
    """
    if reason := FORMATS[name].reason(precision, backend):
        raise ValueError(
            f"`model`: its precision is {precision}, which {name} does not take: "
            f"{reason}. Export the model of float32 that it was made from"
            f"{' with --dtype int8' if by_runtime(name, precision) else ''}"
            f"{elsewhere(name, precision)}."
        )


def elsewhere(name: str, dtype: str) -> str:
    """Returns words about the backends that write a dtype, after other advice."""
    form = FORMATS[name]
    able = [each for each in form.backends if not form.reason(dtype, each)]
    return f", or KERAS_BACKEND={' or '.join(able)}" if able else ""
