"""Small records and results to test with: queues solved by their recursion, and plain metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.results.compare import PolicyResult
from sim.results.metrics import Metrics
from sim.results.names import METRICS
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS
from sim.results.run_records import Columns, RunRecords
from sim.results.stability import Stability
from sim.results.window import Window
from sim.units import NS_PER_S

Float64 = NDArray[np.float64]


def columns(names: Sequence[str], rows: int, given: dict[str, object]) -> Columns:
    """Columns of zeros, but for those given (sequences of ``rows`` numbers)."""
    filled = {name: np.zeros(rows, dtype=np.int64) for name in names}
    return filled | {name: np.asarray(values, dtype=np.int64) for name, values in given.items()}


def requests(arrival_ns: object, finish_ns: object, **given: object) -> Columns:
    """Requests of one output token, sent on arrival and finished with their first token, unless given."""
    arrival, finish = (np.asarray(times, dtype=np.int64) for times in (arrival_ns, finish_ns))
    plain: dict[str, object] = {
        "request": np.arange(len(arrival)),
        "arrival_ns": arrival,
        "sent_ns": arrival,
        "scheduled_ns": arrival,
        "first_token_ns": finish,
        "finish_ns": finish,
        "prompt_tokens": np.ones(len(arrival)),
        "output_tokens": np.ones(len(arrival)),
    }
    return columns(REQUEST_COLUMNS, len(arrival), plain | given)


def steps(start_ns: object = (), end_ns: object = (), **given: object) -> Columns:
    """Steps with the columns given and zeros elsewhere."""
    rows = len(np.asarray(start_ns))
    return columns(STEP_COLUMNS, rows, {"start_ns": start_ns, "end_ns": end_ns} | given)


def run(
    of_requests: Columns,
    of_steps: Columns | None = None,
    gaps: tuple[Sequence[int], Sequence[int]] = ((), ()),
    unfinished: int = 0,
    gaps_end: int = 1,
    classes: tuple[str, ...] = ("default",),
) -> RunRecords:
    """A run whose last arrival is that of its last request."""
    return RunRecords(
        requests=of_requests,
        steps=steps() if of_steps is None else of_steps,
        chunk_gaps=(*(np.asarray(each, dtype=np.int64) for each in gaps), np.full(len(gaps[0]), gaps_end)),
        unfinished=unfinished,
        classes=classes,
        last_arrival_ns=int(of_requests["arrival_ns"].max(initial=0)),
        kv_blocks_total=100,
        max_num_seqs=8,
    )


def departures(arrival: Float64, service: Float64) -> Float64:
    """Lindley's recursion for one server, d_i = max(a_i, d_(i-1)) + s_i, in closed form."""
    work = np.cumsum(service)
    left: Float64 = work + np.maximum.accumulate(arrival - (work - service))
    return left


def queue_run(rng: np.random.Generator, count: int, rho: float, law: str) -> RunRecords:
    """An M/M/1 (``law`` M) or M/D/1 (D) queue with mean service of one second at load ``rho``."""
    arrival = np.cumsum(rng.exponential(1 / rho, count))
    service = rng.exponential(1.0, count) if law == "M" else np.ones(count)
    finish = departures(arrival, service)
    return run(requests(np.rint(arrival * NS_PER_S), np.rint(finish * NS_PER_S)))


def metrics(unstable: bool = False, **values: float) -> Metrics:
    """Metrics of one run: NaN but for those given."""
    stability = Stability(unfinished_share=0.5 if unstable else 0.0)
    return Metrics(dict.fromkeys(METRICS, np.nan) | values, Window(0, NS_PER_S, 0), stability)


def policy(
    label: str, tpot_ms: Sequence[float], *, unstable: bool = False, bound: bool = False
) -> PolicyResult:
    """A policy with one mean TPOT per seed, and a throughput that goes with it."""
    runs = (metrics(unstable, tpot_mean_ms=ms, output_tokens_per_s=1000 / ms) for ms in tpot_ms)
    return PolicyResult(label, tuple(runs), bound)
