"""Events of a fleet: they come before everything else of the same instant.

So the order at one instant is: what befalls the fleet and what it decides (in the order in which it
was planned), arrivals and departures of requests and of KV, ends of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import simpy
from simpy.events import Event, EventPriority

from sim.engine.client import At

_FIRST: Final = EventPriority(-1)


class Before(Event):
    """An event at a given time that comes before the arrivals of that time."""

    def __init__(self, env: simpy.Environment, time_ns: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, _FIRST, time_ns - int(env.now))


def when(event: At | Before, do: Callable[[], None]) -> None:
    """Let something be done at the event."""
    assert event.callbacks is not None
    event.callbacks.append(lambda _: do())
