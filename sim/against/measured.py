"""What a benchmark client measured: one run at one load, whatever tool wrote it.

Metrics bear the names of ``sim.results.names`` where the definition is the same; those of this
module's ``OWN`` come on top. Latencies count from the sending of a request, as every client's do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import floor, inf, isfinite
from typing import Final

import numpy as np

from sim.results.names import METRICS

OWN: Final[Mapping[str, str]] = {
    "tpot_by_token_mean_ms": "TPOT mean, by token",
    "tokens_per_chunk": "tokens per chunk",
    "decoding_mean": "sequences decoding",
    "prompt_tokens_mean": "prompt tokens mean",
    "output_tokens_mean": "output tokens mean",
}
"""``tpot_by_token``: time after first tokens over tokens after first ones, all requests together;
``tokens_per_chunk``: ITL mean / TPOT mean; ``decoding``: output tokens/s x TPOT (Little's law)."""

_LATENCIES: Final = tuple(name for name in METRICS if name.split("_")[0] in ("ttft", "tpot", "itl", "e2el"))
COMPARED: Final = (
    *_LATENCIES,
    "tpot_by_token_mean_ms",
    "requests_per_s",
    "output_tokens_per_s",
    "acceptance_length",
    "tokens_per_chunk",
    "decoding_mean",
    "prompt_tokens_mean",
    "output_tokens_mean",
)
"""Everything that measured and simulated runs are compared in, in the order of tables."""


ACCEPTED: Final = ("acceptance_length", "tokens_per_chunk")
"""What tells of acceptance, the better first."""


def label_of(metric: str) -> str:
    """The metric's name in tables."""
    return OWN[metric] if metric in OWN else METRICS[metric].label


@dataclass(frozen=True)
class Load:
    """How requests were sent: a closed loop, an open one, or an open one with a bound in flight.

    ``burstiness`` is the gamma shape of the gaps: 1 is Poisson, infinity a fixed interval.
    ``normalised``: the last request is sent at requests / rate (vLLM).
    """

    concurrency: int | None = None
    rate_per_s: float | None = None
    burstiness: float = 1.0
    normalised: bool = False

    @property
    def label(self) -> str:
        """Short form, such as ``c=8`` or ``4/s``."""
        if self.rate_per_s is None:
            return f"c={self.concurrency}"
        cap = f", c<={self.concurrency}" if self.concurrency else ""
        return f"{self.rate_per_s:g}/s{cap}"

    @property
    def order(self) -> tuple[float, float]:
        """Sorts loads from low to high, open ones before closed ones."""
        return (self.concurrency or inf if self.rate_per_s is None else -inf, self.rate_per_s or 0.0)


@dataclass(frozen=True)
class Run:
    """One measured run.

    ``place`` names file and run for messages. ``prompt`` and ``output`` have one entry per answered
    request in order of sending; ``lengths_recorded`` tells whether they were recorded one by one or
    are the stated means. ``sent_s`` are the recorded times of sending of an open loop, empty if not
    known. ``depth`` is how many drafts a round verified, 0 without speculation, ``None`` if the file
    does not say or depths varied.
    """

    place: str
    format: str
    load: Load
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    metrics: Mapping[str, float]
    lengths_recorded: bool = False
    sent_s: tuple[float, ...] = ()
    depth: int | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def label(self) -> str:
        """Load and depth, as far as they are known."""
        depth = "" if self.depth is None else ", plain" if self.depth == 0 else f", k={self.depth}"
        return f"{self.load.label}{depth}"


def spread(mean: float, count: int) -> tuple[int, ...]:
    """``count`` whole lengths, next to each other, whose sum is that of the mean; each at least 1."""
    marks = [floor(i * mean + 1e-9) for i in range(count)] + [round(count * mean)]
    return tuple(max(1, after - before) for before, after in pairwise(marks))


def statistics(name: str, values_ms: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles under the names of ``METRICS``; empty without values."""
    if not len(values_ms):
        return {}
    found = np.percentile(values_ms, (50, 90, 99)).tolist()
    keys = ("mean", "p50", "p90", "p99")
    return {
        f"{name}_{key}_ms": float(value)
        for key, value in zip(keys, (np.mean(values_ms), *found), strict=True)
    }


def completed(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are known and finite, with those that follow from them."""
    known = {name: value for name, value in metrics.items() if isfinite(value) and value > 0}
    tpot = known.get("tpot_mean_ms", known.get("tpot_by_token_mean_ms"))
    if tpot and "itl_mean_ms" in known and "tpot_mean_ms" in known:
        known["tokens_per_chunk"] = known["itl_mean_ms"] / tpot
    if tpot and "output_tokens_per_s" in known:
        known["decoding_mean"] = known["output_tokens_per_s"] * tpot / 1e3
    return {name: known[name] for name in COMPARED if name in known}
