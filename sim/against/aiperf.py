"""AIPerf: ``profile_export_aiperf.json`` and the records of ``profile_export.jsonl``.

Summary (docs/reference/json-export-schema.md, schema 1.5, August 2026): one block of ``unit``,
``avg``, ``p50`` ... per metric. Its ``inter_token_latency`` is TPOT as vLLM means it, its
``inter_chunk_latency`` our ITL. The load is in ``input_config``: ``loadgen`` (``concurrency``,
``request_rate``, ``request_rate_mode``; AIPerf 0.2, commit db4f639), later ``phases`` with ``type``,
``rate``, ``smoothness``, ``concurrency`` (src/aiperf/config/phases.py, 2026). Records
(docs/tutorials/working-with-profile-exports.md) hold lengths and times of each request; their load
is that of the summary beside them. AIPerf waits for a free place rather than queueing late requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final

from sim.against.fields import Fields
from sim.against.measured import Load, Run, completed, spread, statistics
from sim.units import NS_PER_S

HINT = "give profile_export_aiperf.json of aiperf profile --streaming"
SUMMARY: Final = "profile_export_aiperf.json"
_LATENCIES: Final = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
    "request_latency": "e2el",
}
_TO_MS: Final = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
_STATISTICS: Final = {"avg": "mean", "p50": "p50", "p90": "p90", "p99": "p99"}


def matches(data: Mapping[str, Any]) -> bool:
    """Whether the object is a summary."""
    block = data.get("request_latency")
    return isinstance(block, Mapping) and "unit" in block and isinstance(data.get("request_count"), Mapping)


def is_record(row: Mapping[str, Any]) -> bool:
    """Whether the object is one line of the records."""
    return isinstance(row.get("metadata"), Mapping) and "metrics" in row and "error" in row


def read(place: str, data: Mapping[str, Any], stated: Load | None) -> Run:
    """The run of a summary; ``stated`` is the load where the file does not say it."""
    fields = Fields(place, data, HINT)
    count = round(fields.inside("request_count").number("avg"))
    prompt, output = (fields.inside(f"{side}_sequence_length").number("avg") for side in ("input", "output"))
    return Run(
        place,
        "aiperf",
        load_of(fields, stated),
        spread(prompt, count),
        spread(output, count),
        completed({**_latencies(fields), **_rates(fields, prompt, output)}),
    )


def _latencies(fields: Fields) -> dict[str, float]:
    found: dict[str, float] = {}
    for tag, kind in _LATENCIES.items():
        block = fields.inside(tag)
        factor = _factor(block)
        for theirs, ours in _STATISTICS.items():
            value = block.maybe(theirs)
            if value is not None:
                found[f"{kind}_{ours}_ms"] = factor * value
    return found


def _factor(block: Fields) -> float:
    unit = block.data.get("unit", "ms")
    if unit not in _TO_MS:
        raise block.wrong("unit", f"is {unit!r}, not one of {', '.join(_TO_MS)}")
    return _TO_MS[unit]


def _rates(fields: Fields, prompt: float, output: float) -> dict[str, float]:
    return {
        "requests_per_s": fields.inside("request_throughput").number("avg"),
        "output_tokens_per_s": fields.inside("output_token_throughput").number("avg"),
        "prompt_tokens_mean": prompt,
        "output_tokens_mean": output,
    }


def load_of(fields: Fields, stated: Load | None) -> Load:
    """The load that ``input_config`` tells; ``InputError`` when neither file nor flags say it."""
    if stated is not None:
        return stated
    config = fields.inside("input_config")
    phases = [p for p in config.objects("phases") if p.data.get("kind", p.data.get("name")) != "warmup"]
    found = _of_phase(phases[-1]) if phases else _of_loadgen(config.inside("loadgen"))
    if found is None:
        raise config.wrong("loadgen", "or phases say no load; state it with --concurrency or --rate")
    return found


def _of_loadgen(given: Fields) -> Load | None:
    bursts = inf if given.data.get("request_rate_mode") == "constant" else 1.0
    return _load(given.maybe("concurrency"), given.maybe("request_rate"), bursts)


def _of_phase(phase: Fields) -> Load | None:
    kinds = {"constant": inf, "gamma": phase.maybe("smoothness") or 1.0}
    return _load(phase.maybe("concurrency"), phase.maybe("rate"), kinds.get(str(phase.data.get("type")), 1.0))


def _load(concurrency: float | None, rate: float | None, burstiness: float) -> Load | None:
    if not concurrency and not rate:
        return None
    return Load(round(concurrency) if concurrency else None, rate or None, burstiness)


def read_records(place: str, rows: Sequence[Mapping[str, Any]], stated: Load | None) -> Run:
    """The run of per-request records, failed and warm-up requests left out."""
    hint = f"give --concurrency or --rate, or keep {SUMMARY} beside it"
    records = [Fields(place, row, hint, f"line {i}") for i, row in enumerate(rows, 1)]
    good = [r for r in records if r.data.get("error") is None and _is_profiling(r)]
    if not good:
        raise records[0].wrong("error", "and its like leave no answered request")
    good.sort(key=lambda r: r.inside("metadata").nanoseconds("request_start_ns"))
    load = stated or _beside(place, records[0])
    start = [r.inside("metadata").nanoseconds("request_start_ns") for r in good]
    prompt, output = (
        [round(_value(r, f"{side}_sequence_length")) for r in good] for side in ("input", "output")
    )
    return Run(
        place,
        "aiperf-records",
        load,
        tuple(prompt),
        tuple(output),
        completed(_of_records(good, prompt, output)),
        lengths_recorded=True,
        sent_s=tuple((s - start[0]) / NS_PER_S for s in start) if load.rate_per_s else (),
        notes=(f"{len(rows) - len(good)} failed or warm-up records left out",)
        if len(rows) > len(good)
        else (),
    )


def _is_profiling(record: Fields) -> bool:
    return str(record.inside("metadata").data.get("benchmark_phase", "profiling")) == "profiling"


def _beside(place: str, first: Fields) -> Load:
    summary = Path(place).parent / SUMMARY
    try:
        data = json.loads(summary.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise first.wrong("metadata", "does not say the load") from None
    return load_of(Fields(str(summary), data, HINT), None)


def _value(record: Fields, tag: str) -> float:
    return record.inside("metrics").inside(tag).number("value")


def _of_records(records: Sequence[Fields], prompt: Sequence[int], output: Sequence[int]) -> dict[str, float]:
    found: dict[str, float] = {}
    for tag, kind in _LATENCIES.items():
        values = [value for record in records for value in _in_ms(record.inside("metrics").inside(tag))]
        found |= statistics(kind, values)
    begin, end = (
        [r.inside("metadata").nanoseconds(key) for r in records]
        for key in ("request_start_ns", "request_end_ns")
    )
    seconds = (max(end) - min(begin)) / NS_PER_S
    return {
        **found,
        **_accepted(records),
        "requests_per_s": len(records) / seconds,
        "output_tokens_per_s": sum(output) / seconds,
        "prompt_tokens_mean": sum(prompt) / len(prompt),
        "output_tokens_mean": sum(output) / len(output),
    }


def _in_ms(block: Fields) -> list[float]:
    """The value or values of a record's metric; a request of one token lacks some."""
    if "value" not in block.data:
        return []
    many = isinstance(block.data["value"], list)
    values = block.numbers("value") if many else [block.number("value")]
    return [_factor(block) * value for value in values]


def _accepted(records: Sequence[Fields]) -> dict[str, float]:
    """Acceptance length over all rounds, where the engine reported rounds per request."""
    rounds = accepted = 0.0
    for record in records:
        found = record.inside("spec_decode_acceptance")
        rounds += found.maybe("num_spec_steps") or 0.0
        accepted += found.maybe("num_accepted_draft_tokens") or 0.0
    return {"acceptance_length": 1 + accepted / rounds} if rounds else {}
