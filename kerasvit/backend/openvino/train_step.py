"""Train step on OpenVINO: none."""

from typing import Any

from ..train_step import Step
from .inference import refuse


class TrainStep(Step):
    """Base of trainers, none of which is made."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuses before a trainer checks its model.

        Raises:
            ValueError: Always.
        """
        refuse()
