"""What decides the bytes of a run, as plain data and as a name: equal names, equal runs.

In it are the settings of the run's cell, the contents of every file that they name, the policy,
the seed and the code. What only measures or names the finished run is not: labels, limits other
than TPOT's (which a policy may read), warm-up, baseline.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import calibrate.profile
import sim
from sim.policies.config import PolicyConfig
from sim.policies.custom import CustomConfig
from sim.results.store import RUN_SCHEMA
from sim.scenario.model import Scenario
from sim.scenario.own_policy import own_policy_file
from sim.sweep.prepare import stamp

_NAMES_A_FILE: Final = ("path", "source", "joint")
_LONGEST_TITLE: Final = 48
_CLASSES: Final[Any] = {"classes": {"__all__": {"slo", "acceptance"}}}
_BESIDE: Final[Any] = {
    **dict.fromkeys(("name", "description", "profile", "profiles", "policies", "sweep", "run", "slo"), True),
    "workload": {"classes": {"__all__": {"slo"}}},
}
"""What of a scenario decides no run, or is in its identity in another form."""
_CODE: Final = (
    *(
        "acceptance",
        "ahead",
        "cost",
        "engine",
        "fleet",
        "policies",
        "results",
        "scenario",
        "sweep",
        "workload",
    ),
    *("errors.py", "streams.py", "units.py"),
)
"""Parts of ``sim`` that a run goes through; the rest reads finished runs."""


def settings_of(scenario: Scenario) -> dict[str, Any]:
    """What decides the bytes of all runs of one cell: its settings, the files they name, the code."""
    return {
        "schema": RUN_SCHEMA,
        "code": code_digest(),
        **{name: version(name) for name in ("numpy", "scipy", "simpy")},
        "profile": digest(scenario.profile_path),
        "files": {name: digest(path) for name, path in named_files(scenario).items()},
        "max_depth": scenario.run.max_depth,
        "tpot_limits_ns": list(scenario.tpot_limits_ns),
        "settings": scenario.model_dump(mode="json", exclude=_BESIDE),
    }


def identity(
    settings: Mapping[str, Any], scenario: Scenario, policy: PolicyConfig, seed: int
) -> dict[str, Any]:
    """Everything that decides the bytes of one run of a cell, given the cell's ``settings_of``."""
    own = own_policy_file(policy, scenario.folder) if isinstance(policy, CustomConfig) else None
    return {
        **settings,
        "policy": policy.model_dump(mode="json", exclude={"label"}),
        "module": None if own is None else digest(own),
        "seed": seed,
    }


def run_name(identity: Mapping[str, Any], policy: PolicyConfig) -> str:
    """A run's folder: the policy and seed for people, and a digest of the identity that tells runs apart."""
    title = policy.model_copy(update={"label": None}).title[:_LONGEST_TITLE]
    readable = "".join(c if c.isalnum() or c in ".=()_-" else "_" for c in title)
    return f"{readable}-{identity['seed']}-{short_digest(identity)}"


def short_digest(data: Mapping[str, Any]) -> str:
    """80 bits of SHA-256 over canonical JSON, in hexadecimal."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def named_files(scenario: Scenario) -> dict[str, Path]:
    """Files that a run reads beside its profile, by the names that stand in the scenario."""
    found = {name: scenario.locate(name) for name in _names(scenario.workload.model_dump(exclude=_CLASSES))}
    found |= {name: scenario.locate_profile(name) for name in scenario.profile_names[1:]}
    for config in (*scenario.acceptances, *(group.acceptance for group in scenario.fleet.groups)):
        for name in _names(config.model_dump() if config else {}):
            found[name] = scenario.locate_acceptance(name)
    return found


def _names(data: object) -> Iterator[str]:
    """Values of the keys that name a file, anywhere in the data."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key in _NAMES_A_FILE and isinstance(value, str):
                yield value
            else:
                yield from _names(value)
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _names(item)


def digest(path: Path) -> str:
    """SHA-256 of a file's contents, read once for as long as the file stays as it is."""
    return _digest(path, *stamp(path))


@lru_cache(maxsize=256)
def _digest(path: Path, changed_ns: int, size: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of the code that runs go through, so that no version takes over another's runs."""
    root = Path(sim.__file__).parent.parent
    total = hashlib.sha256()
    for path in code_files():
        total.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return total.hexdigest()


def code_files() -> list[Path]:
    """The files in ``code_digest``, in order."""
    root = Path(sim.__file__).parent
    parts = [root / part for part in _CODE]
    found = [path for part in parts for path in ([part] if part.is_file() else sorted(part.rglob("*.py")))]
    read = Path(calibrate.profile.__file__)
    return [*found, read, read.with_name("work.py")]
