"""Recorded requests in, exported requests out."""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.errors import InputError
from sim.workload.arrival_config import TraceFormat
from sim.workload.hashes import hashed
from sim.workload.problems import Problems
from sim.workload.readers import READERS, TRACE_SCHEMA, Recording, Row
from sim.workload.requests import Requests

_NUMBERS: Final = len(Row._fields) - 1
"""Fields of a row that are one number each: all but its hashes."""
Int64 = NDArray[np.int64]


def read_trace(
    path: Path,
    trace_format: TraceFormat,
    limit: int | None = None,
    drop_failed: bool = True,
    hash_block: int | None = None,
) -> Requests:
    """Read the requests of a recorded file in order of arrival, ties in file order, the earliest at 0.

    Only our own format keeps its times as they are. Raises ``TraceError`` with every bad row (the
    first 20) and ``InputError`` when the file is missing, holds no request, or has hashes that do not fit
    the prompts in blocks of ``hash_block`` tokens.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; give the path of a trace in format {trace_format}")
    problems = Problems(str(path))
    recording = READERS[trace_format](path, problems)
    values = array("q")  # 8 bytes a value: the week of Azure 2024 has 27 million rows
    hashes: list[tuple[int, ...]] = []
    for row in islice(_kept(recording.rows, drop_failed), limit):
        values.extend(row.numbers)
        hashes.append(row.hashes)
    problems.check()
    if not values:
        raise InputError(f"{path}: holds no request to replay; every row failed or there is none")
    rows = np.frombuffer(values, dtype=np.int64).reshape(-1, _NUMBERS)
    order = np.argsort(rows[:, 0], kind="stable")
    requests = _requests(recording, rows[order])
    if not any(hashes):
        return requests
    ids = [hashes[row] for row in order.tolist()]
    block = hash_block or recording.hash_block
    return replace(requests, hashes=hashed(ids, requests.prompt_tokens, block, str(path)))


def _kept(rows: Iterator[Row], drop_failed: bool) -> Iterator[Row]:
    for row in rows:
        if row.prompt_tokens and row.output_tokens:
            yield row
        elif not drop_failed:
            yield row._replace(
                prompt_tokens=max(row.prompt_tokens, 1), output_tokens=max(row.output_tokens, 1)
            )


def _requests(recording: Recording, rows: Int64) -> Requests:
    arrival_ns = rows[:, 0] if recording.from_zero else rows[:, 0] - rows[0, 0]
    shares = bool(np.any(rows[:, 4] >= 0))
    return Requests(
        arrival_ns=arrival_ns.copy(),
        prompt_tokens=rows[:, 1].copy(),
        output_tokens=rows[:, 2].copy(),
        class_id=rows[:, 3].copy(),
        classes=recording.classes,
        max_concurrency=recording.max_concurrency,
        prefix_group=rows[:, 4].copy() if shares else None,
        prefix_tokens=rows[:, 5].copy() if shares else None,
    )


def write_trace(path: Path, requests: Requests) -> None:
    """Export requests so that replaying the file gives them back exactly; written atomically."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.writelines(_exported(requests))
        except BaseException:
            os.unlink(file.name)
            raise
    os.replace(file.name, path)


def _exported(requests: Requests) -> Iterator[str]:
    header: dict[str, Any] = {
        "schema": TRACE_SCHEMA,
        "classes": list(requests.classes),
        "max_concurrency": requests.max_concurrency,
    }
    if requests.hashes is not None:
        header["hash_block"] = requests.hashes.block
    yield json.dumps(header) + "\n"
    names = [json.dumps(name) for name in requests.classes]
    columns = (requests.arrival_ns, requests.prompt_tokens, requests.output_tokens, requests.class_id)
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        arrival, prompt, output, kind = row
        prefix = _prefix(requests, number) + _hash_ids(requests, number)
        yield (
            f'{{"arrival_ns": {arrival}, "prompt_tokens": {prompt}, '
            f'"output_tokens": {output}, "class": {names[kind]}{prefix}}}\n'
        )


def _prefix(requests: Requests, number: int) -> str:
    """The fields of a request whose prompt starts like others."""
    if requests.prefix_group is None or requests.prefix_tokens is None or requests.prefix_group[number] < 0:
        return ""
    group, tokens = int(requests.prefix_group[number]), int(requests.prefix_tokens[number])
    return f', "prefix_group": {group}, "prefix_tokens": {tokens}'


def _hash_ids(requests: Requests, number: int) -> str:
    """The hashes of a prompt's blocks, where it has any."""
    found = () if requests.hashes is None else requests.hashes.prompt(number)
    return f', "hash_ids": {list(found)}' if found else ""
