"""What benchmark clients write about acceptance: vLLM bench, AIPerf, and vLLM's own responses.

- ``vllm bench serve`` (vllm/benchmarks/serve.py): ``spec_decode_*``, differences of the server's
  counters over the run; ``spec_decode_acceptance_rate`` is accepted / drafted in percent.
- AIPerf (docs/tutorials/spec-decode-metrics.md): the summary has one pooled histogram of accepted
  drafts, its records one per request where the engine reports them, and
  ``server_metrics_export.json`` the engine's counters (their ``stats.total``: read in others'
  code, not in AIPerf's). GenAI-Perf, its predecessor, is not read.
- vLLM with ``--per-request-spec-decode-metrics`` (docs/features/speculative_decoding/
  acceptance_metrics.md): a histogram in every response, each round in order with ``detailed``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sim.acceptance.fit.engine_logs import COUNTER_MARK, counted_rates, group_of
from sim.acceptance.fit.evidence import Counted, Evidence, Request, survival_of
from sim.errors import InputError
from sim.workload.problems import Problems

POOLED = "pooled_spec_decode_acceptance_histogram"
HISTOGRAM = "acceptance_histogram"


def read_bench(file: str, report: Mapping[str, Any], depth: int | None) -> Evidence:
    """The counters of one ``vllm bench serve`` run."""
    rates = report.get("spec_decode_per_position_acceptance_rates") or []
    drafted, accepted, rounds = (
        float(report.get(f"spec_decode_{name}", 0))
        for name in ("draft_tokens", "accepted_tokens", "num_drafts")
    )
    try:
        if rates:
            return Evidence("vllm-bench", counted=(counted_rates(rates, drafted, accepted, rounds),))
    except (TypeError, ValueError) as error:
        raise InputError(f"{file}: spec_decode_per_position_acceptance_rates: {error}") from None
    depth = depth or (round(drafted / rounds) if rounds else None)
    length = report.get("spec_decode_acceptance_length")
    if not depth or not isinstance(length, int | float):
        raise InputError(f"{file}: has no spec_decode_* results; serve with speculation, or say --depth")
    return Evidence("vllm-bench", counted=(Counted(depth, float(length), rounds=rounds, drafted=drafted),))


def read_aiperf(file: str, report: Mapping[str, Any], depth: int | None) -> Evidence:
    """The pooled histogram of an AIPerf summary; its file does not say the depth."""
    histogram = _histogram(report[POOLED])
    notes = () if depth else ("The summary does not say the depth; it is taken to be the most accepted.",)
    depth = depth or max(histogram, default=0)
    rounds = sum(histogram.values())
    if not depth or not rounds:
        raise InputError(f"{file}: {POOLED} holds no round that accepted a draft; say --depth")
    if max(histogram) > depth:
        raise InputError(f"{file}: {POOLED} has rounds that accept {max(histogram)}, beyond --depth {depth}")
    survival = survival_of((a for a, n in histogram.items() for _ in range(n)), depth)
    return Evidence("aiperf", (Counted(depth, 1 + sum(survival), survival, rounds),), notes=notes)


def read_server_metrics(file: str, report: Mapping[str, Any], depth: int | None) -> Evidence:
    """The engine's counters in AIPerf's ``server_metrics_export.json``, summed over endpoints."""
    found: dict[str, float] = {}
    for name, metric in report["metrics"].items():
        if COUNTER_MARK in name:
            for series in metric.get("series", []):
                short = name.split(COUNTER_MARK)[1].removesuffix("_total")
                if short.endswith("per_pos"):
                    short += f"/{series.get('labels', {}).get('position')}"
                found[short] = found.get(short, 0.0) + float(series.get("stats", {}).get("total") or 0)
    return Evidence("aiperf-server", counted=(group_of(file, found, depth),))


def read_records(file: str, text: str, depth: int | None) -> Evidence:
    """One request per line: AIPerf records, or saved responses of vLLM."""
    problems, requests = Problems(file), []
    for number, payload in payloads(text, problems):
        try:
            request = _request(payload, depth)
        except (KeyError, TypeError, ValueError) as error:
            problems.add(number, f"{error}" if isinstance(error, ValueError) else f"lacks {error}")
            continue
        if request is not None:
            requests.append(request)
    problems.check()
    if not requests:
        raise InputError(f"{file}: no request of it has a round with drafts; serve with speculation")
    return Evidence("records", requests=tuple(requests))


def payloads(text: str, problems: Problems) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line number and acceptance of each line that has any; warm-up and failed requests have none."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            problems.add(number, f"is not JSON ({error.msg} at column {error.colno}); one object per line")
            continue
        payload = payload_of(row)
        if payload is not None:
            yield number, payload


def payload_of(row: object) -> Mapping[str, Any] | None:
    """The part of a record or response that tells of acceptance."""
    if not isinstance(row, dict):
        return None
    nested = row.get("metrics")
    own = nested.get("speculative_decoding") if isinstance(nested, dict) else None
    for found in (row.get("spec_decode_acceptance"), own, row):
        if isinstance(found, dict) and HISTOGRAM in found:
            return found
    return None


def _request(payload: Mapping[str, Any], depth: int | None) -> Request | None:
    """One request; ``None`` if it had no round, ``ValueError`` if its parts disagree."""
    histogram = _histogram(payload[HISTOGRAM])
    rounds, accepted = sum(histogram.values()), sum(a * n for a, n in histogram.items())
    depth = int(payload.get("num_spec_tokens") or depth or 0)
    if not rounds:
        return None
    if depth < max(histogram):
        raise ValueError(f"accepts {max(histogram)} drafts in a round of {depth}; say --depth, or mend it")
    kept, made = payload.get("per_step_accepted"), payload.get("per_step_drafted")
    if kept is not None and made is not None:
        return ordered(kept, made, depth)
    steps = tuple((depth, a) for a, n in sorted(histogram.items()) for _ in range(n))
    return Request(depth, rounds, accepted, steps)


def ordered(accepted: Sequence[int], drafted: Sequence[int], depth: int) -> Request | None:
    """A request by rounds in order; those without a draft tell nothing."""
    if len(accepted) != len(drafted):
        raise ValueError(f"has {len(accepted)} rounds accepted but {len(drafted)} drafted; give both of each")
    steps = tuple((int(made), int(kept)) for made, kept in zip(drafted, accepted, strict=True) if made)
    if any(not 0 <= kept <= made <= depth for made, kept in steps):
        raise ValueError(f"a round must accept 0 to as many drafts as it made, at most {depth}")
    if not steps:
        return None
    return Request(depth, len(steps), sum(kept for _, kept in steps), steps, in_order=True)


def _histogram(values: object) -> dict[int, int]:
    """Rounds by accepted drafts, from a list or from a mapping; without empty entries."""
    pairs: Any = values.items() if isinstance(values, dict) else None
    if pairs is None and isinstance(values, list):
        pairs = enumerate(values)
    if pairs is None:
        raise ValueError(f"{HISTOGRAM} is {values!r}; it must be a list or a mapping of counts")
    return {int(accepted): int(count) for accepted, count in pairs if count}


JSON_READERS: tuple[tuple[Callable[[Mapping[str, Any]], bool], str], ...] = (
    (
        lambda report: any(key.startswith("spec_decode_") and key[12:] != "acceptance" for key in report),
        "vllm-bench",
    ),
    (lambda report: POOLED in report, "aiperf"),
    (lambda report: COUNTER_MARK in str(list(report.get("metrics") or {})), "aiperf-server"),
    (lambda report: payload_of(report) is not None, "records"),
)
"""How a JSON object is recognised, in order."""
