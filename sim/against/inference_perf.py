"""inference-perf: ``stage_N_lifecycle_metrics.json``, one run per file.

Fields as in inference_perf/reportgen/base.py (v0.6.1 and main of August 2026) and in the reports of
its KubeCon 2025 demo: seconds; ``prompt_len`` became ``prompt_tokens``. ``time_per_output_token`` is
TPOT; ``inter_token_latency`` gives every token of a chunk the chunk's time, so that its mean is
compared as ``tpot_by_token`` and its percentiles not at all. The report does not say how gaps were
drawn: ``constant``, the tool's default, is assumed unless ``--poisson`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from sim.against.fields import Fields
from sim.against.measured import Load, Run, completed, spread

HINT = "give stage_N_lifecycle_metrics.json (the summary mixes stages)"
_KINDS: Final = {"time_to_first_token": "ttft", "time_per_output_token": "tpot", "request_latency": "e2el"}
_STATISTICS: Final = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}


def matches(data: Mapping[str, Any]) -> bool:
    """Whether the object is such a report."""
    return "load_summary" in data and "successes" in data


def read(place: str, data: Mapping[str, Any], stated: Load | None) -> Run:
    """One stage; ``stated`` replaces the load of the file."""
    fields = Fields(place, data, HINT)
    good = fields.inside("successes")
    count = round(good.number("count"))
    if not count:
        raise good.wrong("count", "is 0: no request was answered")
    prompt = _mean(good, "prompt_tokens", "prompt_len")
    output = _mean(good, "output_tokens", "output_len")
    failed = fields.inside("failures").maybe("count")
    return Run(
        place,
        "inference-perf",
        stated or _load(fields.inside("load_summary")),
        spread(prompt, count),
        spread(output, count),
        completed(_metrics(good, prompt, output)),
        notes=(f"{failed:g} failed requests are left out",) if failed else (),
    )


def _mean(good: Fields, *names: str) -> float:
    for name in names:
        found = good.inside(name).maybe("mean")
        if found is not None:
            return found
    raise good.wrong(f"{names[0]}.mean", "is missing")


def _metrics(good: Fields, prompt: float, output: float) -> dict[str, float]:
    latency, rates = good.inside("latency"), good.inside("throughput")
    found = {
        f"{kind}_{ours}_ms": latency.inside(name).maybe(theirs)
        for name, kind in _KINDS.items()
        for theirs, ours in _STATISTICS.items()
    }
    found["tpot_by_token_mean_ms"] = latency.inside("inter_token_latency").maybe("mean")
    in_ms = {name: 1e3 * value for name, value in found.items() if value is not None}
    return {
        **in_ms,
        "requests_per_s": rates.number("requests_per_sec"),
        "output_tokens_per_s": rates.number("output_tokens_per_sec"),
        "prompt_tokens_mean": prompt,
        "output_tokens_mean": output,
    }


def _load(summary: Fields) -> Load:
    concurrency, rate = summary.maybe("concurrency"), summary.maybe("requested_rate")
    if concurrency:
        return Load(concurrency=round(concurrency))
    if not rate:
        raise summary.wrong("requested_rate", "is missing")
    return Load(rate_per_s=rate, burstiness=inf)
