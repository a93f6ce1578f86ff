"""The option `--devices` and the variables by which processes are started.

    check("data=4,model=2", "jax")    # before the imports that take seconds

This module imports neither Keras nor a backend.
"""

import dataclasses
import importlib.util
import json
import os
import re
from pathlib import Path

# {backend: variables of the environment that start several processes}; the first one
# decides whether they are set.
STARTED_BY = {
    "jax": ("KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID"),
    "tensorflow": ("TF_CONFIG",),
    "torch": ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
}
STARTERS = {
    "jax": "the KERAS_DISTRIBUTION variables",
    "tensorflow": "TF_CONFIG",
    "torch": "torchrun",
}


@dataclasses.dataclass(frozen=True)
class Request:
    """Devices of a training.

    Attributes:
        data: Number of parts of a batch; None: as many as there are devices for.
        model: Number of devices that share a copy of the model.
    """

    data: int | None = None
    model: int = 1

    @classmethod
    def parse(cls, text: str) -> "Request":
        """Returns the request of an option: "all", "4" or "data=4,model=2".

        Raises:
            ValueError: The text has another form, or a number is not positive.
        """
        if text == "all":
            return cls()
        if re.fullmatch(r"[1-9]\d*", text):
            return cls(int(text))
        axes = re.findall(r"(?:^|,)(data|model)=([1-9]\d*)(?=,|$)", text)
        names = [name for name, _ in axes]
        given = ",".join(f"{name}={number}" for name, number in axes)
        if not axes or given != text or len(set(names)) < len(names):
            raise ValueError(
                "`devices` must be all, a number, or axes such as data=4,model=2. "
                f"Received: {text}."
            )
        return cls(**{name: int(number) for name, number in axes})

    def sizes(self, available: int) -> tuple[int, int]:
        """Returns the numbers of parts of a batch and of devices of a copy.

        Args:
            available: Number of devices of all processes.

        Raises:
            ValueError: There are fewer devices, or the model's do not divide them.
        """
        data = self.data or available // self.model
        if data * self.model > available or not data:
            raise ValueError(
                f"`devices`: {max(data, 1) * self.model} are more than the {available} "
                f"that there are. Give --devices {available}, or leave it out for all."
            )
        if not self.data and available % self.model:
            raise ValueError(
                f"`devices`: {available} devices cannot be divided by "
                f"model={self.model}. Give data, too."
            )
        return data, self.model


def check(devices: str, backend: str) -> None:
    """Checks what needs no backend: the option, and how processes were started.

    Args:
        devices: Setting of the recipe.
        backend: Keras's backend.

    Raises:
        ValueError: The option has another form, the backend cannot do it, or the
            processes were started for another backend.
    """
    request = Request.parse(devices)
    if request.model > 1 and backend != "jax":
        raise ValueError(
            f"`devices`: model={request.model} divides a model over devices, which "
            f"needs the backend jax. Received: {backend}."
        )
    for other, names in STARTED_BY.items():
        if other != backend and is_started_by(other):
            raise ValueError(
                f"{names[0]} is set, which starts processes of {other}, but the "
                f"backend is {backend}. Unset it, or set KERAS_BACKEND={other}."
            )
    if not is_started_by(backend):
        return
    if missing := [n for n in STARTED_BY[backend] if not os.environ.get(n)]:
        raise ValueError(
            f"{', '.join(missing)} must be set in each process, beside "
            f"{STARTED_BY[backend][0]}."
        )
    process, processes = process_of(backend)
    if not 0 <= process < processes:
        raise ValueError(
            f"The number of a process must be from 0 to {processes - 1}, for "
            f"{processes} processes. Received from {STARTERS[backend]}: {process}."
        )


def is_started_by(backend: str) -> bool:
    """Returns whether the variables that start processes of a backend are set."""
    return bool(os.environ.get(STARTED_BY[backend][0]))


def process_of(backend: str) -> tuple[int, int]:
    """Returns the number of this process and of all, as the environment states them.

    Raises:
        ValueError: The variables are not numbers, or TF_CONFIG has another form.
    """
    if not is_started_by(backend):
        return 0, 1
    if backend == "tensorflow":
        return _process_of_tf_config(os.environ["TF_CONFIG"])
    count, number = STARTED_BY[backend][:2]
    try:
        return int(os.environ[number]), int(os.environ[count])
    except ValueError as error:
        raise ValueError(
            f"{number} and {count} must be numbers. Received: "
            f"{os.environ[number]!r} and {os.environ[count]!r}."
        ) from error


def _process_of_tf_config(text: str) -> tuple[int, int]:
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        number, chiefs = int(task["index"]), len(cluster.get("chief", []))
        count = chiefs + len(cluster["worker"])
        kind = task["type"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host:port", …]}, '
            f'"task": {{"type": "worker", "index": 0}}}}. Received: {text}.'
        ) from error
    if kind not in ("chief", "worker"):
        raise ValueError(
            f"TF_CONFIG: the task's type must be worker or chief. Received: {kind!r}."
        )
    return number + (chiefs if kind == "worker" else 0), count


def on_tpu_vm() -> bool:
    """Returns whether this machine has TPUs and the library that drives them."""
    has_chips = any([*Path("/dev").glob("accel*"), *Path("/dev").glob("vfio/[0-9]*")])
    return has_chips and importlib.util.find_spec("libtpu") is not None
