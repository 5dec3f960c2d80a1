"""Which part of a run is measured: after the warm-up, and before the drain.

The window of an open loop ends at the last arrival and that of a closed loop at the last
sending: afterwards the system empties, which says nothing about the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.errors import InputError
from sim.results.run_records import Int64, RunRecords
from sim.results.stability import judge_stability
from sim.units import NS_PER_S, Config, DurationNs

MSER_BATCH = 5


class RequestsCut(Config):
    """Leave out the first ``requests`` requests, in order of arrival."""

    requests: int = Field(ge=0)


class TimeCut(Config):
    """Leave out what arrives before ``time``, a duration such as ``30s`` (held in ns)."""

    time: DurationNs


Warmup = Literal["mser5", "none"] | RequestsCut | TimeCut
"""How the warm-up is cut: found by MSER-5, not at all, or as stated."""


@dataclass(frozen=True)
class Window:
    """Measured stretch of one run.

    Measured are the requests after the first ``skipped`` in order of arrival, up to ``end_ns``,
    and the steps that end in (``start_ns``, ``end_ns``].
    """

    start_ns: int
    end_ns: int
    skipped: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / NS_PER_S


def mser(values: NDArray[np.float64], batch: int = MSER_BATCH) -> int:
    """Observations to leave out so that the mean of the rest is most certain (MSER-``batch``).

    Means of ``batch`` observations are formed; the cut d minimises sum((y - mean)^2) / (n - d)^2
    over the n - d means kept, with d in the first half. White, "An effective truncation heuristic
    for bias reduction in simulation output", Simulation 69(6), 1997; batches of five after White,
    Cobb and Spratt, WSC 2000.
    """
    means = values[: len(values) // batch * batch].reshape(-1, batch).mean(axis=1)
    if len(means) < 2:
        return 0
    # Centred first: the sums of squares below lose digits around a large mean.
    tail = (means - means.mean())[::-1]
    kept = np.arange(1, len(tail) + 1)
    squares = np.maximum(np.cumsum(tail**2) - np.cumsum(tail) ** 2 / kept, 0.0)
    statistic = (squares / kept**2)[::-1]
    return int(np.argmin(statistic[: len(means) // 2 + 1])) * batch


def arrival_order(records: RunRecords) -> Int64:
    """Row numbers of the requests in order of origin, equal ones by request number."""
    order: Int64 = np.lexsort((records.requests["request"], records.origin_ns))
    return order


def measured_requests(records: RunRecords, window: Window) -> Int64:
    """Row numbers of the finished requests that the window measures, in order of arrival."""
    kept = arrival_order(records)[window.skipped :]
    inside = (records.origin_ns[kept] <= window.end_ns) & (records.requests["finish_ns"][kept] >= 0)
    return kept[inside]


def measured_window(records: RunRecords, warmup: Warmup = "mser5") -> Window:
    """The window of a run; raises ``InputError`` when the stated warm-up leaves no request."""
    origin = np.sort(records.origin_ns, kind="stable")
    end = _end_ns(records)
    skipped = warmup_requests(records, warmup)
    if skipped and skipped >= len(origin):
        raise InputError(
            f"warmup: {_describe(warmup)} leaves none of {len(origin)} requests; "
            "shorten it or lengthen the run"
        )
    start = warmup.time if isinstance(warmup, TimeCut) else int(origin[skipped]) if skipped else 0
    if start >= end:
        end = max(start, int(records.requests["finish_ns"].max(initial=0)))
    return Window(start, end, skipped)


def warmup_requests(records: RunRecords, warmup: Warmup) -> int:
    """Requests that a rule leaves out, counted in order of arrival."""
    if isinstance(warmup, RequestsCut):
        return warmup.requests
    if isinstance(warmup, TimeCut):
        return int(np.count_nonzero(records.origin_ns < warmup.time))
    return 0 if warmup == "none" else _mser_cut(records)


def common_warmup(runs: Sequence[RunRecords], warmup: Warmup) -> Warmup:
    """One cut for all policies of one seed: the longest that the rule finds among the stable runs.

    Paired differences compare the same requests only if every policy leaves out the same ones.
    """
    return longest_cut([own_cut(records) for records in runs], warmup) if warmup == "mser5" else warmup


def longest_cut(cuts: Sequence[int | None], warmup: Warmup) -> Warmup:
    """As ``common_warmup``, from the ``own_cut`` of every run."""
    if warmup != "mser5":
        return warmup
    return RequestsCut(requests=max((cut for cut in cuts if cut is not None), default=0))


def own_cut(records: RunRecords) -> int | None:
    """Requests that MSER-5 leaves out of one run; ``None`` where it is unstable and has no say."""
    return None if judge_stability(records).unstable else _mser_cut(records)


def _mser_cut(records: RunRecords) -> int:
    """MSER-5 over the finished requests' E2EL in order of arrival."""
    order = arrival_order(records)
    finish, origin = records.requests["finish_ns"][order], records.origin_ns[order]
    finished = np.flatnonzero(finish >= 0)
    cut = mser((finish - origin)[finished].astype(np.float64))
    return int(finished[cut]) if cut else 0


def _end_ns(records: RunRecords) -> int:
    """Last arrival; in a closed loop the last sending, or the last finish if all were sent at once."""
    if not records.closed_loop:
        return records.last_arrival_ns
    last_sent = int(records.requests["sent_ns"].max(initial=0))
    return last_sent if last_sent > 0 else int(records.requests["finish_ns"].max(initial=0))


def _describe(warmup: Warmup) -> str:
    if isinstance(warmup, RequestsCut):
        return f"{warmup.requests} requests"
    return f"{warmup.time / NS_PER_S:g}s" if isinstance(warmup, TimeCut) else warmup
