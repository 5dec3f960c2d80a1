"""GuideLLM's ``benchmarks.json``: one run per entry of ``benchmarks``.

Fields as in src/guidellm/benchmark/schemas (GuideLLM 0.7.3 and main of August 2026, report version
2). Metrics are split by status; ``successful`` is taken. Its ``inter_token_latency_ms`` weighs
requests by their tokens and is compared as ``tpot_by_token``; its ``time_per_output_token_ms`` holds
the first token and is not compared. Where all answered requests are listed, TPOT is taken from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

from sim.against.fields import Fields
from sim.against.measured import Load, Run, completed, spread, statistics

HINT = "give benchmarks.json of guidellm benchmark run"
_SECONDS: Final = {"request_latency": ("e2el", 1e3), "time_to_first_token_ms": ("ttft", 1.0)}


def matches(data: Mapping[str, Any]) -> bool:
    """Whether the object is such a report."""
    return isinstance(data.get("benchmarks"), list) and "metadata" in data


def read(place: str, data: Mapping[str, Any]) -> list[Run]:
    """All runs of a report."""
    benchmarks = Fields(place, data, HINT).objects("benchmarks")
    if not benchmarks:
        raise Fields(place, data, HINT).wrong("benchmarks", "is empty")
    return [_run(f"{place}, benchmarks[{i}]", each) for i, each in enumerate(benchmarks)]


def _run(place: str, benchmark: Fields) -> Run:
    metrics = benchmark.inside("metrics")
    count = round(metrics.inside("request_totals").number("successful"))
    if not count:
        raise metrics.inside("request_totals").wrong("successful", "is 0: no request was answered")
    listed = sorted(benchmark.inside("requests").objects("successful"), key=_start)
    whole = len(listed) == count and all(r.maybe("output_tokens") for r in listed)
    sides = [_good(metrics, f"{side}_token_count").number("mean") for side in ("prompt", "output")]
    load = _load(benchmark, count)
    return Run(
        place,
        "guidellm",
        load,
        _tokens(listed, "prompt_tokens") if whole else spread(sides[0], count),
        _tokens(listed, "output_tokens") if whole else spread(sides[1], count),
        completed({**_metrics(metrics, sides), **(_of_requests(listed) if whole else {})}),
        lengths_recorded=whole,
        sent_s=tuple(_start(r) - _start(listed[0]) for r in listed) if whole and load.rate_per_s else (),
        notes=_notes(benchmark),
    )


def _start(request: Fields) -> float:
    return request.maybe("request_start_time") or 0.0


def _tokens(listed: Sequence[Fields], key: str) -> tuple[int, ...]:
    return tuple(round(max(1.0, request.number(key))) for request in listed)


def _good(metrics: Fields, name: str) -> Fields:
    return metrics.inside(name).inside("successful")


def _metrics(metrics: Fields, sides: Sequence[float]) -> dict[str, float]:
    found = {
        "tpot_by_token_mean_ms": _good(metrics, "inter_token_latency_ms").maybe("mean"),
        "requests_per_s": _good(metrics, "requests_per_second").maybe("mean"),
        "output_tokens_per_s": _good(metrics, "output_tokens_per_second").maybe("mean"),
        "prompt_tokens_mean": sides[0],
        "output_tokens_mean": sides[1],
    }
    for name, (kind, factor) in _SECONDS.items():
        block = _good(metrics, name)
        ranks = block.inside("percentiles")
        values = (block.maybe("mean"), ranks.maybe("p50"), ranks.maybe("p90"), ranks.maybe("p99"))
        for key, value in zip(("mean", "p50", "p90", "p99"), values, strict=True):
            found[f"{kind}_{key}_ms"] = None if value is None else factor * value
    return {name: value for name, value in found.items() if value is not None}


def _of_requests(listed: Sequence[Fields]) -> dict[str, float]:
    """TPOT of each request, unweighted, as other clients report it."""
    return statistics("tpot", [v for r in listed if (v := r.maybe("inter_token_latency_ms")) is not None])


def _load(benchmark: Fields, count: int) -> Load:
    strategy = benchmark.inside("config").inside("strategy")
    kind, cap = str(strategy.data.get("type_")), strategy.maybe("max_concurrency")
    if kind == "synchronous":
        return Load(concurrency=1)
    if kind == "concurrent":
        return Load(concurrency=round(strategy.number("streams")))
    if kind == "throughput":
        return Load(concurrency=round(cap or count))
    if kind not in ("constant", "poisson"):
        raise strategy.wrong("type_", f"is {kind!r}, which has no counterpart here; run at a rate or streams")
    rate = strategy.number("rate")
    return Load(round(cap) if cap else None, rate, inf if kind == "constant" else 1.0)


def _notes(benchmark: Fields) -> tuple[str, ...]:
    """Requests that the report leaves out, which were served all the same."""
    totals = benchmark.inside("metrics").inside("request_totals")
    lost = sum(totals.maybe(status) or 0.0 for status in ("incomplete", "errored"))
    return (f"{lost:g} incomplete or failed requests are left out",) if lost else ()
