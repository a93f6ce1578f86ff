"""Shows the progress of an eigenvalue search."""

import sys
import time

import keras

VALUES = ("eigenvalue", "relative residual")
DELAY = 2.0  # seconds before "auto" shows the first line


class Progress:
    """Shows the number of batches, the first eigenvalue and its residual.

    Args:
        verbose: 1 shows progress, 0 nothing. "auto" shows it after some seconds, in an
            interactive session.

    Raises:
        ValueError: `verbose` is none of these.
    """

    def __init__(self, verbose: str | int) -> None:
        if verbose not in ("auto", 0, 1):
            raise ValueError(
                f'`verbose` must be "auto", 0 or 1. Received: verbose={verbose!r}.'
            )
        self._shown = verbose == 1 or (verbose == "auto" and _is_interactive())
        self._start = time.monotonic() + (DELAY if verbose == "auto" else 0.0)
        self._bar: keras.utils.Progbar | None = None
        self._batches = 0
        self._values: dict[str, float] = {}

    def batch(self) -> None:
        """Counts a batch; call it after every batch."""
        self._batches += 1
        self._update()

    def product(self, value: float, residual: float) -> None:
        """Shows the first eigenvalue so far; call it after every product."""
        relative = residual / abs(value) if value else residual
        self._values = dict(zip(VALUES, (value, relative), strict=True))
        self._update()

    def end(self) -> None:
        """Closes the progress bar; call it after the last product."""
        if self._bar is not None:
            self._bar.update(self._batches, self._values.items(), finalize=True)

    def _update(self) -> None:
        if not self._shown or time.monotonic() < self._start:
            return
        if self._bar is None:
            self._bar = keras.utils.Progbar(
                None, stateful_metrics=VALUES, unit_name="batch"
            )
        self._bar.update(self._batches, self._values.items())


def _is_interactive() -> bool:
    """Returns whether output goes to a terminal or notebook and Keras may log."""
    terminal = hasattr(sys.stdout, "isatty") and sys.stdout.isatty()
    notebook = "ipykernel" in sys.modules
    return (terminal or notebook) and keras.config.is_interactive_logging_enabled()
