"""Metrics of one run, computed from its records and from nothing else.

Formulas stand in ``docs/metrics.md``; names, units and directions in ``sim.results.names``.
A metric without any observation is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.results.names import METRICS, STATISTICS
from sim.results.run_records import Columns, Int64, RunRecords
from sim.results.stability import Stability, judge_stability
from sim.results.window import Warmup, Window, measured_requests, measured_window
from sim.units import NS_PER_MS, NS_PER_S, Config, DurationNs

Float64 = NDArray[np.float64]
PERCENTILES: Final = (50, 90, 99)
_STEP_NAMES: Final = (
    *("start_ns", "end_ns", "sequences", "decodes", "tokens", "logits", "drafted", "emitted", "depth"),
    *("kv_blocks", "preempted", "replica"),
)
"""Columns of steps that metrics are computed from; the others are not copied."""


class Slo(Config):
    """What a request must meet to count as good: limits such as ``200ms``, held in ns.

    ``None`` is no limit.
    """

    ttft: DurationNs | None = None
    tpot: DurationNs | None = None
    e2el: DurationNs | None = None


NO_SLOS: Final[Mapping[str, Slo]] = MappingProxyType({})


@dataclass(frozen=True)
class Metrics:
    """Metrics of one run by name, in the order of ``METRICS``, with the window they describe."""

    values: dict[str, float]
    window: Window
    stability: Stability

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    @property
    def unstable(self) -> bool:
        """Whether the backlog grew, so that no mean of this run means anything."""
        return self.stability.unstable


@dataclass(frozen=True)
class Latencies:
    """Latencies in ns of some requests, arrays in one order; ``tpot`` is NaN with one output token."""

    ttft: Float64
    tpot: Float64
    e2el: Float64
    client_wait: Float64

    @classmethod
    def of(cls, records: RunRecords, rows: Int64) -> Latencies:
        """Latencies of the finished requests in ``rows``, counted from their origin."""
        column = {name: values[rows] for name, values in records.requests.items()}
        origin = records.origin_ns[rows]
        after_first = np.where(column["output_tokens"] > 1, column["output_tokens"] - 1.0, np.nan)
        return cls(
            ttft=(column["first_token_ns"] - origin).astype(np.float64),
            tpot=(column["finish_ns"] - column["first_token_ns"]) / after_first,
            e2el=(column["finish_ns"] - origin).astype(np.float64),
            client_wait=(column["sent_ns"] - column["arrival_ns"]).astype(np.float64),
        )


def measure(
    records: RunRecords,
    warmup: Warmup = "mser5",
    slos: Mapping[str, Slo] = NO_SLOS,
    flops_per_step: Float64 | None = None,
    bytes_per_step: Float64 | None = None,
) -> Metrics:
    """Metrics of one run.

    ``slos`` gives limits by class name; a class without any is met by every request, and with no
    limits at all goodput is NaN. ``flops_per_step`` and ``bytes_per_step`` have one entry per
    step. Raises ``InputError`` when the warm-up leaves nothing.
    """
    window = measured_window(records, warmup)
    work = {"flops_per_token": flops_per_step, "bytes_per_token": bytes_per_step}
    found = {
        **_request_metrics(records, window, slos),
        **_gap_metrics(records, window),
        **_step_metrics(records, window, work),
        "warmup_requests": float(window.skipped),
        "unfinished_share": records.unfinished_share,
        **_fleet_metrics(records),
        "timed_out_share": records.timed_out_share,
    }
    return Metrics({name: found[name] for name in METRICS}, window, judge_stability(records))


def weighted_percentiles(values: Int64, counts: Int64, percentiles: tuple[int, ...]) -> list[float]:
    """Percentiles of ``np.repeat(values, counts)``, linear between neighbours, without repeating."""
    order = np.argsort(values)  # equal values may stand in any order: what is looked up is a value
    seen = np.cumsum(counts[order])
    if not len(seen) or seen[-1] == 0:
        return [float("nan")] * len(percentiles)
    rank = np.asarray(percentiles) / 100 * (seen[-1] - 1)
    below = np.floor(rank)
    low, high = (values[order][np.searchsorted(seen, at, side="right")] for at in (below, np.ceil(rank)))
    return [float(value) for value in low + (high - low) * (rank - below)]


def meets_slo(records: RunRecords, rows: Int64, slos: Mapping[str, Slo]) -> NDArray[np.bool_]:
    """Whether each request in ``rows`` meets every limit of its class; one token has no TPOT to miss."""
    latencies = Latencies.of(records, rows)
    class_id = records.requests["class_id"][rows]
    good = np.ones(len(rows), dtype=np.bool_)
    for number, name in enumerate(records.classes):
        slo = slos.get(name, Slo())
        for limit, latency in (
            (slo.ttft, latencies.ttft),
            (slo.tpot, latencies.tpot),
            (slo.e2el, latencies.e2el),
        ):
            if limit is not None:
                good &= (class_id != number) | ~(latency > limit)
    return good


def _request_metrics(records: RunRecords, window: Window, slos: Mapping[str, Slo]) -> dict[str, float]:
    rows = measured_requests(records, window)
    latencies = Latencies.of(records, rows)
    tpot = latencies.tpot[~np.isnan(latencies.tpot)]
    return {
        **_summary("ttft", latencies.ttft),
        **_summary("tpot", tpot),
        **_summary("e2el", latencies.e2el),
        **_summary("client_wait", latencies.client_wait),
        **_rates(records, window, rows, slos),
        **_acceptance({name: values[rows] for name, values in records.requests.items()}),
        "window_requests": float(len(rows)),
    }


def _rates(records: RunRecords, window: Window, rows: Int64, slos: Mapping[str, Slo]) -> dict[str, float]:
    """Requests and good requests that finish in the window, per second, and the share that is good.

    A request whose client gave up met no limit; the window has the run's share of them.
    """
    finish = records.requests["finish_ns"]
    done = np.flatnonzero((finish > window.start_ns) & (finish <= window.end_ns))
    answered = 1 - records.timed_out_share
    return {
        "requests_per_s": _ratio(len(done), window.seconds),
        "goodput_per_s": _ratio(meets_slo(records, done, slos).sum(), window.seconds) if slos else np.nan,
        "slo_share": answered * _ratio(meets_slo(records, rows, slos).sum(), len(rows)) if slos else np.nan,
    }


def _acceptance(requests: Columns) -> dict[str, float]:
    """Acceptance length 1 + accepted/rounds, and the share of verified drafts that were rejected.

    Without any draft every round emits exactly one token and nothing is wasted.
    """
    rounds, drafted, accepted = (int(requests[name].sum()) for name in ("rounds", "drafted", "accepted"))
    return {
        "acceptance_length": 1 + accepted / rounds if rounds else 1.0,
        "draft_waste_share": 1 - accepted / drafted if drafted else 0.0,
    }


def _gap_metrics(records: RunRecords, window: Window) -> dict[str, float]:
    """Gaps that end in the window."""
    gaps, counts, end = records.chunk_gaps
    inside = (end > window.start_ns) & (end <= window.end_ns)
    gaps, counts = gaps[inside], counts[inside]
    percentiles = weighted_percentiles(gaps, counts, PERCENTILES)
    mean = _ratio((gaps.astype(np.float64) * counts).sum(), counts.sum())
    names = (f"itl_{statistic}_ms" for statistic in STATISTICS)
    return dict(zip(names, (value / NS_PER_MS for value in (mean, *percentiles)), strict=True))


def _step_metrics(
    records: RunRecords, window: Window, work: Mapping[str, Float64 | None]
) -> dict[str, float]:
    """Metrics of the steps that end in the window; utilisation clips those that straddle its start."""
    end = records.steps["end_ns"]
    inside = (end > window.start_ns) & (end <= window.end_ns)
    columns: Columns = {name: records.steps[name][inside] for name in _STEP_NAMES if name in records.steps}
    emitted = int(columns["emitted"].sum())
    return {
        **_step_latency(columns["end_ns"] - columns["start_ns"]),
        **_step_shape(columns),
        "depth_flips_per_s": _ratio(_flips(columns), window.seconds),
        "output_tokens_per_s": _ratio(emitted, window.seconds),
        "preemptions": float(columns["preempted"].sum()),
        "kv_peak_share": _kv_peak(columns, records),
        "busy_share": _busy_share(records, window),
        **{
            name: np.nan if values is None else _ratio(values[inside].sum(), emitted)
            for name, values in work.items()
        },
    }


def _step_latency(took_ns: Int64) -> dict[str, float]:
    summary = _summary("step", took_ns.astype(np.float64))
    del summary["step_p90_ms"]
    return summary


def _step_shape(steps: Columns) -> dict[str, float]:
    """Depth per decoding step, sequences weighted by time, and verified positions that gave no output."""
    took = steps["end_ns"] - steps["start_ns"]
    decoding = steps["decodes"] > 0
    depths = steps["drafted"][decoding] / steps["decodes"][decoding]
    in_vain = int(steps["logits"].sum()) - int(steps["emitted"].sum())
    return {
        "depth_mean": float(depths.mean()) if len(depths) else np.nan,
        "batch_mean": _ratio((steps["sequences"] * took).sum(), took.sum()),
        "step_waste_share": _ratio(in_vain, steps["tokens"].sum()),
    }


def _flips(steps: Columns) -> int:
    """How often the largest depth differs from that of the replica's decoding step before."""
    decoding = steps["decodes"] > 0
    changed = np.diff(steps["depth"][decoding]) != 0
    if "replica" in steps:
        changed &= np.diff(steps["replica"][decoding]) == 0
    return int(np.count_nonzero(changed))


def _busy_share(records: RunRecords, window: Window) -> float:
    """Time in steps over the time for which replicas were paid."""
    start = np.maximum(records.steps["start_ns"], window.start_ns)
    end = np.minimum(records.steps["end_ns"], window.end_ns)
    busy = np.maximum(end - start, 0).sum()
    if records.fleet is not None:
        return _ratio(busy, float(records.fleet.paid_ns(window.start_ns, window.end_ns).sum()))
    return _ratio(busy, window.end_ns - window.start_ns) / records.replicas


def _kv_peak(steps: Columns, records: RunRecords) -> float:
    """Largest share of its blocks that a replica held; replicas may differ in how many they have."""
    total: float | Int64 = records.kv_blocks_total
    if records.fleet is not None:
        total = records.fleet.kv_blocks[steps["replica"]]
    return float((steps["kv_blocks"] / total).max(initial=0)) if records.kv_blocks_total else float("nan")


def _fleet_metrics(records: RunRecords) -> dict[str, float]:
    """What failures cost, and for how long replicas were paid, over the whole run."""
    fleet = records.fleet
    if fleet is not None:
        mean = _ratio(float(fleet.paid_ns().sum()), fleet.end_ns)
        return {
            "failed_share": records.failed_share,
            "retries": float(fleet.retried),
            "replicas_mean": mean,
            "replica_hours": fleet.replica_hours,
            "gpu_hours": fleet.gpu_hours,
        }
    end_ns = int(records.requests["finish_ns"].max(initial=0))
    hours = records.replicas * end_ns / NS_PER_S / 3600
    return {
        "failed_share": 0.0,
        "retries": 0.0,
        "replicas_mean": float(records.replicas),
        "replica_hours": hours,
        "gpu_hours": np.nan,
    }


def _summary(name: str, values_ns: Float64) -> dict[str, float]:
    """Mean and percentiles in ms; percentiles are NumPy's linear ones, as vLLM bench takes them."""
    statistics = [np.nan] * len(STATISTICS)
    if len(values_ns):
        statistics = [float(values_ns.mean()), *np.percentile(values_ns, PERCENTILES).tolist()]
    return {f"{name}_{s}_ms": value / NS_PER_MS for s, value in zip(STATISTICS, statistics, strict=True)}


def _ratio(over: float | np.number, under: float | np.number) -> float:
    return float(over) / float(under) if under else float("nan")
