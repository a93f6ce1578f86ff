"""Shows the progress of an eigenvalue search."""

import sys
import time

import keras

SHOWN = ("eigenvalue", "relative residual")
QUIET = 2.0  # seconds that "auto" shows nothing for


class Progress:
    """Shows the batches so far, the first eigenvalue and its residual.

    Args:
        verbose: 1, 0 for nothing, or "auto": after some seconds, where somebody may be
            looking.

    Raises:
        ValueError: `verbose` is something else.
    """

    def __init__(self, verbose):
        if verbose not in ("auto", 0, 1):
            raise ValueError(
                f'`verbose` must be "auto", 0 or 1. Received: verbose={verbose!r}.'
            )
        self._shown = verbose == 1 or (verbose == "auto" and _is_watched())
        self._quiet_until = time.monotonic() + (QUIET if verbose == "auto" else 0.0)
        self._bar = None
        self._batches = 0
        self._values = {}

    def batch(self):
        """To be called after every batch."""
        self._batches += 1
        self._update()

    def product(self, value, residual):
        """To be called after every product, with the first eigenvalue so far."""
        relative = residual / abs(value) if value else residual
        self._values = dict(zip(SHOWN, (value, relative), strict=True))
        self._update()

    def end(self):
        """To be called when no more products follow."""
        if self._bar is not None:
            self._bar.update(self._batches, self._values.items(), finalize=True)

    def _update(self):
        if not self._shown or time.monotonic() < self._quiet_until:
            return
        if self._bar is None:
            self._bar = keras.utils.Progbar(
                None, stateful_metrics=SHOWN, unit_name="batch"
            )
        self._bar.update(self._batches, self._values.items())


def _is_watched():
    """Whether somebody may be looking, and wants Keras to show progress."""
    terminal = hasattr(sys.stdout, "isatty") and sys.stdout.isatty()
    notebook = "ipykernel" in sys.modules
    return (terminal or notebook) and keras.config.is_interactive_logging_enabled()
