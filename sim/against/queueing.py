"""Whether requests wait as long as they should, and what kind of wait it is if not.

In a closed loop a limit on running sequences shows twice: fewer decode (tokens/s x TPOT, Little's
law) and first tokens come later. Where TTFT alone differs, a constant at every load is time before
the engine, and one that grows with the load is admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Final

from sim.against.adjust import Adjustment
from sim.against.bench import Bench
from sim.against.finding import Finding

_FEWER: Final = 0.85
"""Share of the simulated sequences decoding below which a limit on them is suspected."""
_TTFT: Final = "ttft_mean_ms"
_DECODING: Final = "decoding_mean"


def limit(bench: Bench, corrected: Adjustment) -> tuple[Finding | None, Adjustment]:
    """A limit on running sequences, if one would explain both; the adjustment then has it."""
    fewer = [n for n in range(len(bench.runs)) if _decoding_share(bench, n, corrected) < _FEWER]
    if not fewer:
        return None, corrected
    limited = _best_limit(bench, fewer, corrected)
    if not _explains_waits(bench, fewer, limited):
        return None, corrected
    evidence = tuple(_decoding_line(bench, n, corrected) for n in fewer)
    size = f"a limit such as max_num_seqs {limited.max_num_seqs} would agree"
    text = f"fewer sequences decode than clients send: {size}"
    return Finding("queueing", "points here", text, evidence), limited


def _decoding_share(bench: Bench, number: int, adjustment: Adjustment) -> float:
    """Measured over simulated; 1 in an open loop, where the load moves with the steps' time."""
    run = bench.runs[number]
    if run.load.rate_per_s is not None or not {_DECODING, _TTFT} <= set(run.metrics):
        return 1.0
    return run.metrics[_DECODING] / bench.simulated(number, adjustment).mean[_DECODING]


def _best_limit(bench: Bench, numbers: Sequence[int], corrected: Adjustment) -> Adjustment:
    """The limit that gives the waits best; as many as decode on average, or a few more."""
    most = max(1, *(round(bench.runs[n].metrics[_DECODING]) for n in numbers))
    limits = [replace(corrected, max_num_seqs=limit) for limit in range(most, most + 3)]
    return min(limits, key=lambda limited: sum(_wait_error(bench, n, limited) for n in numbers))


def _explains_waits(bench: Bench, numbers: Sequence[int], limited: Adjustment) -> bool:
    """Whether the limit brings every TTFT at least half the way to the measured one."""
    free = replace(limited, max_num_seqs=None)
    return all(_wait_error(bench, n, limited) < 0.5 * _wait_error(bench, n, free) for n in numbers)


def _wait_error(bench: Bench, number: int, adjustment: Adjustment) -> float:
    simulated = bench.sketched(number, adjustment).mean[_TTFT]
    return abs(log(bench.runs[number].metrics[_TTFT] / simulated))


def _decoding_line(bench: Bench, number: int, adjustment: Adjustment) -> str:
    run = bench.runs[number]
    simulated = bench.simulated(number, adjustment).mean
    return (
        f"{run.label}: {run.metrics[_DECODING]:.1f} sequences decode measured, {simulated[_DECODING]:.1f} "
        f"simulated; TTFT mean {run.metrics[_TTFT]:.0f} ms measured, {simulated[_TTFT]:.0f} simulated"
    )


def waiting(bench: Bench, tolerance: Mapping[str, float], corrected: Adjustment) -> Finding:
    """TTFT once the steps are right: what is left is waiting, before the engine or in it."""
    runs = [n for n in range(len(bench.runs)) if _TTFT in bench.runs[n].metrics]
    if not runs:
        return Finding("queueing", "cannot tell", "no file has TTFT")
    more = {n: _more_ms(bench, n, corrected) for n in runs}
    evidence = tuple(_ttft_line(bench, n, more[n]) for n in runs)
    if all(abs(more[n]) <= tolerance[_TTFT] * bench.runs[n].metrics[_TTFT] for n in runs):
        return Finding("queueing", "looks right", "first tokens come when they should", evidence)
    return Finding("queueing", "points here", _kind([more[n] for n in runs]), evidence)


def _more_ms(bench: Bench, number: int, adjustment: Adjustment) -> float:
    return bench.runs[number].metrics[_TTFT] - bench.simulated(number, adjustment).mean[_TTFT]


def _ttft_line(bench: Bench, number: int, more_ms: float) -> str:
    run = bench.runs[number]
    measured = run.metrics[_TTFT]
    return (
        f"{run.label}: TTFT mean {measured:.1f} ms measured, {measured - more_ms:.1f} simulated "
        f"({more_ms:+.1f} ms)"
    )


def _kind(more_ms: Sequence[float]) -> str:
    """Constant at every load, or growing: the two have other causes."""
    low, high = min(more_ms), max(more_ms)
    if len(more_ms) < 2:
        return "first tokens come at another time; one load cannot tell a constant from a queue"
    if low > 0 and high < 2 * low:
        return (
            f"first tokens come {low:.0f} to {high:.0f} ms later at every load: time before the engine "
            "(HTTP, tokenisation, front end), or the cost of prefill"
        )
    return (
        "what TTFT differs by changes with the load: admission (max_num_seqs, max_num_batched_tokens, "
        "KV memory), or the cost of prefill"
    )
