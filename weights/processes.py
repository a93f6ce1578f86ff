"""Runs modules of this folder in processes of their own, with exact float32."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
# TensorFloat-32, the default of convolutions on NVIDIA's GPUs, and of products on JAX,
# rounds to 1e-3; the comparisons allow 1e-5.
EXACT = {"NVIDIA_TF32_OVERRIDE": "0", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}


def run_module(module: str, work: str | Path, backend: str, output: IO[str]) -> int:
    """Runs a module, which calls `end_with_parent`, and returns its exit code.

    Args:
        module: Name of the module.
        work: Argument of the module, the folder of its task.
        backend: Keras backend.
        output: File for stdout and stderr.
    """
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **EXACT}
    with subprocess.Popen(
        [sys.executable, "-m", module, str(work)],
        env={**environment, "KERAS_BACKEND": backend},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
    ) as process:
        return process.wait()


def end_with_parent() -> None:
    """Ends this process when `run_module` ends, also if it is killed.

    The system closes the pipe to stdin then.
    """

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
