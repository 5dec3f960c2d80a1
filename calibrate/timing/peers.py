"""Agreement among the processes that share one model: the first decides, all do the same.

Every pass of a tensor-parallel model waits for the other ranks inside its sums. Ranks that ran it a
different number of times would wait for ever, so whatever depends on a clock or on this rank's
memory is agreed on between passes. This module is free of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from calibrate.passes.contract import BenchError, Unsupported

T = TypeVar("T")


class PeerLost(BenchError):  # noqa: N818 - reads as a state at the raise
    """Another rank ended or failed where it was waited for."""


class Peers(Protocol):
    """The ranks of one model; rank 0 decides and is the only one that writes."""

    rank: int
    size: int

    def share(self, mine: T) -> list[T]:
        """Every rank's value in the order of ranks; returns when all have given one.

        Raises ``PeerLost`` when one never will.
        """
        ...


class Alone:
    """One process."""

    rank = 0
    size = 1

    def share(self, mine: T) -> list[T]:
        """The value itself."""
        return [mine]


ALONE = Alone()


def led(peers: Peers, value: T) -> T:
    """The value of rank 0, on every rank."""
    return peers.share(value)[0]


def together(peers: Peers, make: Callable[[], T]) -> T:
    """What ``make`` returns (it must not wait for other ranks), unless it raises on any rank.

    A rank where it raised raises the same, every other ``Unsupported`` with the first one's reason.
    """
    if peers.size == 1:
        return make()
    failure: Exception | None = None
    try:
        made = make()
    except Exception as error:
        failure = error
    reasons = peers.share(None if failure is None else str(failure) or type(failure).__name__)
    if failure is not None:
        raise failure
    for rank, reason in enumerate(reasons):
        if reason is not None:
            raise Unsupported(f"rank {rank}: {reason}")
    return made
