r"""A profile from a handful of measurements: step times, or throughputs of a closed loop.

Enough for a question about one deployment when all that is known is what its benchmark printed.
A point is ``TOKENS=MS`` (``--steps``: time of a step of so many tokens) or ``CONCURRENCY=TOK_S``
(``--throughput``: output tokens per second of plain decoding, so that a step of c sequences takes
c / TOK_S seconds). The curve goes through every point, straight in between, and on with the last
slope; nothing is smoothed, and nothing that was not given is guessed.

    python -m calibrate.from_steps my-gpu --throughput 1=128.7 8=792 64=2425 --over logits \
        --drafter medusa:parallel:0.4 --device "My GPU:80:3350:989" --parameters 7.2e9 \
        --source "our benchmark of 2026-05-02" --out profiles

What to know before trusting it: one row of points cannot tell a step with more *sequences* from
one with more *tokens of the same sequences*. ``--over`` says what the points count; by
``--per-sequence SHARE`` that share of the growth beyond the first point is paid per sequence, so
that verified drafts do not pay it. Throughputs hold prefill already: count ``logits`` (rows that
are sampled or verified), then prefill chunks cost nothing a second time.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from pydantic import ValidationError

from calibrate.profile import (
    SCHEMA,
    Counted,
    Curve,
    Device,
    Drafter,
    DrafterKind,
    Mark,
    ModelWork,
    Profile,
    Source,
    Target,
    Term,
    save_profile,
)

MS: Final = 1e6
COMMAND: Final = "python -m calibrate.from_steps"
DRAFTER: Final = "NAME:KIND:FIRST_MS[:NEXT_MS[:MAX_DEPTH]]"
DEVICE: Final = "NAME:GB:GB_PER_S:TFLOPS[:COUNT]"


class Point(NamedTuple):
    """A step of ``size`` tokens, sequences or logits took ``ms``."""

    size: int
    ms: float


def step_points(points: Sequence[tuple[int, float]]) -> tuple[Point, ...]:
    """Step times as they are, in order of size."""
    return tuple(sorted(Point(size, ms) for size, ms in points))


def throughput_points(points: Sequence[tuple[int, float]]) -> tuple[Point, ...]:
    """Step times from (concurrency, output tokens per second) of plain decoding: c / tok_s."""
    return step_points([(clients, 1e3 * clients / rate) for clients, rate in points])


def step_terms(
    points: Sequence[Point],
    source: str,
    over: Counted = "tokens",
    per_sequence: float = 0.0,
    context_ns: float = 0.0,
    mark: Mark = "measured",
    window_ns: float = 0.0,
) -> tuple[Term, ...]:
    """Terms of a verify pass that takes what the points say where ``over`` equals the sequences.

    ``per_sequence`` of the growth beyond the first point counts sequences instead of ``over``;
    ``context_ns`` per KV token read comes on top of the points, ``window_ns`` per KV token that windowed
    layers read, too. Raises ``ValueError`` for a share outside 0..1 and whatever does not make a curve.
    """
    if not 0 <= per_sequence <= 1:
        raise ValueError(f"--per-sequence is {per_sequence}; it is a share, from 0 to 1")
    first = points[0].ms if points else 0.0
    grown = [per_sequence * (point.ms - first) for point in points]
    counted = [point.ms - part for point, part in zip(points, grown, strict=True)]
    common: dict[str, Any] = {"mark": mark, "source": source}
    terms = [Term(name="step", curve=_curve(over, points, counted), **common)]
    if per_sequence:
        terms.append(Term(name="sequences", curve=_curve("sequences", points, grown), **common))
    if context_ns:
        terms.append(Term(name="context", per_ns={"context_tokens": context_ns}, **common))
    if window_ns:
        terms.append(Term(name="windows", per_ns={"window_context_tokens": window_ns}, **common))
    return tuple(terms)


def _curve(over: Counted, points: Sequence[Point], ms: Sequence[float]) -> Curve:
    x = tuple(point.size for point in points)
    return Curve(over=over, x=x, ns=tuple(round(value * MS, 1) for value in ms))


def drafter_of(text: str, source: str, mark: Mark = "measured") -> tuple[str, Drafter]:
    """Name and drafter of ``name:kind:first_ms[:next_ms[:max_depth]]``; ``ValueError`` if it is not.

    ``first_ms`` is its first pass, or the only one; ``next_ms`` each further one.
    """
    name, _, rest = text.partition(":")
    kind, *numbers = rest.split(":")
    if kind not in get_args(DrafterKind) or not 1 <= len(numbers) <= 3:
        kinds = ", ".join(get_args(DrafterKind))
        raise ValueError(f"--drafter {text!r} is not {DRAFTER}, with KIND one of {kinds}")
    first, further = (_pass(value, source, mark) for value in (*numbers, "0")[:2])
    depth = {"max_depth": int(numbers[2])} if len(numbers) == 3 else {}
    return name, Drafter.model_validate({"kind": kind, "first": first, "next": further, **depth})


def _pass(ms: str, source: str, mark: Mark) -> tuple[Term, ...]:
    if float(ms) == 0:
        return ()
    return (Term(name="draft_pass", mark=mark, source=source, fixed_ns=round(float(ms) * MS, 1)),)


def device_of(text: str) -> Device:
    """Device of ``NAME:GB:GB_PER_S:TFLOPS[:COUNT]``, numbers of one device; ``ValueError`` if it is not."""
    name, *numbers = text.split(":")
    if len(numbers) not in (3, 4):
        raise ValueError(f"--device {text!r} is not {DEVICE}, as in 'H100 SXM:80:3350:989'")
    memory, bandwidth, peak, count = (float(value) for value in (*numbers, "1")[:4])
    return Device(
        name=name,
        count=int(count),
        memory_bytes=memory * 1e9,
        bandwidth_bytes_per_s=bandwidth * 1e9,
        peak_flops_per_s=peak * 1e12,
        source="as given on the command line",
    )


def work_of(
    name: str, parameters: float, bytes_each: float, kv_bytes: float, window_tokens: int = 0
) -> ModelWork:
    """Work of a dense model, for memory budgets and FLOPs: every parameter read once, used by every token."""
    return ModelWork(
        name=name,
        parameters=parameters,
        weight_bytes=parameters * bytes_each,
        read_bytes=parameters * bytes_each,
        flops_per_token=2 * parameters,
        kv_bytes_per_token=kv_bytes,
        window_tokens=window_tokens,
    )


def fit(options: argparse.Namespace, command: str) -> Profile:
    """The profile that the options describe; ``ValueError`` when they do not describe one."""
    points = step_points(options.steps or ()) or throughput_points(options.throughput or ())
    return Profile(
        schema=SCHEMA,
        name=options.name,
        kind="analytic" if options.mark == "assumed" else options.mark,
        created=options.created,
        command=command,
        device=device_of(options.device),
        dtype=options.dtype,
        max_tokens=options.max_tokens or points[-1].size,
        target=_target(options, points),
        drafters=_drafters(options),
        sources=(Source(name="points", what=options.source),),
        notes=options.note,
    )


def _target(options: argparse.Namespace, points: Sequence[Point]) -> Target:
    o = options
    terms = step_terms(points, o.source, o.over, o.per_sequence, o.context_ns, o.mark, o.window_ns)
    return Target(work=work_of(o.model, o.parameters, o.bytes_each, o.kv_bytes, o.window), verify=terms)


def _drafters(options: argparse.Namespace) -> dict[str, Drafter]:
    source = options.draft_source or options.source
    return dict(drafter_of(text, source, options.mark) for text in options.drafter)


def main(arguments: list[str] | None = None) -> int:
    """Write ``OUT/NAME.json``; 2 with a message when the options do not make a profile."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    options = parser.parse_args(given)
    path = options.out / f"{options.name}.json"
    try:
        save_profile(fit(options, f"{COMMAND} {shlex.join(given)}"), path)
    except ValidationError as error:
        first = error.errors()[0]
        parser.error(f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(path)
    return 0


def _pair(text: str) -> tuple[int, float]:
    count, _, value = text.partition("=")
    try:
        pair = int(count), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not COUNT=VALUE, as in 8=792.05") from None
    if pair[0] < 1 or not 0 < pair[1] < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: both numbers must be above 0 and finite")
    return pair


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description="A profile from a handful of measurements.")
    add = parser.add_argument
    add("name", help="name of the profile and its file")
    points = parser.add_mutually_exclusive_group(required=True)
    points.add_argument("--steps", nargs="+", type=_pair, metavar="TOKENS=MS")
    points.add_argument("--throughput", nargs="+", type=_pair, metavar="CONCURRENCY=TOK_S")
    add("--over", choices=get_args(Counted), default="tokens", help="what the points count (default: tokens)")
    add("--per-sequence", type=float, default=0.0, metavar="SHARE", help="share of growth paid per sequence")
    add("--context-ns", type=float, default=0.0, help="ns per KV token read, on top of the points")
    add("--window", type=int, default=0, metavar="TOKENS", help="how far windowed layers see")
    add("--window-ns", type=float, default=0.0, help="ns per KV token read by windowed layers")
    add("--drafter", action="append", default=[], metavar=DRAFTER)
    add("--device", required=True, metavar=DEVICE)
    add("--model", default="target", help="name of the target")
    add("--parameters", type=float, required=True, help="of the target, as in 7.2e9")
    add("--bytes-each", type=float, default=2.0, help="bytes per parameter (default: 2)")
    add("--kv-bytes", type=float, default=0.0, help="KV bytes per token (default: 0, memory never binds)")
    add("--dtype", default="bfloat16")
    add("--max-tokens", type=int, help="largest step that counts as measured (default: the last point)")
    add("--mark", choices=get_args(Mark), default="measured", help="how the numbers came about")
    add("--source", required=True, help="where the points come from")
    add("--draft-source", help="where the drafter's times come from (default: as the points)")
    add("--note", default="", help="a remark kept in the profile")
    add("--created", default="undated", help="date kept in the profile")
    add("--out", type=Path, default=Path(), help="folder for the profile (default: here)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
