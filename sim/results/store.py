"""Records and summaries on disk: Parquet through DuckDB, and canonical JSON.

A run's directory holds ``requests.parquet``, ``steps.parquet``, ``chunk_gaps.parquet`` and
``run.json``. The last is written last, so a directory that has it is complete. Every file is
written beside its place and renamed into it, and equal data gives equal bytes (with one version
of DuckDB).
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np

from sim.errors import InputError
from sim.results.compare import Cell, Comparison, Difference, PolicyResult, against, best_policy
from sim.results.fleet_record import FleetRecord
from sim.results.names import METRICS
from sim.results.run_records import Columns, RunRecords

RUN_SCHEMA: Final = "leadline.run/1"
SUMMARY_SCHEMA: Final = "leadline.summary/1"
RUN_FILE: Final = "run.json"
RECORD_FILES: Final = ("requests.parquet", "steps.parquet", "chunk_gaps.parquet")
_ROW_GROUP: Final = 100_000
_SCALARS: Final = ("unfinished", "last_arrival_ns", "kv_blocks_total", "max_num_seqs", "replicas")
_LATER_SCALARS: Final = {"timed_out": 0}
"""Those that older files lack, with what they mean by it."""


def write_run(directory: Path, records: RunRecords, more: Mapping[str, Any] | None = None) -> None:
    """Write one run's records into ``directory``, created if need be; ``more`` is added to ``run.json``."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RUN_FILE).unlink(missing_ok=True)
    gaps, counts, ends = records.chunk_gaps
    with _connection() as connection:
        for name, columns in (
            ("requests", records.requests),
            ("steps", records.steps),
            ("chunk_gaps", {"gap_ns": gaps, "count": counts, "end_ns": ends}),
        ):
            _write_parquet(connection, directory / f"{name}.parquet", columns)
    scalars = {name: getattr(records, name) for name in (*_SCALARS, *_LATER_SCALARS)}
    about = {"schema": RUN_SCHEMA, "classes": list(records.classes)} | scalars | dict(more or {})
    if records.fleet is not None:
        about["fleet"] = records.fleet.to_json()
    write_json(directory / RUN_FILE, about)


def read_run(directory: Path) -> RunRecords:
    """Read back what ``write_run`` wrote; raises ``InputError`` naming the file that is at fault."""
    about = read_json(directory / RUN_FILE, RUN_SCHEMA)
    with _connection() as connection:
        requests, steps, gaps = (
            _read_parquet(connection, directory / f"{name}.parquet")
            for name in ("requests", "steps", "chunk_gaps")
        )
    return RunRecords(
        requests=requests,
        steps=steps,
        chunk_gaps=(gaps["gap_ns"], gaps["count"], gaps["end_ns"]),
        classes=tuple(about["classes"]),
        fleet=FleetRecord.from_json(about["fleet"]) if "fleet" in about else None,
        **{name: about[name] for name in _SCALARS},
        **{name: about.get(name, default) for name, default in _LATER_SCALARS.items()},
    )


def is_complete(directory: Path) -> bool:
    """Whether a run's directory was written to the end, so that a sweep need not repeat it."""
    return (directory / RUN_FILE).exists()


def summary(comparison: Comparison, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A comparison as plain data in a stable order, the content of ``summary.json``.

    ``about`` says what the numbers stand on: versions, profiles, seeds.
    """
    return {
        "schema": SUMMARY_SCHEMA,
        "about": dict(about or {}),
        "baseline": comparison.baseline,
        "metric": comparison.metric,
        "error": comparison.error,
        "cells": [_cell_summary(cell, comparison) for cell in comparison.cells],
    }


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write canonical JSON into its place, whole or not at all; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json_text(data)
    _replace(path, lambda temporary: _write_text(temporary, text))


def json_text(data: Mapping[str, Any]) -> str:
    """Canonical JSON: keys as they stand, floats by ``repr``, NaN and infinity as null."""
    return json.dumps(_finite(data), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, schema: str) -> dict[str, Any]:
    """Read a JSON object of one schema; raises ``InputError`` saying what is wrong with the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"{path}: is not JSON ({error})") from None
    found = data.get("schema") if isinstance(data, dict) else None
    if found != schema:
        raise InputError(f"{path}: schema is {found!r}; this version reads {schema!r}")
    return dict(data)


def _cell_summary(cell: Cell, comparison: Comparison) -> dict[str, Any]:
    best = best_policy(cell, comparison.metric, comparison.error)
    differences = {name: against(cell, comparison.baseline, name, comparison.error) for name in METRICS}
    return {
        "load": cell.load,
        "best": best.label,
        "even": list(best.even),
        "policies": [
            _policy_summary(policy, {name: each[i] for name, each in differences.items()})
            for i, policy in enumerate(cell.policies)
        ],
    }


def _policy_summary(policy: PolicyResult, differences: Mapping[str, Difference | None]) -> dict[str, Any]:
    """One policy: every metric with its mean, its values by seed and its difference from the baseline."""
    return {
        "policy": policy.label,
        "bound": policy.bound,
        "unstable": policy.unstable,
        "reasons": [run.stability.reason for run in policy.runs],
        "metrics": {
            name: {
                "mean": policy.mean(name),
                "seeds": policy.values(name).tolist(),
                "against_baseline": _difference_summary(differences[name]),
            }
            for name in METRICS
        },
    }


def _difference_summary(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    names = ("pairs", "mean", "half_width", "ratio", "ratio_half_width", "verdict")
    return {name: getattr(difference, name) for name in names}


def _connection() -> duckdb.DuckDBPyConnection:
    """A private in-memory database; one thread keeps the rows' order and the bytes the same."""
    return duckdb.connect(":memory:", config={"threads": 1, "preserve_insertion_order": True})


def _write_parquet(connection: duckdb.DuckDBPyConnection, path: Path, columns: Columns) -> None:
    """Write int64 columns; DuckDB scans a dict of NumPy arrays in place."""
    connection.register("columns_to_write", columns)
    relation = connection.table("columns_to_write")
    _replace(
        path,
        lambda temporary: relation.write_parquet(
            str(temporary), compression="zstd", row_group_size=_ROW_GROUP
        ),
    )
    connection.unregister("columns_to_write")


def _read_parquet(connection: duckdb.DuckDBPyConnection, path: Path) -> Columns:
    try:
        columns = connection.read_parquet(str(path)).fetchnumpy()
    except duckdb.Error as error:
        raise InputError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from None
    return {name: np.asarray(values, dtype=np.int64) for name, values in columns.items()}


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make the file beside its place, then rename it: readers see all of it or none."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _finite(value: Any) -> Any:
    """The same data with null for every float that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
