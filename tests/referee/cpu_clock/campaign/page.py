"""The campaign's part of docs/referee-cpu.md: tables found here, sentences in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from pathlib import Path
from string import Template
from typing import Any, Final

import numpy as np

from calibrate.profile import Profile
from tests.published.page import percent, table
from tests.referee.cpu_clock.campaign.compare import (
    CLEAR,
    WITHIN,
    Advice,
    Pair,
    Served,
    advice,
    best_over_all,
    compare,
    pairs,
    run_noise,
)
from tests.referee.cpu_clock.campaign.plan import LOADS
from tests.referee.cpu_clock.campaign.recordings import Run, about, calibrated, disturbed, load, undisturbed
from tests.referee.cpu_clock.compare import RANKED
from tests.referee.cpu_clock.costs import DRAFTER
from tests.referee.cpu_clock.predict import OPEN_METRICS

TEXT: Final = Path(__file__).with_name("page.md.in")
LABELS: Final = dict(zip(OPEN_METRICS, ("tok/s", "mean TPOT", "mean E2EL", "mean TTFT"), strict=True))
SUMMARY_HEAD: Final = (
    "metric | within 10 % | mean | worst | of the median of repetitions | worst | one run differs (sd) "
    "| other calibration, single runs | worst | luck not known | worst"
)
RUN_HEAD: Final = "load | policy | tok/s | | TPOT ms | | E2EL ms | | TTFT ms | | E2EL spread | steps"
ORDER_HEAD: Final = "load | pairs | clear | right | wrong | not clear | right"
ADVICE_HEAD: Final = (
    "load | recommended | E2EL ms | best static, simulated | k3 | best static, in hindsight | off"
)


def own_section() -> str:
    """The part as the stored recordings make it."""
    runs = load()
    return section(runs, compare(runs), calibrated(runs), about())


def section(runs: Sequence[Run], served: Sequence[Served], profile: Profile, made: Sequence[Any]) -> str:
    """Markdown of a finished comparison."""
    ranked, loads = pairs(served), advice(served)
    single = best_over_all(served)
    anchors = np.array([anchor for run in runs for anchor in run.anchors])
    low, middle, high = np.percentile(anchors, [5, 50, 95])
    wrong = [pair for pair in ranked if pair.clear and not pair.right]
    return Template(TEXT.read_text(encoding="utf-8")).substitute(
        **_costs(profile),
        **_where(made),
        repetitions=str(len(served[0].runs)),
        disturbed=", ".join(map(str, disturbed(runs))) or "none",
        calm=_calm(compare(undisturbed(runs), whole=False)),
        anchors=f"{middle:.1f} ms ({low:.1f} to {high:.1f} in nine of ten)",
        summary=table(SUMMARY_HEAD, (summary_row(served, metric) for metric in OPEN_METRICS)),
        runs=table(RUN_HEAD, map(run_row, served)),
        misses=misses(served),
        orders=table(ORDER_HEAD, order_rows(ranked)),
        wrong=", ".join(map(pair_text, wrong)) or "none",
        advice=table(ADVICE_HEAD, map(advice_row, loads)),
        verdicts="\n".join(f"- {verdict(each)}" for each in loads),
        single=single,
        single_real=best_over_all(served, lambda each: each.real(RANKED)),
        single_verdicts="\n".join(f"- {verdict(each)}" for each in advice(served, single)),
    )


def _calm(served: Sequence[Served]) -> str:
    """What the verdicts are on some of the repetitions alone."""
    within = [f"{LABELS[m]} {_within([each.error(m) for each in served])}" for m in OPEN_METRICS]
    clear = [pair for pair in pairs(served) if pair.clear]
    return f"{', '.join(within)}; of {len(clear)} clear pairs {sum(pair.right for pair in clear)} right"


def _where(made: Sequence[Any]) -> dict[str, str]:
    first = made[0]
    software = ", ".join(f"{name} {version}" for name, version in first["software"].items())
    return {
        "date": first["date"],
        "machine": f"{first['processor']}, {first['cores']} cores",
        "software": software,
    }


def _costs(profile: Profile) -> dict[str, str]:
    curve = profile.target.verify[0].curve
    assert curve is not None
    shown = [1, 2, 3, 6, 7, 8, 12, 16, 24, 48, 96, 200]
    at = dict(zip(curve.x, curve.ns, strict=True))
    first, extra = profile.drafters[DRAFTER].first
    (host,), (further,) = profile.target.host, profile.drafters[DRAFTER].next
    return {
        "curve": ", ".join(f"{at[x] / 1e6:.1f} at {x}" for x in shown),
        "host": f"{host.fixed_ns / 1e6:.1f} + {host.per_ns['sequences'] / 1e6:.2f} x sequences",
        "first": f"{(first.fixed_ns + extra.fixed_ns) / 1e6:.1f} + "
        f"{(first.per_ns['tokens'] + extra.per_ns['tokens']) / 1e6:.2f} x tokens",
        "next": f"{further.fixed_ns / 1e6:.1f} + {further.per_ns['sequences'] / 1e6:.2f} x sequences",
    }


def summary_row(served: Sequence[Served], metric: str) -> list[str]:
    """How many are within 10 %, against how much single runs differ."""
    errors = [each.error(metric) for each in served]
    others = [error for each in served for error in each.other_errors(metric)]
    unlucky = [each.unlucky_error(metric) for each in served]
    medians = [each.median_error(metric) for each in served]
    noise = f"{100 * run_noise(served, metric):.1f} %"
    own = [_within(errors), percent(float(np.mean(errors))), _worst(errors)]
    return [LABELS[metric], *own, *_both(medians), noise, *_both(others), *_both(unlucky)]


def _within(errors: Sequence[float]) -> str:
    return f"{sum(abs(error) <= WITHIN for error in errors)} of {len(errors)}"


def _worst(errors: Sequence[float]) -> str:
    return percent(max(errors, key=abs))


def _both(errors: Sequence[float]) -> tuple[str, str]:
    return _within(errors), _worst(errors)


def run_row(each: Served) -> list[str]:
    """Measured means with errors, the spread of repetitions, and recorded over priced step time."""
    tok_s, tpot, e2el, ttft = OPEN_METRICS
    digits = {tok_s: 1, tpot: 1, e2el: 0, ttft: 0}
    cells = []
    for metric in OPEN_METRICS:
        error = each.error(metric)
        marked = percent(error) if abs(error) <= WITHIN else f"**{percent(error)}**"
        cells += [f"{each.real(metric):.{digits[metric]}f}", marked]
    return [
        each.load.name,
        each.policy,
        *cells,
        f"{100 * each.spread(e2el):.1f} %",
        f"{np.mean(each.speeds):.3f}",
    ]


def misses(served: Sequence[Served]) -> str:
    """Every mean that is missed by more than 10 %."""
    found = [
        f"{LABELS[metric]} of {each.policy} at {each.load.name} ({percent(each.error(metric))})"
        for metric in OPEN_METRICS
        for each in served
        if abs(each.error(metric)) > WITHIN
    ]
    return ", ".join(found) or "none"


def order_rows(ranked: Sequence[Pair]) -> Iterable[list[str]]:
    """Pairs by load, those beyond their noise apart."""
    groups = {at.name: [pair for pair in ranked if pair.load == at] for at in LOADS}
    for name, here in {**groups, "**all**": list(ranked)}.items():
        clear, rest = ([p for p in here if p.clear is wanted] for wanted in (True, False))
        right = sum(pair.right for pair in clear)
        counts = (len(here), len(clear), right, len(clear) - right, len(rest), sum(p.right for p in rest))
        yield [name, *map(str, counts)]


def pair_text(pair: Pair) -> str:
    """A pair in words: real and predicted ratio."""
    ratios = f"real {exp(pair.measured):.3f}, predicted {exp(pair.predicted):.3f}"
    return f"{pair.first} / {pair.second} at {pair.load.name} ({ratios})"


def advice_row(each: Advice) -> list[str]:
    """Real mean E2EL of the recommended policy and of those it has to beat."""
    others = (each.static, each.k3, each.hindsight, each.off)
    found = [each.load.name, each.recommended.policy, f"{each.recommended.real(RANKED):.0f}"]
    for other in others:
        saved = percent(exp(-each.gain(other)) - 1)
        found.append(f"{other.policy}: {other.real(RANKED):.0f} ({saved})")
    return found


def verdict(each: Advice) -> str:
    """Whether the recommended policy beats static and off at this load, in one sentence."""
    rivals = [r for r in (each.off, each.k3, each.static, each.hindsight) if r is not each.recommended]
    names = dict.fromkeys(rival.policy for rival in rivals)
    by_name = {rival.policy: rival for rival in rivals}
    words = [f"{name} {_word(each, by_name[name])}" for name in names]
    return f"**{each.load.name}**: {each.recommended.policy} against {', '.join(words)}."


def _word(each: Advice, other: Served) -> str:
    gain = each.gain(other)
    lower = percent(exp(-gain) - 1)
    if abs(gain) <= CLEAR * each.error:
        return f"no difference beyond noise ({lower})"
    return f"{'wins' if gain > 0 else 'loses'} ({lower})"
