"""Computes the outputs of an exported model with the runtime of its format alone.

    python -P runtime.py FORMAT FOLDER INPUTS.npz OUTPUTS.npz

Each function returns one of images (batch, height, width, C), float32. Run as a script,
neither Keras nor kerasvit can be imported: a file that needs them gives an error.
"""

import os
import sys

import numpy as np


def savedmodel(folder):
    """Returns the function `serve` of a SavedModel."""
    import tensorflow as tf

    model = tf.saved_model.load(folder)
    return lambda images: model.serve(images).numpy()


def litert(folder):
    """Returns the signature of a LiteRT file."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:  # TensorFlow has an interpreter, too
        from tensorflow.lite.python.interpreter import Interpreter

    # It takes one thread by default; the other runtimes take the cores they may use.
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    model = Interpreter(f"{folder}/model.tflite", num_threads=cores)
    run = model.get_signature_runner()
    return lambda images: run(image=images)["output_0"]


def onnx(folder):
    """Returns a session of ONNX Runtime, on the processor."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        f"{folder}/model.onnx", providers=["CPUExecutionProvider"]
    )
    return lambda images: session.run(None, {"image": images})[0]


def openvino(folder):
    """Returns a model of OpenVINO that computes in float32 on the processor."""
    import openvino

    options = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.compile_model(f"{folder}/model.xml", "CPU", options)
    return lambda images: model(images)[0]


def torch(folder):
    """Returns a program of torch.export."""
    import torch

    model = torch.export.load(f"{folder}/model.pt2").module()
    return lambda images: model(torch.from_numpy(images)).detach().numpy()


PACKAGES = {  # of which the first that is installed reads a file
    "savedmodel": ("tensorflow",),
    "litert": ("ai-edge-litert", "tensorflow"),
    "onnx": ("onnxruntime",),
    "openvino": ("openvino",),
    "torch": ("torch",),
}
READERS = {
    "savedmodel": savedmodel,
    "litert": litert,
    "onnx": onnx,
    "openvino": openvino,
    "torch": torch,
}


def main(name, folder, inputs, outputs):
    """Computes the outputs of all batches in a file."""
    sys.modules["keras"] = sys.modules["kerasvit"] = None  # their import fails
    run = READERS[name](folder)
    with np.load(inputs) as batches:
        np.savez(outputs, **{key: run(batches[key]) for key in batches.files})


if __name__ == "__main__":
    main(*sys.argv[1:])
