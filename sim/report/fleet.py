"""The fleet of each load: its groups side by side, and how many replicas ran when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sim.report.examples import Examples
from sim.report.layout import Layout, Place
from sim.report.model import Table
from sim.results.groups import GroupResult, by_group
from sim.results.run_records import RunRecords
from sim.results.terminal import number, share
from sim.results.window import measured_window
from sim.units import NS_PER_S

MOST_CHANGES: Final = 40
"""Changes of the number of replicas in one table; later ones are left out."""
_COLUMNS: Final = (
    *("policy", "group", "role", "replicas", "requests", "TTFT p50, ms", "TTFT p99, ms", "TPOT mean, ms"),
    *("acceptance length", "utilisation", "KV peak", "failed", "sent again", "replica hours"),
)


def fleet_tables(layout: Layout, examples: Examples) -> tuple[Table, ...]:
    """Two tables per load whose replicas differ, come and go, or fail; none elsewhere."""
    fleets = [place for place in layout.places if not place.cell.scenario.fleet.plain]
    return tuple(table for place in fleets for table in _tables(place, examples))


def _tables(place: Place, examples: Examples) -> Iterator[Table]:
    runs = {policy.label: examples.whole(place, policy.label) for policy in place.compared.policies}
    rows = [
        _row(label, group)
        for label, run in runs.items()
        for group in by_group(run, measured_window(run, place.cell.scenario.run.warmup))
    ]
    note = (
        f"Seed {examples.seed}. Requests of the measured window, by the replica that answered (prefill "
        "groups: that computed the prompt); failures and hours over the whole run."
    )
    yield Table(f"Fleet at {place.name}", _COLUMNS, tuple(rows), note)
    if any(len(_counts(run)) > 1 for run in runs.values()):
        changes = [(label, *each) for label, run in runs.items() for each in _counts(run)[:MOST_CHANGES]]
        note = f"Replicas that take requests, from each time on; the first {MOST_CHANGES} changes."
        yield Table(
            f"Replicas over time at {place.name}", ("policy", "from, s", "replicas"), tuple(changes), note
        )


def _row(label: str, group: GroupResult) -> tuple[str, ...]:
    times = (group.ttft_p50_ms, group.ttft_p99_ms, group.tpot_mean_ms, group.acceptance_length)
    shares = (share(group.busy_share), share(group.kv_peak_share))
    counts = (str(group.failed), str(group.retried), number(group.replica_hours))
    head = (label, group.name, group.role, number(group.replicas), f"{group.requests:,}")
    return (*head, *(number(each) for each in times), *shares, *counts)


def _counts(run: RunRecords) -> list[tuple[str, str]]:
    """(seconds, replicas) whenever the number changed."""
    if run.fleet is None:
        return []
    times, counts = run.fleet.counts()
    return [(number(t / NS_PER_S), str(n)) for t, n in zip(times.tolist(), counts.tolist(), strict=True)]
