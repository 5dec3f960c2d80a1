"""What each group of a fleet did in one run: the groups side by side, as a canary is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.results.fleet_record import FAILED, RETRIED, FleetRecord
from sim.results.metrics import Latencies
from sim.results.run_records import Int64, RunRecords
from sim.results.window import Window, measured_requests
from sim.units import NS_PER_MS, NS_PER_S


@dataclass(frozen=True)
class GroupResult:
    """One group: ``requests`` are those of the window that were answered there.

    Of a group that only computes prompts they are those whose prompt it computed. Latencies are in ms,
    NaN without any; ``failed`` and ``retried`` count what its failures cost over the whole run.
    """

    name: str
    role: str
    replicas: float
    requests: int
    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_mean_ms: float
    acceptance_length: float
    busy_share: float
    kv_peak_share: float
    failed: int
    retried: int
    replica_hours: float


def by_group(records: RunRecords, window: Window) -> tuple[GroupResult, ...]:
    """Every group of a fleet, in order; none where replicas are equal and nothing befell them."""
    fleet = records.fleet
    if fleet is None:
        return ()
    return tuple(_result(records, fleet, number, window) for number in range(len(fleet.names)))


def _result(records: RunRecords, fleet: FleetRecord, number: int, window: Window) -> GroupResult:
    own = fleet.group == number
    rows = measured_requests(records, window)
    column = "prefill_replica" if fleet.roles[number] == "prefill" else "replica"
    served = records.requests[column][rows]
    rows = rows[(served >= 0) & own[served]]
    mine = Latencies.of(records, rows)
    paid = fleet.paid_ns(window.start_ns, window.end_ns)[own].sum()
    lost = own[fleet.moves["replica"]] & (fleet.moves["replica"] >= 0)
    return GroupResult(
        name=fleet.names[number],
        role=fleet.roles[number],
        replicas=float(paid) / max(window.end_ns - window.start_ns, 1),
        requests=len(rows),
        ttft_p50_ms=_percentile(mine.ttft, 50),
        ttft_p99_ms=_percentile(mine.ttft, 99),
        tpot_mean_ms=_mean(mine.tpot[~np.isnan(mine.tpot)]),
        acceptance_length=_acceptance(records, rows),
        busy_share=_busy_ns(records, own, window) / paid if paid else float("nan"),
        kv_peak_share=_kv_peak(records, own, fleet.kv_blocks),
        failed=int(np.count_nonzero(lost & (fleet.moves["what"] == FAILED))),
        retried=int(np.count_nonzero(lost & (fleet.moves["what"] == RETRIED))),
        replica_hours=float(fleet.paid_ns()[own].sum()) / NS_PER_S / 3600,
    )


def of_replicas(records: RunRecords, numbers: Int64) -> RunRecords:
    """The same run with the steps of some replicas alone, for what looks into steps."""
    kept = np.isin(records.steps["replica"], numbers)
    return replace(records, steps={name: values[kept] for name, values in records.steps.items()})


def _acceptance(records: RunRecords, rows: Int64) -> float:
    rounds, accepted = (int(records.requests[name][rows].sum()) for name in ("rounds", "accepted"))
    return 1 + accepted / rounds if rounds else 1.0


def _busy_ns(records: RunRecords, own: NDArray[np.bool_], window: Window) -> float:
    steps = records.steps
    mine = own[steps["replica"]]
    start = np.maximum(steps["start_ns"][mine], window.start_ns)
    return float(np.maximum(np.minimum(steps["end_ns"][mine], window.end_ns) - start, 0).sum())


def _kv_peak(records: RunRecords, own: NDArray[np.bool_], blocks: Int64) -> float:
    mine = own[records.steps["replica"]]
    held, replica = records.steps["kv_blocks"][mine], records.steps["replica"][mine]
    return float((held / blocks[replica]).max(initial=0))


def _percentile(values: NDArray[np.float64], which: int) -> float:
    return float(np.percentile(values, which)) / NS_PER_MS if len(values) else float("nan")


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) / NS_PER_MS if len(values) else float("nan")
