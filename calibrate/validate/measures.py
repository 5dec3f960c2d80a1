"""What is compared: the metrics of a whole run, engine and simulation measured by the same code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.cost.step_cost import StepCost
from sim.results.metrics import Latencies, measure
from sim.results.run_records import RunRecords
from sim.units import NS_PER_MS

Floats = NDArray[np.float64]
LATENCIES: Final = ("ttft", "tpot", "e2el")
JUDGED: Final = ("tpot_mean_ms", "e2el_mean_ms", "output_tokens_per_s")
"""The metrics that the rule is applied to."""
WORK: Final = ("verify", "accept", "draft", "host")
COMPARED: Final = (
    *(f"{name}_{statistic}_ms" for name in LATENCIES for statistic in ("mean", "p50", "p95")),
    "output_tokens_per_s",
    "acceptance_length",
    "steps",
    "batch_mean",
)


def metrics_of(records: RunRecords) -> dict[str, float]:
    """All compared metrics of one run, warm-up and drain included: both sides have the same requests."""
    whole = _whole(records)
    measured = measure(whole, "none")
    latencies = Latencies.of(whole, np.arange(len(whole.requests["request"])))
    p95 = {f"{name}_p95_ms": _p95(getattr(latencies, name)) for name in LATENCIES}
    found = {**measured.values, **p95, "steps": float(len(records.steps["tokens"]))}
    return {name: found[name] for name in COMPARED}


def _p95(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.percentile(known, 95)) / NS_PER_MS if len(known) else float("nan")


def _whole(records: RunRecords) -> RunRecords:
    """The same run with its drain inside the window; latencies count from the same instants as before."""
    requests = {**records.requests, "arrival_ns": records.origin_ns}
    last = int(records.requests["finish_ns"].max(initial=1))
    return replace(records, requests=requests, last_arrival_ns=last)


@dataclass(frozen=True)
class StepError:
    """How far a profile is off on the steps that the engine took, as shares of the time they took.

    ``each`` is the mean over steps of the absolute error, ``total`` the error of their sum; then the sums
    over steps with and without prompts, and over one kind of work: target passes, sampling, and the
    drafter with the engine's loop (whose share per draft pass is priced with the pass).
    """

    each: float
    total: float
    decodes: float
    prompts: float
    verify: float
    accept: float
    rest: float


def step_error(records: RunRecords, cost: StepCost) -> StepError:
    """Price the engine's own steps, one by one."""
    priced = priced_steps(records, cost)
    took = np.stack([records.steps[f"{name}_ns"] for name in WORK], 1).astype(float)
    prompts = records.steps["prefill_tokens"] > 0
    return StepError(
        each=float(np.abs(priced.sum(axis=1) / took.sum(axis=1) - 1).mean()),
        total=_error(priced, took),
        decodes=_error(priced[~prompts], took[~prompts]),
        prompts=_error(priced[prompts], took[prompts]),
        verify=_error(priced[:, 0], took[:, 0]),
        accept=_error(priced[:, 1], took[:, 1]),
        rest=_error(priced[:, 2:], took[:, 2:]),
    )


def priced_steps(records: RunRecords, cost: StepCost) -> Floats:
    """Nanoseconds of every step's work by the cost tables, shape (steps, ``WORK``)."""
    columns = [column.tolist() for column in records.steps.values()]
    rows = [dict(zip(records.steps, values, strict=True)) for values in zip(*columns, strict=True)]
    return np.array([_priced(row, cost) for row in rows], dtype=float).reshape(-1, len(WORK))


def _priced(row: dict[str, int], cost: StepCost) -> tuple[float, float, float, float]:
    """Nanoseconds of one step's work, in the order of ``WORK``."""
    tokens, n, logits = row["tokens"], row["sequences"], row["logits"]
    context, query, pairs = row["context_tokens"], row["query_context_tokens"], row["prefill_pairs"]
    verify = cost.verify_ns(tokens, n, logits, context, query, pairs)
    draft, further = 0, row["draft_passes"] - 1
    if further >= 0:
        # A record holds the sums of the further passes; all are charged as their mean.
        read = (row["draft_context_tokens"] - context) // max(further, 1)
        rest = ((further, row["draft_next_tokens"] // further, read),) if further else ()
        draft = cost.draft_ns(row["draft_first_tokens"], n, context, query, pairs, rest)
    return verify, cost.accept.ns(tokens, n, logits), draft, cost.host.ns(tokens, n, logits)


def _error(priced: Floats, took: Floats) -> float:
    return float(priced.sum() / took.sum() - 1) if took.any() else 0.0
