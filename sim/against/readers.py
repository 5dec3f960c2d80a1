"""From files to measured runs: each file's kind is recognised by what is in it.

To add a format: a module beside those imported here, and its line in ``_of_objects``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sim.against import aiperf, guidellm, inference_perf, table, vllm_bench
from sim.against.measured import Load, Run
from sim.errors import InputError

FORMATS: Final = {
    "vllm-bench": "result of vllm bench serve, one JSON object or one per line",
    "aiperf": "profile_export_aiperf.json",
    "aiperf-records": "profile_export.jsonl of AIPerf, one request per line",
    "guidellm": "benchmarks.json of GuideLLM",
    "inference-perf": "stage_N_lifecycle_metrics.json of inference-perf",
    "table": "CSV with one run per row: concurrency or request_rate, requests, input_tokens, "
    "output_tokens, tpot_mean_ms, ...",
}


def read_files(paths: Sequence[Path], stated: Load | None = None) -> tuple[Run, ...]:
    """Every run of the files, in their order; ``stated`` is the load where a file does not say it."""
    return tuple(run for path in paths for run in read_file(path, stated))


def read_file(path: Path, stated: Load | None = None) -> list[Run]:
    """The runs of one file; ``InputError`` lists the known formats."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    place = str(path)
    if table.matches(text):
        return table.read(place, text)
    found = _of_objects(place, _objects(place, text), stated)
    if not found:
        known = "\n".join(f"  {name}: {about}" for name, about in FORMATS.items())
        raise InputError(f"{path}: is none of the known results; give one of\n{known}")
    return found


def _objects(place: str, text: str) -> list[dict[str, Any]]:
    """The one object of a file, or one per line; none if it is no JSON."""
    try:
        found = [json.loads(text)]
    except ValueError:
        found = _per_line(place, text)
    return [each for each in found if isinstance(each, dict)]


def _per_line(place: str, text: str) -> list[Any]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if not found:
                return []
            raise InputError(f"{place}:{number}: is not JSON ({error}); one object per line") from None
    return found


def _of_objects(place: str, objects: list[dict[str, Any]], stated: Load | None) -> list[Run]:
    if not objects:
        return []
    first = objects[0]
    if aiperf.is_record(first):
        return [aiperf.read_records(place, objects, stated)]
    if vllm_bench.matches(first):
        return [vllm_bench.read(at, each) for at, each in _numbered(place, objects)]
    if guidellm.matches(first):
        return guidellm.read(place, first)
    if aiperf.matches(first):
        return [aiperf.read(place, first, stated)]
    return [inference_perf.read(place, first, stated)] if inference_perf.matches(first) else []


def _numbered(place: str, objects: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    if len(objects) == 1:
        return [(place, objects[0])]
    return [(f"{place}, run {i}", each) for i, each in enumerate(objects, 1)]


def stated_load(concurrency: int | None, rate: float | None) -> Load | None:
    """The load that flags state, if any."""
    return None if concurrency is None and rate is None else Load(concurrency, rate)


def with_poisson(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The same runs, their arrivals Poisson where the files do not record them."""
    return tuple(replace(run, load=replace(run.load, burstiness=1.0)) for run in runs)
