"""Measurements by hand, or from any other tool: a CSV file with one run per row.

Needed: ``concurrency`` or ``request_rate``, ``requests``, ``input_tokens``, ``output_tokens`` (means),
and at least one metric by its name here (``tpot_mean_ms``, ``ttft_mean_ms``, ``itl_mean_ms``,
``e2el_mean_ms``, ``output_tokens_per_s``, ``acceptance_length``, ...). ``depth`` is optional: drafts
per round, 0 for plain decoding. Empty cells are unknown; lines that start with # are comments.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Final

from sim.against.fields import Fields
from sim.against.measured import COMPARED, Load, Run, completed, spread

HINT = (
    "one run per row: concurrency or request_rate, requests, input_tokens, output_tokens, tpot_mean_ms, ..."
)
_DERIVED: Final = ("tokens_per_chunk", "decoding_mean", "prompt_tokens_mean", "output_tokens_mean")
MEASURED: Final = tuple(name for name in COMPARED if name not in _DERIVED)


def matches(text: str) -> bool:
    """Whether the text is such a table."""
    header = next(_lines(text), "").split(",")
    return bool({"concurrency", "request_rate"} & set(header)) and bool(set(MEASURED) & set(header))


def read(place: str, text: str) -> list[Run]:
    """One run per row."""
    rows = csv.DictReader(_lines(text))
    return [_run(f"{place}, row {i}", row) for i, row in enumerate(rows, 1)]


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _run(place: str, row: dict[str, str]) -> Run:
    fields = Fields(place, {key: _number(value) for key, value in row.items() if key and value}, HINT)
    count, depth = round(fields.number("requests")), fields.maybe("depth")
    prompt, output = fields.number("input_tokens"), fields.number("output_tokens")
    metrics = {name: value for name in MEASURED if (value := fields.maybe(name)) is not None}
    return Run(
        place,
        "table",
        _load(fields),
        spread(prompt, count),
        spread(output, count),
        completed({**metrics, "prompt_tokens_mean": prompt, "output_tokens_mean": output}),
        depth=None if depth is None else round(depth),
    )


def _number(text: str) -> float | str:
    """The number of a cell; text that is none is left for the message."""
    try:
        return float(text)
    except ValueError:
        return text


def _load(fields: Fields) -> Load:
    concurrency, rate = fields.maybe("concurrency"), fields.maybe("request_rate")
    if not concurrency and not rate:
        raise fields.wrong("concurrency", "or request_rate is missing")
    return Load(round(concurrency) if concurrency else None, rate or None)
