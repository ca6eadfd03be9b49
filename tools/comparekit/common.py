"""What every part of the comparison needs: where things are, errors, the progress bar."""

import os
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
RELEASE_DIRECTORY = CHECKOUT / "build" / "release"
RESULTS_DIRECTORY = CHECKOUT / "build" / "compare"

EXIT_FAILED = 1     # Something was not measured, or on a noisy machine.
EXIT_BAD_INPUT = 2


class BadInput(Exception):
    """What the user has to mend: one line with the thing, the value and the remedy."""


class MeasureError(Exception):
    """One contestant measured nothing that counts: one line with the reason."""


class Progress:
    """A bar on a terminal's standard error; elsewhere a line now and then."""

    WIDTH = 24

    def __init__(self, total):
        self._total = total
        self._done = 0
        self._start = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def show(self, text):
        """Says what is being done now."""
        fraction = min(self._done / self._total, 1.0) if self._total else 1.0
        if not self._terminal:
            print(f"compare: {fraction:4.0%} {text}", file=sys.stderr, flush=True)
            return
        filled = round(fraction * self.WIDTH)
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
        bar = "#" * filled + "." * (self.WIDTH - filled)
        line = f"[{bar}] {fraction:4.0%}{self._left(fraction)} {text}"
        sys.stderr.write(f"\r\033[K{line[:max(columns - 1, 0)]}")
        sys.stderr.flush()

    def advance(self, seconds):
        """What `seconds` of the expected total stood for is done."""
        self._done += seconds

    def note(self, text):
        """A line that stays."""
        self.clear()
        print(f"compare: {text}", file=sys.stderr, flush=True)

    def clear(self):
        if self._terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _left(self, fraction):
        if fraction < 0.05:
            return ""
        seconds = round((time.monotonic() - self._start) * (1 - fraction) / fraction)
        return f" {seconds // 60}:{seconds % 60:02} left"
