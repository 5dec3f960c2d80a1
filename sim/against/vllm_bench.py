"""Results of ``vllm bench serve``: one JSON object, or one per line with ``--append-result``.

Fields as vllm/benchmarks/serve.py writes them (vLLM main, commit 009e6d4, August 2026). Without
``--save-detailed`` ``input_lens``, ``output_lens``, ``start_times``, ``ttfts`` and ``itls`` are left
out; ``latencies`` and ``queue_times`` stay. E2EL is no default of ``--percentile-metrics``, so it is
taken from ``latencies`` where its summary is missing. The intended sending is start - queue time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.against.fields import Fields
from sim.against.measured import Load, Run, completed, spread, statistics

HINT = "record with vllm bench serve --save-result (and --save-detailed)"
_MS = 1e3
_KINDS = ("ttft", "tpot", "itl", "e2el")
_WORDS = {"mean": "mean", "median": "p50", "p50": "p50", "p90": "p90", "p99": "p99"}


def matches(data: Mapping[str, Any]) -> bool:
    """Whether the object is such a result."""
    return isinstance(data.get("request_throughput"), int | float) and "total_output_tokens" in data


def read(place: str, data: Mapping[str, Any]) -> Run:
    """One run; ``InputError`` names the field that is missing or odd."""
    fields = Fields(place, data, HINT)
    load = _load(fields)
    answered = _answered(fields)
    prompt, output, recorded = _lengths(fields, answered)
    return Run(
        place,
        "vllm-bench",
        load,
        prompt,
        output,
        completed({**_from_lists(fields), **_summary(fields), **_totals(fields)}),
        lengths_recorded=recorded,
        sent_s=_sent(fields, answered) if load.rate_per_s else (),
        depth=_depth(fields),
        notes=_notes(fields),
    )


def _load(fields: Fields) -> Load:
    cap, rate = fields.maybe("max_concurrency"), fields.data.get("request_rate", "inf")
    if rate == "inf":
        return Load(concurrency=round(cap or fields.number("completed")))
    return Load(
        concurrency=round(cap) if cap else None,
        rate_per_s=fields.number("request_rate"),
        burstiness=fields.maybe("burstiness") or 1.0,
        normalised=True,
    )


def _answered(fields: Fields) -> list[int]:
    """Numbers of the answered requests in order of sending, empty without details."""
    output, errors = fields.numbers("output_lens"), fields.data.get("errors") or []
    rows = [i for i, tokens in enumerate(output) if tokens and not (i < len(errors) and errors[i])]
    start = fields.numbers("start_times")
    return sorted(rows, key=lambda i: start[i]) if len(start) == len(output) else rows


def _lengths(fields: Fields, answered: list[int]) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    prompt, output = fields.numbers("input_lens"), fields.numbers("output_lens")
    if answered and len(prompt) == len(output):
        return tuple(round(prompt[i]) for i in answered), tuple(round(output[i]) for i in answered), True
    count = round(fields.number("completed"))
    if not count:
        raise fields.wrong("completed", "is 0: no request was answered")
    totals = (fields.number("total_input_tokens"), fields.number("total_output_tokens"))
    means = (spread(total / count, count) for total in totals)
    return next(means), next(means), False


def _sent(fields: Fields, answered: list[int]) -> tuple[float, ...]:
    """Seconds from the first sending, in order."""
    start, queue = fields.numbers("start_times"), fields.numbers("queue_times")
    if not answered or len(start) <= max(answered):
        return ()
    waited = queue if len(queue) == len(start) else [0.0] * len(start)
    times = sorted(start[i] - waited[i] for i in answered)
    return tuple(time - times[0] for time in times)


def _summary(fields: Fields) -> dict[str, float]:
    found = {
        f"{kind}_{ours}_ms": fields.maybe(f"{theirs}_{kind}_ms")
        for kind in _KINDS
        for theirs, ours in _WORDS.items()
        if fields.data.get(f"{theirs}_{kind}_ms") is not None
    }
    return {name: value for name, value in found.items() if value is not None}


def _from_lists(fields: Fields) -> dict[str, float]:
    """Summaries that the file lacks and its lists hold; failed requests have 0 there."""
    seconds = {"ttft": fields.numbers("ttfts"), "e2el": fields.numbers("latencies")}
    found: dict[str, float] = {}
    for kind, values in seconds.items():
        found |= statistics(kind, [_MS * value for value in values if value > 0])
    return found


def _totals(fields: Fields) -> dict[str, float]:
    count = fields.number("completed")
    found = {
        "requests_per_s": fields.number("request_throughput"),
        "output_tokens_per_s": fields.number("output_throughput"),
        "prompt_tokens_mean": fields.number("total_input_tokens") / count,
        "output_tokens_mean": fields.number("total_output_tokens") / count,
    }
    length = fields.maybe("spec_decode_acceptance_length")
    return found if length is None else {**found, "acceptance_length": length}


def _depth(fields: Fields) -> int | None:
    """Drafts per round, if they were the same in every round."""
    rounds = fields.maybe("spec_decode_num_drafts")
    if not rounds:
        return None
    depth = fields.number("spec_decode_draft_tokens") / rounds
    return round(depth) if abs(depth - round(depth)) < 0.02 else None


def _notes(fields: Fields) -> tuple[str, ...]:
    failed = fields.maybe("failed")
    ramp = fields.data.get("ramp_up_strategy")
    found = [f"{failed:g} failed requests are left out"] if failed else []
    return (*found, "the rate ramped up; it is taken as constant") if ramp else tuple(found)
