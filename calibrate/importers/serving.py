"""Step costs from serving logs alone: time per output token at several concurrencies.

From a run: sequences decoding = output tokens/s x TPOT (Little's law, at most the concurrency); a step
takes TPOT x acceptance length; its tokens are sequences x (depth + 1), and the prefill tokens that
arrive while it runs. The curve over tokens goes through the runs without speculation; runs with it
then leave the drafter's time. Runs with speculation only cannot tell drafter and target apart.

What logs cannot tell: whether a step grows with tokens, with sequences or with context, as all three
grow with concurrency together. The stated error is half of what that leaves open at depth 3, or
what the runs with speculation are missed by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from calibrate.from_steps import Point, drafter_of, step_terms
from calibrate.importers.common import About, Reading, Row, csv_rows, file_source, json_objects, not_flat
from calibrate.importers.points import medians, repeat_error
from calibrate.profile import Assumption, Drafter, ProfileError, Sample, StatedError

KEY = "serving-log"
WIDTH = 4
"""Tokens per sequence (depth 3) at which the ambiguity is stated."""
LEAST_ERROR = 0.05
"""A mean over a whole run hides at least this much: batches vary while it runs. Twice that where only
one depth was run, as other depths are then guesses."""
EXAMPLE = "concurrency,tpot_ms (and depth, acceptance_length, input_tokens, output_tokens, request_per_s)"


class Run(NamedTuple):
    """One benchmark run, reduced to a mean step: counts of the step and its time in ms."""

    concurrency: int
    sequences: int
    tokens: int
    depth: float
    step_ms: float


def read_serving(files: Sequence[Path], about: About) -> Reading:
    """Runs as vLLM bench JSON, AIPerf JSON or CSV, at two concurrencies at least."""
    runs = [run for path in files for run in _runs(path)]
    plain = [run for run in runs if run.depth == 0]
    base = plain or runs
    if len({run.tokens for run in base}) < 2:
        message = "has runs of one step size; give results at two or more concurrencies without speculation"
        raise ProfileError(str(files[0]) if files else "FILE", "concurrency", message)
    steps = [(run.tokens, run.step_ms) for run in base]
    points, repeats = medians(steps), repeat_error(steps)
    not_flat([point.ms for point in points], "tpot", files[0], repeats.relative if repeats else 0.0)
    drafter, misses = _drafter([run for run in runs if run.depth], points, about) if plain else (None, [])
    what = "TPOT by concurrency, as the benchmark client saw it"
    return Reading(
        verify=step_terms(points, KEY),
        max_tokens=max(run.tokens for run in runs),
        sources=tuple(file_source(KEY, path, what, about) for path in files),
        samples=tuple(_sample(run) for run in runs),
        assumptions=_assumptions(plain=bool(plain), drafter=drafter is not None),
        drafters=_drafters(drafter, about, plain=bool(plain)),
        error=_error(base, points, misses, len({round(run.depth) for run in runs})),
    )


def _drafters(drafter: Drafter | None, about: About, *, plain: bool) -> Mapping[str, Drafter]:
    if drafter is not None:
        return {about.draft_name: drafter}
    return {} if plain else {about.draft_name: Drafter(kind=about.draft_kind)}


def _sample(run: Run) -> Sample:
    shape: dict[str, int | float | str] = {
        "tokens": run.tokens,
        "sequences": run.sequences,
        "concurrency": run.concurrency,
        "depth": round(run.depth, 3),
    }
    return Sample(op="step", shape=shape, us=round(run.step_ms * 1e3, 3), source=KEY)


def at_tokens(points: Sequence[Point], tokens: float) -> float:
    """Step time in ms of the curve through the points, on with the last slope."""
    x, ms = [point.size for point in points], [point.ms for point in points]
    slope = max(0.0, (ms[-1] - ms[-2]) / (x[-1] - x[-2]))
    return float(np.interp(tokens, x, ms)) + slope * max(0.0, tokens - x[-1])


def _drafter(
    runs: Sequence[Run], points: Sequence[Point], about: About
) -> tuple[Drafter | None, list[float]]:
    """The drafter that explains the runs with speculation, and the share by which it misses each."""
    if not runs:
        return None, []
    sequential = about.draft_kind not in ("parallel", "ngram")
    passes = [run.depth if sequential else 1.0 for run in runs]
    left = [run.step_ms - at_tokens(points, run.tokens) for run in runs]
    each = max(0.0, median(ms / n for ms, n in zip(left, passes, strict=True)))
    misses = [abs(each * n - ms) / run.step_ms for ms, n, run in zip(left, passes, runs, strict=True)]
    depth = math.ceil(max(run.depth for run in runs))
    further = each if sequential else 0
    text = f"{about.draft_name}:{about.draft_kind}:{each:.6f}:{further:.6f}:{max(depth, 16)}"
    return drafter_of(text, KEY)[1], misses


def _error(base: Sequence[Run], points: Sequence[Point], misses: Sequence[float], depths: int) -> StatedError:
    if misses:
        share, basis = sum(misses) / len(misses), "mean miss of the runs with speculation"
    else:
        share = _ambiguity(base, points)
        basis = "half of what growth per token and growth per sequence differ by at depth 3"
    least = LEAST_ERROR if depths > 2 else 2 * LEAST_ERROR
    share = min(0.9, max(least, share))
    return StatedError(relative=round(share, 3), basis=f"{basis}; at least {least:.0%}")


def _ambiguity(base: Sequence[Run], points: Sequence[Point]) -> float:
    """Mean over the runs of (all growth per token - all per sequence) / their sum, at ``WIDTH``."""
    spreads = []
    for run in base:
        extra = run.sequences * (WIDTH - 1)
        low, high = at_tokens(points, run.tokens), at_tokens(points, run.tokens + extra)
        spreads.append((high - low) / (high + low))
    return sum(spreads) / len(spreads)


def _assumptions(*, plain: bool, drafter: bool) -> tuple[Assumption, ...]:
    growth = Assumption(
        what="target.verify",
        value="all growth with concurrency is per token",
        why="tokens, sequences and context grow together in these runs; they cannot be told apart. "
        "Runs at another depth or another prompt length would tell",
    )
    context = Assumption(
        what="target.verify: context",
        value="the mean context of the runs",
        why="reading the cache is inside the curve; longer contexts are priced too low",
    )
    host = Assumption(
        what="target.host, accept",
        value="inside the step",
        why="a client sees whole steps; host time cannot be told from the device's",
    )
    found = [growth, context, host]
    if drafter:
        why = "the drafter is what runs with speculation take beyond the curve: its passes are equal in it"
        found.append(Assumption(what="drafters", value="equal passes at every batch", why=why))
    if not plain:
        why = "no run without speculation: drafter and target cannot be told apart, other depths are guesses"
        found.append(Assumption(what="drafters", value="no time of their own", why=why))
    return tuple(found)


def _runs(path: Path) -> list[Run]:
    if path.suffix == ".csv":
        rows = csv_rows(path, ("concurrency", "tpot_ms"), EXAMPLE)
        return [_from_row(row) for row in rows]
    return [_from_json(data, path) for data in json_objects(path)]


def _from_row(row: Row) -> Run:
    def optional(column: str, default: float) -> float:
        return row.positive(column) if row.values.get(column, "") not in ("", "0") else default

    depth = optional("depth", 0.0)
    if depth and not row.values.get("acceptance_length"):
        raise row.wrong("acceptance_length", "a run with speculation needs it: give tokens per step")
    return _run(
        concurrency=row.count("concurrency"),
        tpot_ms=row.positive("tpot_ms"),
        depth=depth,
        accepted=optional("acceptance_length", 1.0),
        prompt=optional("input_tokens", 0.0),
        output=optional("output_tokens", 0.0),
        requests_per_s=optional("request_per_s", 0.0),
    )


def _run(
    concurrency: int,
    tpot_ms: float,
    depth: float,
    accepted: float,
    prompt: float,
    output: float,
    requests_per_s: float,
) -> Run:
    """A mean step. Own prefill never delays one's own tokens, hence the share of the others."""
    step_ms = tpot_ms * accepted
    decoding = requests_per_s * output * tpot_ms / 1e3 if requests_per_s and output else concurrency
    sequences = max(1, min(concurrency, round(decoding)))
    prefill = requests_per_s * prompt * step_ms / 1e3 * (concurrency - 1) / concurrency
    return Run(concurrency, sequences, round(sequences * (depth + 1) + prefill), depth, step_ms)


def _from_json(data: Mapping[str, Any], path: Path) -> Run:
    return _aiperf(data, path) if "inter_token_latency" in _records(data) else _vllm_bench(data, path)


def _number(data: Mapping[str, Any], key: str, path: Path, default: float | None = None) -> float:
    value = data.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ProfileError(str(path), key, f"is {value!r}; give a result with a number above 0 there")
    return float(value)


def _concurrency(data: Mapping[str, Any], key: str, path: Path) -> int:
    return max(1, round(_number(data, key, path)))


def _vllm_bench(data: Mapping[str, Any], path: Path) -> Run:
    completed = _number(data, "completed", path)
    drafts = _number(data, "spec_decode_num_drafts", path) if data.get("spec_decode_num_drafts") else 0.0
    depth = _number(data, "spec_decode_draft_tokens", path) / drafts if drafts else 0.0
    return _run(
        concurrency=_concurrency(data, "max_concurrency", path),
        tpot_ms=_number(data, "mean_tpot_ms", path),
        depth=depth,
        accepted=_number(data, "spec_decode_acceptance_length", path) if drafts else 1.0,
        prompt=_number(data, "total_input_tokens", path, 0.0) / completed,
        output=_number(data, "total_output_tokens", path) / completed,
        requests_per_s=completed / _number(data, "duration", path),
    )


def _records(data: Mapping[str, Any]) -> Mapping[str, Any]:
    records = data.get("records")
    return records if isinstance(records, dict) else data


def _aiperf(data: Mapping[str, Any], path: Path) -> Run:
    """AIPerf's summary; its inter-token latency is vLLM's TPOT. It knows nothing of speculation."""
    records = _records(data)

    def mean(tag: str, default: float | None = None) -> float:
        found = records.get(tag)
        return _number(found if isinstance(found, dict) else {}, "avg", path, default)

    config = data.get("input_config")
    load = config.get("loadgen") if isinstance(config, dict) else None
    return _run(
        concurrency=_concurrency(load if isinstance(load, dict) else {}, "concurrency", path),
        tpot_ms=mean("inter_token_latency"),
        depth=0.0,
        accepted=1.0,
        prompt=mean("input_sequence_length", 0.0),
        output=mean("output_sequence_length", 0.0),
        requests_per_s=mean("request_throughput", 0.0),
    )
