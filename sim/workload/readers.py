"""Readers of trace formats: each turns a file into rows and adds bad ones to ``Problems``.

To add a format: write a function like those below, add its line to ``READERS`` and its name to
``arrival_config.TraceFormat``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sim.units import NS_PER_MS, NS_PER_S
from sim.workload.fields import scaled_ns, seconds_ns, timestamp_ns, whole
from sim.workload.problems import Problems

TRACE_SCHEMA = "leadline.trace/1"


class Row(NamedTuple):
    """One request as recorded; 0 tokens on either side marks a failed one."""

    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    class_id: int = 0
    prefix_group: int = -1
    prefix_tokens: int = 0
    hashes: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """All but the hashes, in order."""
        arrival_ns, prompt, output, class_id, group, shared, _ = self
        return arrival_ns, prompt, output, class_id, group, shared


@dataclass(frozen=True)
class Recording:
    """Rows in file order, and what the file says about all of them.

    ``from_zero``: times count from the start of the run; otherwise from the earliest row. ``hash_block``:
    tokens of a hashed block, where the file says so.
    """

    rows: Iterator[Row]
    classes: tuple[str, ...] = ("default",)
    max_concurrency: int | None = None
    from_zero: bool = False
    hash_block: int | None = None


Reader = Callable[[Path, Problems], Recording]


def _lines(path: Path) -> Iterator[str]:
    # Bytes that are not UTF-8 become U+FFFD, so a damaged row is reported with its line number.
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        yield from lines


def _csv_rows(path: Path, problems: Problems, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Line number and the values of ``columns``, found by name."""
    reader = csv.reader(_lines(path))
    header = [name.strip() for name in next(reader, [])]
    missing = [name for name in columns if name not in header]
    if missing:
        raise problems.fail(1, f"the header lacks {', '.join(missing)}; the columns must be named so")
    wanted = [header.index(name) for name in columns]
    for row in _rows_of(reader, problems):
        if len(row) != len(header):
            problems.add(
                reader.line_num, f"has {len(row)} fields where the header has {len(header)}; cut or fill"
            )
        else:
            yield reader.line_num, [row[i] for i in wanted]


def _rows_of(reader: Any, problems: Problems) -> Iterator[list[str]]:
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problems.add(reader.line_num, f"is not CSV ({error}); mend or remove the line")
            continue
        if row:
            yield row


def _json_rows(
    path: Path, problems: Problems, keys: tuple[str, ...], first: int = 1
) -> Iterator[tuple[int, Any]]:
    """Line number and object of each line from line ``first`` that has all ``keys``."""
    for number, line in enumerate(_lines(path), 1):
        if number < first or not line.strip():
            continue
        try:
            yield number, _json_row(line, keys)
        except ValueError as error:
            problems.add(number, str(error))


def _json_row(line: str, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at column {error.colno}); one object per line") from None
    if not isinstance(row, dict):
        raise ValueError(f"is {line.strip()[:40]!r}; each line must be a JSON object")
    missing = [key for key in keys if key not in row]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}; a row has {', '.join(keys)}")
    return row


def _parsed(
    rows: Iterator[tuple[int, Any]], parse: Callable[[Any], Row], problems: Problems
) -> Iterator[Row]:
    for line, row in rows:
        try:
            yield parse(row)
        except ValueError as error:
            problems.add(line, str(error))


def azure(path: Path, problems: Problems) -> Recording:
    """Azure LLM inference traces 2023 and 2024 (CSV; timestamps with or without a time zone)."""
    columns = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

    def parse(row: list[str]) -> Row:
        return Row(timestamp_ns(row[0], columns[0]), whole(row[1], columns[1]), whole(row[2], columns[2]))

    return Recording(_parsed(_csv_rows(path, problems, columns), parse, problems))


def burstgpt(path: Path, problems: Problems) -> Recording:
    """BurstGPT, all variants (CSV; columns by name, since the third release inserts two)."""
    columns = ("Timestamp", "Request tokens", "Response tokens")

    def parse(row: list[str]) -> Row:
        return Row(seconds_ns(row[0], columns[0]), whole(row[1], columns[1]), whole(row[2], columns[2]))

    return Recording(_parsed(_csv_rows(path, problems, columns), parse, problems))


def mooncake(path: Path, problems: Problems) -> Recording:
    """Mooncake traces (JSONL; milliseconds), with the hashes of prompts where rows have them."""
    return _token_lengths(path, problems, NS_PER_MS)


def guidellm(path: Path, problems: Problems) -> Recording:
    """Traces that GuideLLM replays: Mooncake's rows, in seconds."""
    return _token_lengths(path, problems, NS_PER_S)


def _token_lengths(path: Path, problems: Problems, ns_per_unit: int) -> Recording:
    keys = ("timestamp", "input_length", "output_length")

    def parse(row: dict[str, Any]) -> Row:
        arrival_ns = scaled_ns(row[keys[0]], keys[0], ns_per_unit)
        lengths = whole(row[keys[1]], keys[1]), whole(row[keys[2]], keys[2])
        return Row(arrival_ns, *lengths, hashes=_hashes(row))

    return Recording(_parsed(_json_rows(path, problems, keys), parse, problems))


def _hashes(row: dict[str, Any]) -> tuple[int, ...]:
    """Hashes of a prompt's blocks, if the row has any."""
    hashes = row.get("hash_ids")
    if hashes is None:
        return ()
    good = isinstance(hashes, list) and all(type(each) is int and abs(each) < 2**63 for each in hashes)
    if not good:
        raise ValueError(f"hash_ids is {str(hashes)[:40]}; it must be a list of whole numbers")
    return tuple(hashes)


def leadline(path: Path, problems: Problems) -> Recording:
    """Trace exported by leadline (JSONL; a header, then integer nanoseconds)."""
    header = _header(path, problems)
    classes = header.get("classes", ["default"])
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        raise problems.fail(1, f"classes is {classes!r}; it must be a list of names")
    concurrency = _positive(header.get("max_concurrency"), "max_concurrency", problems)
    keys = ("arrival_ns", "prompt_tokens", "output_tokens")
    ids = {name: i for i, name in enumerate(classes)}

    def parse(row: dict[str, Any]) -> Row:
        times_and_lengths = whole_ns(row, keys[0]), whole(row[keys[1]], keys[1]), whole(row[keys[2]], keys[2])
        return Row(*times_and_lengths, _class(row), *_prefix(row), _hashes(row))

    def _class(row: dict[str, Any]) -> int:
        name = row.get("class", classes[0])
        if name not in ids:
            raise ValueError(f"class is {name!r}; the header has {', '.join(classes)}")
        return ids[name]

    rows = _parsed(_json_rows(path, problems, keys, first=2), parse, problems)
    block = _positive(header.get("hash_block"), "hash_block", problems)
    return Recording(rows, tuple(classes), concurrency, from_zero=True, hash_block=block)


def _prefix(row: dict[str, Any]) -> tuple[int, int]:
    """Prefix group and shared tokens of a row; both or none."""
    keys = ("prefix_group", "prefix_tokens")
    if not any(key in row for key in keys):
        return -1, 0
    missing = [key for key in keys if key not in row]
    if missing:
        raise ValueError(f"lacks {missing[0]}; prefix_group and prefix_tokens come together")
    return whole(row[keys[0]], keys[0]), whole(row[keys[1]], keys[1])


def whole_ns(row: dict[str, Any], key: str) -> int:
    """Arrival in whole nanoseconds from 0."""
    value = row[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise ValueError(f"{key} is {value!r}; it must be whole nanoseconds from 0")
    return value


def _header(path: Path, problems: Problems) -> dict[str, Any]:
    wanted = f'the first line must be {{"schema": "{TRACE_SCHEMA}"}}'
    try:
        header = json.loads(next(_lines(path), ""))
    except json.JSONDecodeError:
        raise problems.fail(1, f"is not a header; {wanted}") from None
    schema = header.get("schema") if isinstance(header, dict) else None
    if schema != TRACE_SCHEMA:
        raise problems.fail(1, f"schema is {schema!r}; {wanted}")
    return dict(header)


def _positive(value: object, name: str, problems: Problems) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise problems.fail(1, f"{name} is {value!r}; it must be a positive whole number or null")


def vllm_bench(path: Path, problems: Problems) -> Recording:
    """One detailed result of ``vllm bench serve`` (one JSON object, on one line or many).

    The intended arrival is when the client scheduled the request: start_times less queue_times
    (vllm/benchmarks/serve.py). Requests with an error count as failed.
    """
    run = _one_run(path, problems)
    keys = ("input_lens", "output_lens", "start_times")
    missing = [key for key in keys if not isinstance(run.get(key), list)]
    if missing:
        raise problems.fail(1, f"has no {', '.join(missing)}; record with --save-result --save-detailed")
    queue = run.get("queue_times") or [0.0] * len(run["start_times"])
    errors = run.get("errors") or [""] * len(run["start_times"])
    columns = [run["start_times"], queue, run["input_lens"], run["output_lens"], errors]
    sizes = [len(column) for column in columns]
    if len(set(sizes)) != 1:
        raise problems.fail(1, f"the per-request lists have {sizes} entries; they must be equally long")
    rows = _parsed(((1, row) for row in enumerate(zip(*columns, strict=True))), _bench_row, problems)
    most = _positive(run.get("max_concurrency"), "max_concurrency", problems)
    return Recording(rows, max_concurrency=most)


def _bench_row(row: tuple[int, tuple[Any, ...]]) -> Row:
    i, (start, queue, prompt, output, error) = row
    arrival_ns = scaled_ns(start, f"start_times[{i}]", NS_PER_S) - scaled_ns(
        queue or 0.0, f"queue_times[{i}]", NS_PER_S
    )
    prompt, output = whole(prompt, f"input_lens[{i}]"), whole(output, f"output_lens[{i}]")
    return Row(arrival_ns, prompt, 0 if error else output)


def _one_run(path: Path, problems: Problems) -> dict[str, Any]:
    text = "".join(_lines(path))
    try:
        run = json.loads(text)
    except json.JSONDecodeError as error:
        raise problems.fail(error.lineno, _not_one_run(error)) from None
    if not isinstance(run, dict):
        raise problems.fail(1, "is not a JSON object; give one result of vllm bench serve")
    return run


def _not_one_run(error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "starts a second run; a trace replays one: keep one line of the file"
    return f"is not JSON ({error.msg} at column {error.colno}); give one result of vllm bench serve"


READERS: dict[str, Reader] = {
    "azure": azure,
    "burstgpt": burstgpt,
    "guidellm": guidellm,
    "leadline": leadline,
    "mooncake": mooncake,
    "vllm_bench": vllm_bench,
}
