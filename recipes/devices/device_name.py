"""Names the device on which the backend computes.

device_name.of_first()      # "NVIDIA H100 80GB HBM3", or "AMD EPYC 7B13, 8 cores"

A virtual machine may hide the model of its processor. Then the name has the numbers of
the processor's family and model: "AMD EPYC (family 25, model 17), 2 cores".
"""

import os
import platform
import re
from pathlib import Path

from command import startup

CPUINFO = Path("/proc/cpuinfo")  # Linux


def of_first() -> str:
    """Returns the name of the first accelerator, or of the processor and its cores."""
    if found := accelerator():
        return found
    text = CPUINFO.read_text("utf-8") if CPUINFO.is_file() else ""
    fields = dict(re.findall(r"^(\S[^\t:]*)\s*: (.+)$", text, re.MULTILINE))
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in fields and not re.search(r"\d", name):  # a virtual machine's
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    known = hasattr(os, "sched_getaffinity")  # those that this process may use
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count()
    return f"{name}, {cores} cores"


def accelerator() -> str | None:
    """Returns the name of the first accelerator of the backend; None without one."""
    backend = startup.backend()
    if backend == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else None
    if backend == "tensorflow":
        import tensorflow as tf

        if not (devices := tf.config.list_physical_devices("GPU")):
            return None
        return tf.config.experimental.get_device_details(devices[0])["device_name"]
    import jax

    first = jax.local_devices()[0]
    return None if first.platform == "cpu" else first.device_kind
