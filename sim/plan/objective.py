"""What a plan must meet: statistics of latencies within limits, and enough requests within the SLO.

Each part says how much of its limit a run *uses*: 0.9 leaves a tenth of it, above 1 misses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from sim.errors import InputError
from sim.results.metrics import Latencies, Slo, meets_slo
from sim.results.run_records import Int64, RunRecords
from sim.scenario.model import Scenario
from sim.units import NS_PER_MS, parse_duration_ns

_LIMIT = re.compile(r"\s*(ttft|tpot|e2el)_(mean|p\d{1,2}(?:\.\d+)?)\s*<?=\s*(\S.*?)\s*")
_EXAMPLE: Final = "ttft_p99=500ms"
DEFAULT_SHARE: Final = 0.95


@dataclass(frozen=True)
class Served:
    """Requests of one run that are measured: row numbers of ``records``, and limits by class."""

    records: RunRecords
    rows: Int64
    slos: Mapping[str, Slo]


class Part(Protocol):
    """One condition of an objective."""

    @property
    def name(self) -> str:
        """What is limited, short."""
        ...

    @property
    def text(self) -> str:
        """The condition in words."""
        ...

    def used(self, served: Served) -> float:
        """Share of what the condition allows that the run takes."""
        ...

    def says(self, used: float) -> str:
        """The value behind a ``used``, in words."""
        ...


@dataclass(frozen=True)
class Limit:
    """One statistic of one latency, at most ``limit_ns``; ``percentile`` is ``None`` for the mean."""

    latency: str
    percentile: float | None
    limit_ns: int

    @property
    def name(self) -> str:
        """Latency and statistic as tables have them, ``TTFT p99``."""
        return f"{self.latency.upper()} {'mean' if self.percentile is None else f'p{self.percentile:g}'}"

    @property
    def text(self) -> str:
        """``TTFT p99 <= 500 ms``."""
        return f"{self.name} <= {self.limit_ns / NS_PER_MS:g} ms"

    def used(self, served: Served) -> float:
        """The statistic over its limit; 0 where no request has the latency."""
        values = getattr(Latencies.of(served.records, served.rows), self.latency)
        values = values[~np.isnan(values)]
        if not len(values):
            return 0.0
        found = values.mean() if self.percentile is None else np.percentile(values, self.percentile)
        return float(found) / self.limit_ns

    def says(self, used: float) -> str:
        """``TTFT p99 812 ms``."""
        digits = float(f"{used * self.limit_ns / NS_PER_MS:.3g}")
        return f"{self.name} {digits:g} ms"


@dataclass(frozen=True)
class GoodShare:
    """At least ``share`` of the requests meet every limit of their class."""

    share: float

    @property
    def name(self) -> str:
        """``goodput``."""
        return "goodput"

    @property
    def text(self) -> str:
        """``95 % of requests within the SLO``."""
        return f"{100 * self.share:g} % of requests within the SLO"

    def used(self, served: Served) -> float:
        """The share that misses over the share that may."""
        if not len(served.rows):
            return 0.0
        missed = 1.0 - float(meets_slo(served.records, served.rows, served.slos).mean())
        return missed / (1.0 - self.share)

    def says(self, used: float) -> str:
        """``91 % within the SLO``."""
        return f"{100 * max(0.0, 1 - used * (1 - self.share)):.3g} % within the SLO"


@dataclass(frozen=True)
class Objective:
    """Every part must hold; ``slos`` are the limits by class that a share of requests meets."""

    parts: tuple[Part, ...]
    slos: Mapping[str, Slo]

    @property
    def text(self) -> str:
        """All parts in words."""
        return " and ".join(part.text for part in self.parts)

    def used(self, records: RunRecords, rows: Int64) -> tuple[float, ...]:
        """How much of every part's limit a run takes."""
        return tuple(part.used(Served(records, rows, self.slos)) for part in self.parts)


def objective(scenario: Scenario, limits: Sequence[str], share: str | None) -> Objective:
    """The objective of flags; without any, 95 % of the requests meet the scenario's ``slo``.

    Raises ``InputError`` for a flag that cannot be read, or where there is nothing to meet.
    """
    parts: list[Part] = [parse_limit(text) for text in limits]
    if share is not None or not parts:
        if not scenario.slos:
            raise InputError(
                f"nothing to plan for: give --slo {_EXAMPLE}, or the scenario an slo that --goodput counts by"
            )
        parts.append(GoodShare(DEFAULT_SHARE if share is None else parse_share(share)))
    return Objective(tuple(parts), scenario.slos)


def parse_limit(text: str) -> Limit:
    """The limit in ``ttft_p99=500ms``; raises ``InputError`` saying what would be right."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        hint = "ttft, tpot or e2el, then _mean or a percentile such as _p95, and a duration"
        raise InputError(f"--slo {text!r} is no limit; write for example {_EXAMPLE} ({hint})")
    latency, statistic, limit = match.groups()
    percentile = None if statistic == "mean" else float(statistic[1:])
    try:
        limit_ns = parse_duration_ns(limit)
    except ValueError as error:
        raise InputError(f"--slo {text!r}: {error}") from None
    if limit_ns <= 0:
        raise InputError(f"--slo {text!r}: no latency is 0 or less; write for example {_EXAMPLE}")
    return Limit(latency, percentile, limit_ns)


def parse_share(text: str) -> float:
    """The share in ``95%`` or ``0.95``; raises ``InputError`` unless it lies between 0 and 1."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise InputError(f"--goodput {text!r} is no share; write for example 95%") from None
    if not 0 < share < 1:
        raise InputError(f"--goodput {text!r} must lie between 0 and 100%, ends left out; for example 95%")
    return share
