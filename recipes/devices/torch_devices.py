"""Trains on several PyTorch devices: one process of `torchrun` for each.

The trainers of kerasvit compute the mean of the gradients over the processes.
"""

import dataclasses
import datetime
import os
import shlex
import sys
from pathlib import Path

import torch
from command import device_request
from devices.devices import ONE, Devices
from torch import distributed
from training.progress import console

# A process waits as long as another one saves. `torchrun` ends it after an error.
TIMEOUT = datetime.timedelta(hours=2)


@dataclasses.dataclass(frozen=True)
class TorchDevices(Devices):
    """Processes of `torchrun`."""

    def wait(self, name: str) -> None:
        """Waits until all processes have called this."""
        distributed.barrier()

    def any(self, condition: bool) -> bool:
        """Returns whether the condition is true in one of the processes."""
        answer = torch.tensor(float(condition), device=_device())
        distributed.all_reduce(answer, op=distributed.ReduceOp.MAX)
        return bool(answer)

    def sum_metrics(self, trainer) -> dict:
        """Returns the metrics of the samples of all processes, as {name: number}."""
        for variable in trainer.metrics_variables:
            total = variable.value.detach().clone()
            distributed.all_reduce(total)
            variable.assign(total)
        return super().sum_metrics(trainer)


def start(request: device_request.Request, config) -> Devices:
    """Returns the devices of a request, after PyTorch has connected the processes.

    Args:
        request: Number of devices.
        config: Dataclass of the settings.

    Raises:
        ValueError: The number of processes is another one.
    """
    process, processes = device_request.process_of("torch")
    if device_request.is_started_by("torch"):
        if request.data not in (None, processes):
            raise ValueError(
                f"`devices`: torchrun has started {processes} processes, one for each "
                f"device. Received: {request.data}. Leave --devices out."
            )
    else:
        _check_one(request)
    if processes == 1:
        return ONE
    if not distributed.is_initialized():
        _connect()
    return TorchDevices(processes, process, processes)


def _connect():
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        there = torch.cuda.device_count()
        if local >= there:
            raise ValueError(
                f"`devices`: torchrun has started more than the {there} processes for "
                f"which there are GPUs. Give --nproc-per-node {there}."
            )
        torch.cuda.set_device(local)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, timeout=TIMEOUT)


def _check_one(request):
    """Checks that one device was requested; says if there are more."""
    there = max(1, torch.cuda.device_count())
    count = request.data or there
    script = Path(os.path.relpath(sys.argv[0])).as_posix()
    command = shlex.join([script, *sys.argv[1:]])
    torchrun = f"torchrun --nproc-per-node {count} {command}"
    if request.data and count > there and torch.cuda.is_available():
        request.sizes(there)
    if request.data and count > 1:
        raise ValueError(
            "`devices`: PyTorch needs one process for each device. Start it with: "
            f"{torchrun}"
        )
    if count > 1:
        console.print(
            f"Trains on 1 of {count} GPUs. For all, start it with: {torchrun}",
            highlight=False,
            soft_wrap=True,
        )


def _device():
    return "cuda" if torch.cuda.is_available() else "cpu"
