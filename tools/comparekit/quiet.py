"""A quiet machine: what to wait for before a run, and when a run counts as disturbed."""

import time

from . import cpu

NOISY_TRIES = 3
_LOOK_S = 0.5
_PATIENCE_S = 20         # Before a run.
_ALL_PATIENCE_S = 180    # For all waiting and repeating: it shall not take hours.


class Quiet:
    """Of all runs of a comparison. What it says of one is why it is noisy; None: it is not."""

    def __init__(self, options):
        self._limit = options.noise_limit / 100
        self._left_s = 0 if options.accept_noise else _ALL_PATIENCE_S

    def wait(self):
        """Before a run."""
        start = time.monotonic()
        share = cpu.wait_for_quiet(self._limit, min(max(self._left_s, 0), _PATIENCE_S), _LOOK_S)
        self._left_s -= max(time.monotonic() - start - _LOOK_S, 0)
        return None if share is None else f"others used {share:.0%} of the processors before it"

    def during(self, use):
        """Behind a run, of the cpu.MachineUse that began with it."""
        share = use.others()
        return None if share < self._limit else f"others used {share:.0%} of the processors during it"

    def repeats(self, noisy, seconds):
        """Whether a run that took so long is made again."""
        if noisy is None or self._left_s <= 0:
            return False
        self._left_s -= seconds
        return True
