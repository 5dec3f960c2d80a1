"""Result files as the tools write them, made from a simulated run.

A second implementation of what ``sim.against`` reads: numbers are computed here request by request,
from the records, by the tools' own definitions (see the readers' docstrings for the sources).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from sim.results.run_records import RunRecords

_S = 1e9
_MS = 1e6


def rows(records: RunRecords) -> list[dict[str, int]]:
    """One dictionary per request, in order of sending."""
    columns = {name: values.tolist() for name, values in records.requests.items()}
    found = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted(found, key=lambda row: (row["sent_ns"], row["request"]))


def gaps_ms(records: RunRecords) -> list[float]:
    """Every gap between chunks of all requests."""
    gaps, counts, _ = records.chunk_gaps
    return [float(gap) / _MS for gap in np.repeat(gaps, counts)]


def tpot_ms(row: dict[str, int]) -> float:
    return (row["finish_ns"] - row["first_token_ns"]) / (row["output_tokens"] - 1) / _MS


def ttft_ms(row: dict[str, int]) -> float:
    return (row["first_token_ns"] - row["sent_ns"]) / _MS


def e2el_ms(row: dict[str, int]) -> float:
    return (row["finish_ns"] - row["sent_ns"]) / _MS


def latencies(records: RunRecords, extra_ttft_ms: float = 0.0) -> dict[str, list[float]]:
    """All latencies in ms; ``extra_ttft_ms`` is waited before the engine."""
    many = rows(records)
    return {
        "ttft": [ttft_ms(row) + extra_ttft_ms for row in many],
        "tpot": [tpot_ms(row) for row in many if row["output_tokens"] > 1],
        "itl": gaps_ms(records),
        "e2el": [e2el_ms(row) + extra_ttft_ms for row in many],
    }


def seconds(records: RunRecords) -> float:
    many = rows(records)
    return (max(row["finish_ns"] for row in many) - many[0]["sent_ns"]) / _S


def total(records: RunRecords, name: str) -> int:
    return sum(row[name] for row in rows(records))


def vllm_bench(
    records: RunRecords,
    concurrency: int | None = None,
    rate: float | str = "inf",
    detailed: bool = False,
    extra_ttft_ms: float = 0.0,
) -> dict[str, Any]:
    """What ``vllm bench serve --save-result`` keeps."""
    many, duration = rows(records), seconds(records)
    result: dict[str, Any] = {
        "date": "20260101-000000",
        "endpoint_type": "openai",
        "backend": "openai",
        "model_id": "m",
        "num_prompts": len(many),
        "request_rate": rate,
        "burstiness": 1.0,
        "max_concurrency": concurrency,
        "duration": duration,
        "completed": len(many),
        "failed": 0,
        "total_input_tokens": total(records, "prompt_tokens"),
        "total_output_tokens": total(records, "output_tokens"),
        "request_throughput": len(many) / duration,
        "request_goodput": None,
        "output_throughput": total(records, "output_tokens") / duration,
        "latencies": [(e2el_ms(row) + extra_ttft_ms) / 1e3 for row in many],
    }
    for kind in ("ttft", "tpot", "itl"):
        values = latencies(records, extra_ttft_ms)[kind]
        result |= {f"mean_{kind}_ms": fmean(values), f"median_{kind}_ms": float(np.median(values))}
        result[f"p99_{kind}_ms"] = float(np.percentile(values, 99))
    return {**result, **_spec_decode(records), **(_details(records) if detailed else {})}


def _spec_decode(records: RunRecords) -> dict[str, float]:
    rounds, drafted, accepted = (total(records, name) for name in ("rounds", "drafted", "accepted"))
    if not drafted:
        return {}
    return {
        "spec_decode_num_drafts": rounds,
        "spec_decode_draft_tokens": drafted,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_acceptance_rate": 100 * accepted / drafted,
        "spec_decode_acceptance_length": 1 + accepted / rounds,
    }


def _details(records: RunRecords) -> dict[str, Any]:
    many = rows(records)
    return {
        "input_lens": [row["prompt_tokens"] for row in many],
        "output_lens": [row["output_tokens"] for row in many],
        "start_times": [1000 + row["sent_ns"] / _S for row in many],
        "queue_times": [(row["sent_ns"] - row["arrival_ns"]) / _S for row in many],
        "ttfts": [ttft_ms(row) / 1e3 for row in many],
        "errors": ["" for _ in many],
    }


def _block(unit: str, values: Sequence[float], percentiles: bool = True) -> dict[str, Any]:
    ranks = {f"p{p}": float(np.percentile(values, p)) for p in (50, 90, 99)} if percentiles else {}
    return {"unit": unit, "avg": fmean(values), **ranks}


def aiperf(records: RunRecords, concurrency: int) -> dict[str, Any]:
    """``profile_export_aiperf.json``."""
    many, found, duration = rows(records), latencies(records), seconds(records)
    return {
        "schema_version": "1.5",
        "request_latency": _block("ms", found["e2el"]),
        "time_to_first_token": _block("ms", found["ttft"]),
        "inter_token_latency": _block("ms", found["tpot"]),
        "inter_chunk_latency": _block("ms", found["itl"]),
        "request_count": _block("requests", [len(many)], percentiles=False),
        "request_throughput": _block("requests/sec", [len(many) / duration], percentiles=False),
        "output_token_throughput": _block(
            "tokens/sec", [total(records, "output_tokens") / duration], percentiles=False
        ),
        "input_sequence_length": _block("tokens", [row["prompt_tokens"] for row in many]),
        "output_sequence_length": _block("tokens", [row["output_tokens"] for row in many]),
        "input_config": {
            "phases": [
                {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 1},
                {"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": concurrency},
            ]
        },
    }


def aiperf_records(records: RunRecords) -> list[dict[str, Any]]:
    """Lines of ``profile_export.jsonl``; one failed and one warm-up request are among them."""
    start = 1_700_000_000_000_000_000

    def value(unit: str, number: float) -> dict[str, Any]:
        return {"value": number, "unit": unit}

    def record(row: dict[str, int]) -> dict[str, Any]:
        return {
            "metadata": {
                "session_num": row["request"],
                "request_start_ns": start + row["sent_ns"],
                "request_end_ns": start + row["finish_ns"],
                "benchmark_phase": "profiling",
            },
            "metrics": {
                "input_sequence_length": value("tokens", row["prompt_tokens"]),
                "output_sequence_length": value("tokens", row["output_tokens"]),
                "time_to_first_token": value("ms", ttft_ms(row)),
                "request_latency": value("ms", e2el_ms(row)),
                "inter_token_latency": value("ms", tpot_ms(row)),
            },
            "spec_decode_acceptance": {
                "num_spec_steps": row["rounds"],
                "num_accepted_draft_tokens": row["accepted"],
            },
            "error": None,
        }

    good = [record(row) for row in rows(records)]
    warm = {**good[0], "metadata": {**good[0]["metadata"], "benchmark_phase": "warmup"}}
    failed = {**good[1], "metrics": {}, "error": {"code": 499, "type": "Cancelled", "message": "..."}}
    return [warm, *reversed(good), failed]


def _summary(values: Sequence[float], weights: Sequence[float] | None = None) -> dict[str, Any]:
    ranks = {f"p{p}": float(np.percentile(values, p)) for p in (50, 90, 99)}
    return {
        "successful": {
            "mean": float(np.average(values, weights=weights)),
            "median": ranks["p50"],
            "percentiles": ranks,
        },
        "errored": None,
    }


def guidellm(records: RunRecords, strategy: dict[str, Any], listed: bool = True) -> dict[str, Any]:
    """``benchmarks.json`` with one benchmark."""
    many, found, duration = rows(records), latencies(records), seconds(records)
    tokens = [row["output_tokens"] - 1 for row in many if row["output_tokens"] > 1]
    requests = [
        {
            "prompt_tokens": row["prompt_tokens"],
            "output_tokens": row["output_tokens"],
            "request_start_time": 1000 + row["sent_ns"] / _S,
            "inter_token_latency_ms": tpot_ms(row) if row["output_tokens"] > 1 else None,
        }
        for row in many
    ]
    benchmark = {
        "type_": "generative_benchmark",
        "config": {"strategy": strategy},
        "metrics": {
            "request_totals": {"successful": len(many), "errored": 0, "incomplete": 2},
            "requests_per_second": _summary([len(many) / duration]),
            "output_tokens_per_second": _summary([total(records, "output_tokens") / duration]),
            "request_latency": _summary([value / 1e3 for value in found["e2el"]]),
            "time_to_first_token_ms": _summary(found["ttft"]),
            "inter_token_latency_ms": _summary(found["tpot"], tokens),
            "prompt_token_count": _summary([row["prompt_tokens"] for row in many]),
            "output_token_count": _summary([row["output_tokens"] for row in many]),
        },
        "requests": {"successful": requests if listed else requests[:3], "errored": []},
    }
    return {"metadata": {"version": 2, "guidellm_version": "0.7.3"}, "config": {}, "benchmarks": [benchmark]}


def inference_perf(records: RunRecords, load: dict[str, float]) -> dict[str, Any]:
    """``stage_0_lifecycle_metrics.json``."""
    many, found, duration = rows(records), latencies(records), seconds(records)

    def block(values: Sequence[float]) -> dict[str, float]:
        ranks = {"median": 50, "p90": 90, "p99": 99}
        in_s: Callable[[float], float] = lambda value: float(value) / 1e3  # noqa: E731
        return {
            "mean": in_s(fmean(values)),
            **{key: in_s(float(np.percentile(values, p))) for key, p in ranks.items()},
        }

    decoding = sum((row["finish_ns"] - row["first_token_ns"]) / _S for row in many)
    output = total(records, "output_tokens")
    return {
        "load_summary": {"count": len(many), **load},
        "successes": {
            "count": len(many),
            "latency": {
                "request_latency": block(found["e2el"]),
                "time_per_output_token": block(found["tpot"]),
                "time_to_first_token": block(found["ttft"]),
                "inter_token_latency": {"mean": decoding / (output - len(many)), "median": 0.0},
            },
            "throughput": {
                "requests_per_sec": len(many) / duration,
                "output_tokens_per_sec": output / duration,
            },
            "prompt_tokens": {
                "total": total(records, "prompt_tokens"),
                "mean": _mean(records, "prompt_tokens"),
            },
            "output_len": {"mean": _mean(records, "output_tokens")},
        },
        "failures": {"count": 0, "request_latency": None},
    }


def _mean(records: RunRecords, name: str) -> float:
    return total(records, name) / len(rows(records))


def lines(objects: Sequence[dict[str, Any]]) -> str:
    """JSON lines."""
    return "\n".join(json.dumps(each) for each in objects)
