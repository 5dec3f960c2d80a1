"""What is planned for: every policy of a scenario, on every profile and with every drafter named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sim.errors import InputError
from sim.fleet.config import FleetConfig
from sim.policies.config import PolicyConfig
from sim.scenario.choose import Choice, read_chosen
from sim.scenario.load import Loaded, read_scenario
from sim.scenario.model import Scenario, speculates
from sim.sweep.prepare import profile_at
from sim.workload.arrival_config import ClosedArrival, PhasesArrival, ProfileArrival

_RATE: Final = "workload.arrival.request_rate"
_COMPARED: Final = ("profile", "drafter")
_FEW: Final = 5
_ONE_SEED: Final = "Warning: one seed has no interval, chance is not ruled out; take --seeds 5 or more."
_FEW_SEEDS: Final = (
    "Warning: few seeds make wide intervals, and so plans of too many replicas; take --seeds 5 or more."
)


@dataclass(frozen=True)
class Case:
    """One policy on one profile; ``drafter`` is ``None`` for a policy that never drafts."""

    profile: str
    drafter: str | None
    scenario: Scenario
    policy: PolicyConfig

    @property
    def bound(self) -> bool:
        """Whether the policy is clairvoyant: a limit, never recommended."""
        return self.policy.policy == "oracle"


def cases(loaded: Loaded, path: Path, profiles: Sequence[str], drafters: Sequence[str]) -> tuple[Case, ...]:
    """Every policy of ``loaded`` on every profile with every drafter, by default the scenario's own.

    A policy that never drafts stands once per profile. Of what else is swept, the first cell is taken.
    Raises ``ScenarioError`` for a profile or drafter that does not fit the scenario in ``path``, and
    ``InputError`` where every policy is a bound or replicas differ, come and go.
    """
    _refuse_unequal(loaded)
    wanted, base = set(loaded.scenario.labels), loaded.scenario
    found: dict[tuple[str, str | None, str], Case] = {}
    for profile in profiles or _named(base, "profile"):
        for drafter in drafters or _named(base, "drafter") or (None,):
            scenario = _read(path, base, profile, drafter)
            for policy in scenario.policies:
                used = drafter if speculates(policy) else None
                if policy.title in wanted:
                    case = Case(profile, used, scenario, policy)
                    found.setdefault((profile, used, policy.title), case)
    if all(case.bound for case in found.values()):
        raise InputError(
            f"{', '.join(base.labels)}: a clairvoyant bound, which no engine can run, cannot be planned for; "
            "add a policy, for example off"
        )
    return tuple(found.values())


def _refuse_unequal(loaded: Loaded) -> None:
    """Raise ``InputError`` for a fleet whose size is not one number."""
    for cell in loaded.cells:
        if not cell.scenario.fleet.equal:
            raise InputError(
                "fleet: has groups, a scale, events or lockstep, and a plan finds one number of equal "
                "replicas that stay; remove fleet from the scenario, and compare fleets of your own with "
                "leadline run"
            )


def _named(base: Scenario, key: Literal["profile", "drafter"]) -> tuple[str, ...]:
    """All profiles, or all drafters, that a scenario names: swept, listed, or the only one."""
    swept: Any = base.sweep.get(key, ())
    listed = tuple(base.profiles.values()) if key == "profile" else ()
    only = getattr(base, key)
    return tuple(swept.values() if isinstance(swept, dict) else swept) or listed or ((only,) if only else ())


def _read(path: Path, base: Scenario, profile: str, drafter: str | None) -> Scenario:
    """The first cell of the scenario with this profile and drafter, under the seeds of ``base``."""
    swept = base.written.get("sweep") or {}
    values: dict[str, Any] = {
        "profile": profile,
        "profiles": {},
        "drafter": drafter,
        "sweep": {path: values for path, values in swept.items() if path not in _COMPARED},
        "run.seeds": list(base.run.seeds),
    }
    return read_scenario(path, values).cells[0].scenario


def chosen(path: Path, seeds: int, policies: str | None) -> Loaded:
    """The scenario in a file with as many seeds, and those of its policies that are wanted."""
    return read_chosen(path, Choice(seeds=seeds, policies=policies))


def notes(loaded: Loaded, planned: Sequence[Case]) -> tuple[str, ...]:
    """What the plan stands on, and what it leaves out of the scenario, in words."""
    found = [f"Step costs: {', '.join(dict.fromkeys(map(_costs, planned)))}."]
    first = [label for path, label in loaded.cells[0].settings if _counts(path)]
    if first:
        found.append(f"Of the sweep, the first cell is planned for: {', '.join(first)}.")
    arrival = loaded.cells[0].scenario.workload.arrival
    if isinstance(arrival, PhasesArrival | ProfileArrival):
        found.append("The rate moves with time; planned for its peak, held for as long as it takes.")
    if isinstance(arrival, ClosedArrival):
        found.append("The scenario is a closed loop; planned for Poisson arrivals of its requests.")
    if any(cell.scenario.fleet != FleetConfig() for cell in loaded.cells):
        found.append("The scenario's own fleet is not used: the plan finds the replicas, --router routes.")
    seeds = len(loaded.scenario.run.seeds)
    if seeds < _FEW:
        found.append(_FEW_SEEDS if seeds > 1 else _ONE_SEED)
    return tuple(found)


def _counts(path: str) -> bool:
    """Whether something swept is planned for at its first value alone."""
    return path not in (_RATE, *_COMPARED) and not path.startswith("fleet")


def _costs(case: Case) -> str:
    """``llama-3.1-8b-h100 (composed, ± 8 %)``."""
    profile = profile_at(case.scenario.profile_path)
    error = f", ± {100 * profile.error.relative:.0f} %" if profile.error else ""
    refused = ", refused by its own check" if profile.refused else ""
    return f"{profile.name} ({profile.kind}{error}{refused})"
