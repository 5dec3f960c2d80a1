"""A simulated run as a benchmark client would have reported it.

Clients measure everything from the first sending to the last answer, ramp and drain included, while
``sim.results.metrics`` measures a window; so that like is compared with like, whole runs are taken
here, and latencies count from the sending.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.against.measured import completed, statistics
from sim.results.metrics import PERCENTILES, weighted_percentiles
from sim.results.run_records import RunRecords
from sim.units import NS_PER_MS, NS_PER_S

Floats = NDArray[np.float64]


class Observed(NamedTuple):
    """Metrics of one run, and the relative standard deviation that luck gives its acceptance length."""

    metrics: dict[str, float]
    luck: float


def observe(records: RunRecords) -> Observed:
    """What the run shows a client, and how much of its acceptance is luck."""
    return Observed(observed(records), _luck(records))


def _luck(records: RunRecords) -> float:
    """Of 1 + sum accepted / sum rounds, from how requests differ (the delta method for a ratio)."""
    rounds, accepted = (records.requests[name].astype(np.float64) for name in ("rounds", "accepted"))
    if not rounds.sum():
        return 0.0
    ratio = accepted.sum() / rounds.sum()
    return float(np.sqrt(((accepted - ratio * rounds) ** 2).sum()) / rounds.sum() / (1 + ratio))


def observed(records: RunRecords) -> dict[str, float]:
    """Metrics of the whole run, named as those of a measured one."""
    done = records.requests["finish_ns"] >= 0
    column = {name: values[done] for name, values in records.requests.items()}
    seconds = (column["finish_ns"].max() - column["sent_ns"].min()) / NS_PER_S
    output = column["output_tokens"]
    rounds, accepted = int(column["rounds"].sum()), int(column["accepted"].sum())
    found = {
        **_latencies(column),
        **_gaps(records),
        "requests_per_s": len(output) / seconds,
        "output_tokens_per_s": float(output.sum()) / seconds,
        "prompt_tokens_mean": float(column["prompt_tokens"].mean()),
        "output_tokens_mean": float(output.mean()),
    }
    return completed({**found, "acceptance_length": 1 + accepted / rounds} if rounds else found)


def _latencies(column: dict[str, NDArray[np.int64]]) -> dict[str, float]:
    sent, first, finish = column["sent_ns"], column["first_token_ns"], column["finish_ns"]
    many = column["output_tokens"] > 1
    after = (finish - first)[many] / NS_PER_MS
    tokens = column["output_tokens"][many] - 1
    found = {
        **statistics("ttft", _ms(first - sent)),
        **statistics("tpot", (after / tokens).tolist()),
        **statistics("e2el", _ms(finish - sent)),
    }
    return {**found, "tpot_by_token_mean_ms": float(after.sum() / tokens.sum())} if len(tokens) else found


def _ms(values_ns: NDArray[np.int64]) -> list[float]:
    return [float(value) for value in values_ns / NS_PER_MS]


def _gaps(records: RunRecords) -> dict[str, float]:
    """ITL: gaps between streamed chunks, each as often as it came."""
    gaps, counts, _ = records.chunk_gaps
    if not counts.sum():
        return {}
    mean = float((gaps.astype(np.float64) * counts).sum() / counts.sum())
    values = [mean, *weighted_percentiles(gaps, counts, PERCENTILES)]
    keys = ("mean", "p50", "p90", "p99")
    return {f"itl_{key}_ms": value / NS_PER_MS for key, value in zip(keys, values, strict=True)}
