"""From files to evidence: each file's kind is recognised by what is in it.

To add a format: a reader beside those imported here, a line in ``_parse`` and one in ``recognise``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sim.acceptance.config import AcceptanceConfig
from sim.acceptance.fit import client_files, engine_logs, tables
from sim.acceptance.fit.evidence import Evidence
from sim.acceptance.fit.recordings import read_recording
from sim.acceptance.fit.synthetic import KEYS, config_of
from sim.errors import InputError

FORMATS = {
    "vllm-log": "server log with 'SpecDecoding metrics' lines",
    "prometheus": "text of /metrics, one scrape or several in order of time",
    "vllm-bench": "result JSON of vllm bench serve",
    "aiperf": "profile_export_aiperf.json with a pooled acceptance histogram",
    "aiperf-server": "server_metrics_export.json of AIPerf",
    "records": "JSON lines with acceptance per request: AIPerf's, or vLLM's responses",
    "requests": "requests: CSV rounds,accepted; or JSON lines accepted_per_round",
    "rates": "CSV position,rate or depth,p1,p2,...",
    "lengths": "CSV depth,acceptance_length (with context: by context)",
    "trace": "recorded acceptance at every output position, JSON lines",
    "vllm-synthetic": "a speculative config with synthetic acceptance, JSON or YAML",
}


class Stated(NamedTuple):
    """A process that a file states outright; there is nothing to fit."""

    format: str
    config: AcceptanceConfig


def read_files(paths: Sequence[Path], form: str | None, depth: int | None) -> Evidence | Stated:
    """All files together; ``InputError`` unless they are of one kind."""
    texts = [(path, _text(path)) for path in paths]
    kinds = {path: form or recognise(str(path), text) for path, text in texts}
    if len(set(kinds.values())) > 1:
        named = ", ".join(f"{path} is {kind}" for path, kind in kinds.items())
        raise InputError(f"files of one kind are fitted together, but {named}; fit them apart")
    kind = kinds[paths[0]]
    if kind == "prometheus":
        return engine_logs.read_scrapes([(str(path), text) for path, text in texts], depth)
    if kind == "vllm-synthetic":
        return Stated(kind, config_of(str(paths[0]), _speculative(texts[0][1]) or {}))
    if kind == "trace" and len(paths) > 1:
        raise InputError(f"{paths[1]}: a scenario replays one trace; join the files first (cat)")
    return _together([_parse(kind, str(path), text, depth) for path, text in texts])


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def _together(parts: Sequence[Evidence]) -> Evidence:
    return replace(
        parts[0],
        counted=tuple(group for part in parts for group in part.counted),
        requests=tuple(request for part in parts for request in part.requests),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def recognise(file: str, text: str) -> str:
    """The format of a file's text; ``InputError`` lists what is known."""
    found = _of_json(text) or _of_lines(text) or _of_csv(text)
    if found is None and _speculative(text) is not None:
        found = "vllm-synthetic"
    if found is None:
        known = "\n".join(f"  {name}: {about}" for name, about in FORMATS.items())
        raise InputError(
            f"{file}: none of the known formats; force one with --format, or make one of\n{known}"
        )
    return found


def _of_json(text: str) -> str | None:
    """For a file that is one JSON object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        report = json.loads(text)
    except ValueError:
        return None
    if any(key in report for key in KEYS) or _speculative(text) is not None:
        return "vllm-synthetic"
    for matches, kind in client_files.JSON_READERS:
        if matches(report):
            return kind
    return _of_object(report)


def _of_lines(text: str) -> str | None:
    """For logs, scrapes and JSON lines."""
    if engine_logs.LOG_MARK in text:
        return "vllm-log"
    if any(line.split("{")[0].find(engine_logs.COUNTER_MARK) >= 0 for line in text.splitlines()):
        return "prometheus"
    if not text.lstrip().startswith("{"):
        return None
    for line in text.splitlines()[:50]:  # the first records may be warm-up, without acceptance
        try:
            kind = _of_object(json.loads(line)) if line.strip() else None
        except ValueError:
            continue
        if kind is not None:
            return kind
    return None


def _of_object(row: object) -> str | None:
    """For one line of JSON lines."""
    if client_files.payload_of(row) is not None:
        return "records"
    if not isinstance(row, dict):
        return None
    if any(key in row for key in tables.BY_ROUND):
        return "requests"
    lists = [key for key in row if key in ("accepted", "chance") or key.startswith("acc_")]
    return "trace" if lists else None


def _of_csv(text: str) -> str | None:
    columns = set(tables.columns_of(text))
    if {"rounds", "accepted"} <= columns:
        return "requests"
    if "position" in columns or "p1" in columns:
        return "rates"
    return "lengths" if "acceptance_length" in columns else None


def _parse(kind: str, file: str, text: str, depth: int | None) -> Evidence:
    if kind == "vllm-log":
        return engine_logs.read_log(file, text, depth)
    if kind == "trace":
        return read_recording(file, depth)
    if kind == "records":
        return client_files.read_records(file, _one_per_line(text), depth)
    if kind in ("vllm-bench", "aiperf", "aiperf-server"):
        return _report(kind, file, text, depth)
    read = {"requests": tables.read_requests, "rates": tables.read_rates, "lengths": tables.read_lengths}
    return read[kind](file, text, depth)


def _report(kind: str, file: str, text: str, depth: int | None) -> Evidence:
    read = {
        "vllm-bench": client_files.read_bench,
        "aiperf": client_files.read_aiperf,
        "aiperf-server": client_files.read_server_metrics,
    }
    try:
        report = json.loads(text)
    except ValueError as error:
        raise InputError(f"{file}: is not JSON ({error})") from None
    try:
        return read[kind](file, report, depth)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: is not what {kind} writes ({type(error).__name__}: {error})") from None


def _one_per_line(text: str) -> str:
    """A single response, however it is broken into lines, on one."""
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return text


def _speculative(text: str) -> Mapping[str, Any] | None:
    """The mapping that holds synthetic acceptance, at the top or one level down."""
    try:
        data = yaml.safe_load(text) if len(text) < 100_000 else None
    except yaml.YAMLError:
        return None
    if not isinstance(data, dict):
        return None
    for found in (data, *data.values()):
        if isinstance(found, dict) and any(key in found for key in (*KEYS, "rejection_sample_method")):
            return found
    return None
