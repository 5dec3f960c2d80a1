"""Cost tables that serving engines measure for their own depth policies.

vLLM: a draft curve over requests and a verify curve over tokens, padded to captured sizes. SGLang:
steps per second over tokens, or the same additive form as TensorRT-LLM's, in seconds.
TensorRT-LLM: ``T = bias + alpha(requests) + theta(tokens)`` with ``theta`` as a staircase, in ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrate.importers.common import (
    CONTEXT,
    MS,
    About,
    Reading,
    Row,
    csv_rows,
    file_source,
    json_objects,
    not_flat,
    numbers,
    rising,
    same_length,
    step_samples,
)
from calibrate.profile import Assumption, Counted, Curve, Drafter, ProfileError, Sample, StatedError, Term

WHOLE = Assumption(
    what="drafters",
    value="no time of their own",
    why="the engine times whole steps, drafting included; a step that drafts nothing is priced too high",
)
PROFILE_CONTEXT = "one synthetic context per request, 8,192 tokens by default"
Points = list[tuple[int, float]]


def _only(files: Sequence[Path]) -> Path:
    if len(files) != 1:
        raise ProfileError(
            str(files[-1]) if files else "FILE", "file", "give exactly one file of this format"
        )
    return files[0]


def _term(
    name: str, key: str, x: Sequence[int], ns: Sequence[float], over: Counted, step: bool = False
) -> Term:
    curve = Curve(
        over=over,
        x=tuple(x),
        ns=tuple(round(value, 1) for value in ns),
        between="step" if step else "linear",
    )
    return Term(name=name, mark="measured", source=key, curve=curve)


def read_vllm(files: Sequence[Path], about: About) -> Reading:
    """The tables of vLLM's adaptive verification: ``curve,x,ms`` rows, or JSON ``verify``/``draft`` pairs.

    Where an x stands twice, a staircase was drawn: the first value is the cost of that captured
    size, the second begins the next step. Steps are padded up to the next size of the table.
    """
    path = _only(files)
    verify, draft = _vllm_json(path) if path.suffix == ".json" else _vllm_csv(path)
    key = "vllm-cost"
    x, ms = zip(*verify, strict=True)
    not_flat(ms, "verify", path)
    terms = (_term("step", key, x, [MS * value for value in ms], "tokens", step=True),)
    what = "vLLM adaptive verification: target pass over tokens, draft pass over requests, captured graphs"
    assumption = CONTEXT.model_copy(update={"value": PROFILE_CONTEXT})
    return Reading(
        verify=terms,
        max_tokens=x[-1],
        sources=(file_source(key, path, what, about),),
        samples=(*step_samples(key, verify), *_draft_samples(key, draft)),
        assumptions=(assumption,),
        drafters={about.draft_name: _block_drafter(key, draft)} if draft else {},
    )


def _block_drafter(key: str, draft: Points) -> Drafter:
    x, ms = zip(*draft, strict=True)
    first = _term("draft_block", key, x, [MS * value for value in ms], "sequences", step=True)
    return Drafter(kind="parallel", first=(first,))


def _draft_samples(key: str, draft: Points) -> tuple[Sample, ...]:
    return tuple(
        sample.model_copy(update={"op": "draft_block"}) for sample in step_samples(key, draft, "sequences")
    )


def _vllm_csv(path: Path) -> tuple[Points, Points]:
    verify: Points = []
    draft: Points = []
    for row in csv_rows(path, ("curve", "x", "ms"), "curve,x,ms"):
        points = _curve_of(row, verify, draft)
        x, ms = row.count("x"), row.positive("ms")
        if points and x < points[-1][0]:
            raise row.wrong("x", "x must not fall within a curve: sort the rows")
        if not points or x > points[-1][0]:
            points.append((x, ms))
    if not verify:
        raise ProfileError(str(path), "curve", "has no rows whose curve begins with 'verify'")
    return verify, draft


def _curve_of(row: Row, verify: Points, draft: Points) -> Points:
    name = row.values["curve"]
    if name.startswith("verify"):
        return verify
    if name.startswith("draft"):
        return draft
    raise row.wrong("curve", "give a curve that begins with 'verify' or 'draft'")


def _vllm_json(path: Path) -> tuple[Points, Points]:
    data = json_objects(path)[0]
    return _pairs(data, "verify", path), _pairs(data, "draft", path) if data.get("draft") else []


def _pairs(data: Mapping[str, Any], key: str, path: Path) -> Points:
    pairs = data.get(key)
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ProfileError(str(path), key, "is not a list of pairs; give [[count, ms], ...]")
    counts = numbers({key: [pair[0] for pair in pairs]}, key, path, 1)
    times = numbers({key: [pair[1] for pair in pairs]}, key, path, 1e-9)
    return list(zip(rising(counts, key, path), times, strict=True))


def read_sglang(files: Sequence[Path], about: About) -> Reading:
    """SGLang's DSpark table: ``sample_batch_tokens`` and ``sample_steps_per_sec``, or the additive form."""
    path = _only(files)
    data = json_objects(path)[0]
    return _sglang_additive(path, data, about) if "bias_seconds" in data else _sglang_steps(path, data, about)


def _sglang_steps(path: Path, data: Mapping[str, Any], about: About) -> Reading:
    counts = numbers(data, "sample_batch_tokens", path, 1)
    rates = numbers(data, "sample_steps_per_sec", path, 1e-9)
    same_length("sample_steps_per_sec", rates, counts, path)
    x, key = rising(counts, "sample_batch_tokens", path), "sglang-sps"
    points = [(n, 1e3 / rate) for n, rate in zip(x, rates, strict=True)]
    not_flat([ms for _, ms in points], "sample_steps_per_sec", path)
    what = "SGLang DSpark cost table: steps per second over verified tokens"
    return Reading(
        verify=(_term("step", key, x, [MS * ms for _, ms in points], "tokens"),),
        max_tokens=_most(data, x, path),
        sources=(file_source(key, path, what, about),),
        samples=step_samples(key, points),
        assumptions=(CONTEXT, WHOLE),
        drafters={about.draft_name: Drafter(kind="parallel")},
    )


def _most(data: Mapping[str, Any], x: Sequence[int], path: Path) -> int:
    largest = numbers(
        {"max_batch_tokens": [data.get("max_batch_tokens", x[-1])]}, "max_batch_tokens", path, 1
    )
    return int(largest[0])


def _sglang_additive(path: Path, data: Mapping[str, Any], about: About) -> Reading:
    key = "sglang-sps"
    bias = numbers({"bias_seconds": [data["bias_seconds"]]}, "bias_seconds", path)[0]
    requests, alpha = _probes(path, data, "bs_probes", "alpha_seconds")
    tokens, theta = _probes(path, data, "m_probes", "theta_seconds")
    not_flat([1e3 * (bias + value) for value in theta], "theta_seconds", path)
    what = "SGLang DSpark cost table: bias + alpha(requests) + theta(verified tokens)"
    return Reading(
        verify=(
            Term(name="bias", mark="measured", source=key, fixed_ns=round(bias * 1e9, 1)),
            _term("requests", key, requests, [1e9 * s for s in alpha], "sequences"),
            _term("tokens", key, tokens, [1e9 * s for s in theta], "tokens"),
        ),
        max_tokens=tokens[-1],
        sources=(file_source(key, path, what, about),),
        assumptions=(CONTEXT, WHOLE),
        drafters={about.draft_name: Drafter(kind="parallel")},
    )


def _probes(
    path: Path, data: Mapping[str, Any], counts: str, times: str
) -> tuple[tuple[int, ...], Sequence[float]]:
    x, values = numbers(data, counts, path, 1), numbers(data, times, path)
    same_length(times, values, x, path)
    return rising(x, counts, path), values


def read_trtllm(files: Sequence[Path], about: About) -> Reading:
    """TensorRT-LLM's DSpark table: floors by batch, and ``step_time_ms`` as a staircase over tokens.

    An entry's time holds from its token count to just below the next one, the last one for ever.
    """
    path = _only(files)
    data = json_objects(path)[0]
    key = "trtllm-cost"
    tokens, theta = _probes(path, data, "token_counts", "step_time_ms")
    bias = numbers({"fixed_overhead_ms": [data.get("fixed_overhead_ms", 0)]}, "fixed_overhead_ms", path)[0]
    not_flat([bias + value for value in theta], "step_time_ms", path)
    cells = _cells(data, path)
    last = max([tokens[-1], *(tokens_of for tokens_of, _, _ in cells)])
    x = (*(n - 1 for n in tokens[1:]), last, last + 1)
    terms = [_term("tokens", key, x, [MS * ms for ms in (*theta, theta[-1])], "tokens", step=True)]
    if bias:
        terms.append(Term(name="bias", mark="measured", source=key, fixed_ns=round(bias * MS, 1)))
    if data.get("batch_sizes"):
        sizes, extra = _probes(path, data, "batch_sizes", "batch_overhead_ms")
        terms.append(_term("requests", key, sizes, [MS * ms for ms in extra], "sequences"))
    what = "TensorRT-LLM DSpark cost table: bias + alpha(requests) + theta(verified tokens)"
    return Reading(
        verify=tuple(terms),
        max_tokens=last,
        sources=(file_source(key, path, what, about),),
        samples=tuple(_cell_sample(key, *cell) for cell in cells),
        assumptions=(CONTEXT, WHOLE),
        drafters={about.draft_name: Drafter(kind="parallel")},
        error=_fit_error(data, path),
    )


def _meta(data: Mapping[str, Any], key: str) -> Any:
    meta = data.get("_meta")
    return meta.get(key) if isinstance(meta, dict) else None


CELL = ("total_verify_tokens", "batch_size", "step_time_ms")


def _cells(data: Mapping[str, Any], path: Path) -> list[tuple[int, int, float]]:
    """Raw cells kept in ``_meta``: (tokens, requests, ms)."""
    cells = _meta(data, "cells") or []
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ProfileError(
            str(path), "_meta.cells", "is not a list of cells; give the file as it was written"
        )
    columns = [numbers({key: [c.get(key) for c in cells]}, key, path, 1e-9) if cells else () for key in CELL]
    return [(int(tokens), int(requests), ms) for tokens, requests, ms in zip(*columns, strict=True)]


def _cell_sample(key: str, tokens: int, requests: int, ms: float) -> Sample:
    return Sample(op="step", shape={"tokens": tokens, "sequences": requests}, us=ms * 1e3, source=key)


def _fit_error(data: Mapping[str, Any], path: Path) -> StatedError | None:
    fit = _meta(data, "fit")
    if not isinstance(fit, dict) or "max_rel_residual" not in fit:
        return None
    worst = numbers({"max_rel_residual": [fit["max_rel_residual"]]}, "max_rel_residual", path)[0]
    basis = "largest residual of the profiler's own additive fit"
    return StatedError(relative=min(0.99, worst), basis=basis)
