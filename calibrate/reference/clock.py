"""The engine's clock: what its own thread computed, or the wall where a device computes beside it."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

Clock = Callable[[], int]
"""Nanoseconds from any origin."""


def clock_for(device: torch.device) -> Clock:
    """CPU time of this thread (hardly disturbed by other load; torch must run on one thread), or the wall."""
    if device.type == "cpu":
        return time.thread_time_ns
    return lambda: _finished(device)


def _finished(device: torch.device) -> int:
    torch.cuda.synchronize(device)
    return time.perf_counter_ns()


class Stopwatch:
    """Where a step's time goes: every lap is added to one name. Nothing is left out between laps."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._mark = clock, clock()
        self.spent: dict[str, int] = {}

    def lap(self, name: str) -> None:
        """Charge the time since the last lap to ``name``."""
        now = self._clock()
        self.spent[name] = self.spent.get(name, 0) + now - self._mark
        self._mark = now

    def start_run(self) -> None:
        """Forget what happened before."""
        self._mark, self.spent = self._clock(), {}

    def take(self) -> dict[str, int]:
        """The times since the last ``take``, by name."""
        spent, self.spent = self.spent, {}
        return spent
