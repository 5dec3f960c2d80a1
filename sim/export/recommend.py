"""Which policies are worth exporting at one load: the recommended one, the best static depth, and off.

The judgement is that of ``sim.results.compare``; where several policies are even, the simplest of them
to run is recommended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sim.errors import InputError
from sim.policies.config import PolicyConfig
from sim.policies.oracle import OracleConfig
from sim.policies.static import StaticConfig
from sim.results.compare import Cell, Comparison, against, best_policy
from sim.results.names import METRICS
from sim.results.words import percent
from sim.scenario.words import did_you_mean

_TABLES: Final = ("per_batch_size", "disable_by_batch_size", "draft_len_schedule", "mlc_auto")


@dataclass(frozen=True)
class Picks:
    """What to export at one load; ``None`` where the comparison has nothing of the kind.

    ``advice`` says whether to bother at all, with the gain of the best policy that drafts over off.
    """

    recommended: PolicyConfig | None
    best_static: StaticConfig | None
    off: PolicyConfig | None
    worth: bool
    advice: str


def picks(
    cell: Cell, policies: tuple[PolicyConfig, ...], comparison: Comparison, wanted: str | None = None
) -> Picks:
    """The picks at one load; ``wanted`` is the label of a policy to export instead of the recommended."""
    by_label = {policy.title: policy for policy in policies}
    off = next((policy for policy in policies if _is_off(policy)), None)
    best = best_policy(cell, comparison.metric, comparison.error)
    statics = [p.title for p in policies if isinstance(p, StaticConfig) and p.k > 0]
    best_static = _best_of(cell, comparison, statics)
    recommended = _simplest(cell, comparison, [by_label[label] for label in best.even])
    worth = recommended is not None and not _is_off(recommended)
    advice = _advice(cell, policies, comparison, off, worth)
    if wanted is not None:
        recommended = _wanted(by_label, wanted)
    static = by_label[best_static] if best_static is not None else None
    return Picks(recommended, static if isinstance(static, StaticConfig) else None, off, worth, advice)


def gain(cell: Cell, comparison: Comparison, label: str, off: PolicyConfig | None) -> str:
    """``TPOT mean -31.0 ± 2.0 % against off``; why there is none otherwise."""
    base = comparison.baseline if off is None else off.title
    if label == base:
        alone = sum(not policy.bound for policy in cell.policies) < 2
        return "the only policy, no gain to measure" if alone else "what gains are measured against"
    found = against(cell, base, comparison.metric, comparison.error)
    difference = next(d for p, d in zip(cell.policies, found, strict=True) if p.label == label)
    if difference is None or difference.verdict == "no data":
        return f"no gain can be given: {label if cell.policy(label).unstable else base} is unstable"
    inside = " (inside the error)" if difference.verdict == "no difference" else ""
    return f"{METRICS[comparison.metric].label} {percent(difference)} against {base}{inside}"


def _wanted(by_label: dict[str, PolicyConfig], label: str) -> PolicyConfig:
    if label not in by_label:
        raise InputError(f"--policy: there is no policy {label!r}{did_you_mean(label, by_label)}")
    if isinstance(by_label[label], OracleConfig):
        raise InputError(f"--policy: {label} sees the future; it is a bound that no engine has")
    return by_label[label]


def _is_off(policy: PolicyConfig) -> bool:
    return policy.policy == "off" or (isinstance(policy, StaticConfig) and policy.k == 0)


def _effort(policy: PolicyConfig) -> int:
    """How much there is to set up and to go wrong."""
    if _is_off(policy):
        return 0
    if isinstance(policy, StaticConfig):
        return 1
    return 2 if policy.policy in _TABLES else 3


def _simplest(cell: Cell, comparison: Comparison, even: list[PolicyConfig]) -> PolicyConfig | None:
    """Of even policies the one with the least effort, of those the best."""
    least = min(map(_effort, even), default=0)
    of_least = {policy.title: policy for policy in even if _effort(policy) == least}
    label = _best_of(cell, comparison, list(of_least))
    return None if label is None else of_least[label]


def _best_of(cell: Cell, comparison: Comparison, labels: list[str]) -> str | None:
    """The best stable policy among some."""
    among = Cell(cell.load, tuple(p for p in cell.policies if p.label in labels))
    return best_policy(among, comparison.metric, comparison.error).label


def _advice(
    cell: Cell,
    policies: tuple[PolicyConfig, ...],
    comparison: Comparison,
    off: PolicyConfig | None,
    worth: bool,
) -> str:
    """Whether speculation pays at this load, in one sentence."""
    drafting = _best_of(cell, comparison, [p.title for p in policies if not _is_off(p)])
    if drafting is None:
        return _no_drafting(cell, policies)
    if off is None:
        return f"{drafting} is best of those that draft; the scenario has no off to compare with"
    found = gain(cell, comparison, drafting, off)
    if worth:
        return f"worth it: {drafting}: {found}"
    return f"don't bother: the best that drafts is {drafting}: {found}"


def _no_drafting(cell: Cell, policies: tuple[PolicyConfig, ...]) -> str:
    drafting = {policy.title for policy in policies if not _is_off(policy)}
    found = [p for p in cell.policies if p.label in drafting and not p.bound]
    if not found:
        return "no policy that drafts was simulated"
    if not all(policy.unstable for policy in found):
        return "no policy that drafts has data to compare"
    return "no policy that drafts is stable at this load"
