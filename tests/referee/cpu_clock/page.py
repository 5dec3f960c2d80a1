"""The page of the CPU-clock comparison, docs/referee-cpu.md: tables found here, sentences in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import exp
from pathlib import Path
from string import Template
from typing import Final

import numpy as np

from calibrate.profile import Profile
from tests.published.page import percent, table
from tests.referee.cpu_clock.compare import (
    ClosedCompared,
    Compared,
    Order,
    orders,
)
from tests.referee.cpu_clock.costs import DRAFTER, cells_of, held_out
from tests.referee.cpu_clock.noise import pairs, step_noise
from tests.referee.cpu_clock.predict import OPEN_METRICS
from tests.referee.cpu_clock.recordings import Recorded

TEXT: Final = Path(__file__).with_name("page.md.in")
WITHIN: Final = 0.10
LABELS: Final = dict(zip(OPEN_METRICS, ("tok/s", "mean TPOT", "mean E2EL", "mean TTFT"), strict=True))
RUN_HEAD: Final = (
    "req/s | policy | tok/s | | TPOT ms | | E2EL s | | TTFT ms | | own speed | TPOT | E2EL | TTFT"
)
SUMMARY_HEAD: Final = (
    "metric | within 10 % | mean | worst | within 1 / 2 sd of noise | own speed: within 10 % | mean | worst"
)
ORDER_HEAD: Final = "real difference | pairs | right | equal | wrong | right at own speeds | equal | wrong"
REAL_HEAD: Final = "req/s | pair | real | predicted | noise (sd) | sign"


def page(
    recorded: Recorded,
    profile: Profile,
    runs: Sequence[Compared],
    closed: Sequence[ClosedCompared],
    campaign: str,
) -> str:
    """Markdown of finished comparisons; ``campaign`` is the part on our own recordings."""
    found = pairs(recorded)
    noise = step_noise(found)
    ranked = orders(runs)
    tables = {
        **_costs(profile),
        "campaign": campaign.rstrip("\n"),
        "held_out": table("held out | cells | mean | median of sizes | worst", held_rows(recorded)),
        "noise": f"{100 * noise:.1f} %",
        "noise_pairs": str(len(found)),
        "noise_low": f"{min(pair.ratio for pair in found):.2f}",
        "noise_high": f"{max(pair.ratio for pair in found):.2f}",
        "summary": table(SUMMARY_HEAD, (summary_row(runs, metric) for metric in OPEN_METRICS)),
        "runs": table(RUN_HEAD, map(run_row, runs)),
        "misses": table("metric | misses of 10 %, by load", (miss_row(runs, m) for m in OPEN_METRICS)),
        "orders": table(ORDER_HEAD, order_rows(ranked)),
        "real": table(REAL_HEAD, map(real_row, [o for o in ranked if o.deviations > 1])),
        "closed": table(closed_head(closed), closed_rows(closed)),
        "closed_within": f"{sum(abs(c.error) <= WITHIN for c in closed)} of {len(closed)}",
        "closed_mean": percent(float(np.mean([c.error for c in closed]))),
    }
    return Template(TEXT.read_text(encoding="utf-8")).substitute(tables)


def _costs(profile: Profile) -> dict[str, str]:
    curve, context = profile.target.verify
    assert curve.curve is not None
    (host,) = profile.target.host
    first, extra = profile.drafters[DRAFTER].first
    first_ns = first.fixed_ns + extra.fixed_ns
    (further,) = profile.drafters[DRAFTER].next
    points = zip(curve.curve.x, curve.curve.ns, strict=True)
    return {
        "curve": ", ".join(f"{ns / 1e6:.1f} at {x}" for x, ns in points),
        "context": f"{context.per_ns['query_context_tokens'] / 1e3:.1f}",
        "host": f"{host.fixed_ns / 1e6:.1f} + {host.per_ns['sequences'] / 1e6:.2f} x sequences",
        "first": f"{first_ns / 1e6:.1f} + {first.per_ns['tokens'] / 1e6:.2f} x tokens",
        "next": f"{further.fixed_ns / 1e6:.1f} + {further.per_ns['sequences'] / 1e6:.2f} x sequences",
    }


def held_rows(recorded: Recorded) -> Iterable[list[str]]:
    """Errors of cells by configuration that the fit did not see, and of all."""
    found = held_out(cells_of(recorded))
    for name, errors in (*found.items(), ("**all**", [*chain(*found.values())])):
        sizes = np.abs(errors)
        mean, worst = float(np.mean(errors)), errors[int(np.argmax(sizes))]
        yield [name, str(len(errors)), percent(mean), f"{100 * np.median(sizes):.1f} %", percent(worst)]


def summary_row(runs: Sequence[Compared], metric: str) -> list[str]:
    """How many runs are within 10 %, and the largest errors, as predicted and at their own speed."""
    errors = [run.error(metric) for run in runs]
    own = [run.own_error(metric) for run in runs]
    away = np.abs([run.deviations(metric) for run in runs])
    sds = f"{(away <= 1).sum()} / {(away <= 2).sum()}"
    return [LABELS[metric], *_share(errors), sds, *_share(own)]


def _share(errors: Sequence[float]) -> list[str]:
    within = sum(abs(error) <= WITHIN for error in errors)
    return [
        f"{within} of {len(errors)}",
        percent(float(np.mean(errors))),
        percent(max(errors, key=abs)),
    ]


def run_row(run: Compared) -> list[str]:
    """One run: measured values with errors, its speed, and errors at that speed."""
    tok_s, tpot, e2el, ttft = OPEN_METRICS
    m = run.measured
    values = [f"{m[tok_s]:.1f}", f"{m[tpot]:.1f}", f"{m[e2el] / 1e3:.2f}", f"{m[ttft]:.0f}"]
    cells = [
        cell for pair in zip(values, map(_marked, map(run.error, OPEN_METRICS)), strict=True) for cell in pair
    ]
    own = [_marked(run.own_error(metric)) for metric in (tpot, e2el, ttft)]
    return [f"{run.load:g}", run.name, *cells, f"{run.speed:.2f}", *own]


def _marked(error: float) -> str:
    """A percentage, bold when it misses."""
    return percent(error) if abs(error) <= WITHIN else f"**{percent(error)}**"


def miss_row(runs: Sequence[Compared], metric: str) -> list[str]:
    """Every run whose prediction misses 10 %."""
    missed = [run for run in runs if abs(run.error(metric)) > WITHIN]
    text = ", ".join(f"{run.name} at {run.load:g} ({percent(run.error(metric))})" for run in missed)
    return [LABELS[metric], text or "none"]


def order_rows(ranked: Sequence[Order]) -> Iterable[list[str]]:
    """Signs found, by how far the real difference stands out of the noise."""
    bands = (("over 2 sd", 2.0, 1e9), ("1 to 2 sd", 1.0, 2.0), ("under 1 sd", 0.0, 1.0))
    for label, low, high in bands:
        some = [order for order in ranked if low < order.deviations <= high]
        yield [label, str(len(some)), *_counts(o.sign for o in some), *_counts(o.own_sign for o in some)]


def _counts(signs: Iterable[str]) -> list[str]:
    found = list(signs)
    return [str(found.count(sign)) for sign in ("right", "equal", "wrong")]


def real_row(order: Order) -> list[str]:
    """A pair whose real difference exceeds the noise: E2EL of the first over the second."""
    cells = [f"{exp(value):.2f}" for value in (order.measured, order.predicted)]
    pair = f"{order.first} / {order.second}"
    return [f"{order.load:g}", pair, *cells, f"{order.noise:.2f}", order.sign]


def closed_head(closed: Sequence[ClosedCompared]) -> str:
    """Policies as columns."""
    return " | ".join(["clients", *dict.fromkeys(run.name for run in closed)])


def closed_rows(closed: Sequence[ClosedCompared]) -> Iterable[list[str]]:
    """Measured tokens per CPU second and the error, by clients."""
    for clients in dict.fromkeys(run.clients for run in closed):
        row = [run for run in closed if run.clients == clients]
        yield [f"{clients:g}", *(f"{run.measured:.0f} {_marked(run.error)}" for run in row)]
