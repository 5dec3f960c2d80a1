"""What the numbers stand on, and what a reader must know before trusting them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from calibrate.profile import Profile
from sim.acceptance.config import AcceptanceConfig, TraceAcceptance
from sim.report.layout import Layout, Place
from sim.report.model import Source

if TYPE_CHECKING:
    from sim.sweep.results import Results

_KINDS = {
    "measured": "measured on the device itself",
    "composed": "composed: added up from published kernel measurements, not measured as a whole",
    "analytic": "analytic: from datasheet numbers, not measured",
}


def sources(layout: Layout, results: Results) -> tuple[Source, ...]:
    """Software and scenario, every profile, every acceptance source."""
    about = results.about
    first = Source(
        "Scenario and software",
        (
            ("scenario", str(about["scenario"])),
            ("leadline", str(about["leadline"])),
            ("seeds", _list(about["seeds"])),
            ("engine", _list(about["engines"])),
            ("deciding metric", results.comparison.metric),
        ),
    )
    profiles = (_profile(profile) for profile in _profiles(results))
    return (first, *profiles, *_acceptances(layout))


def warnings(layout: Layout, results: Results) -> tuple[str, ...]:
    """Everything that weakens a number: what the run said, and what profiles and acceptance are."""
    found = [*results.warnings]
    for profile in _profiles(results):
        if profile.kind != "measured":
            found.append(f"{profile.name} is {_KINDS[profile.kind]}")
        if profile.error is None:
            found.append(f"{profile.name} states no error, so no margin is called even but by chance")
        assumed = [t.name for t in profile.target.verify if t.mark == "assumed"]
        if assumed:
            found.append(f"{profile.name}: assumed and not measured: {', '.join(assumed)}")
    found += [text for each in results.about["assumptions"] if (text := str(each))]
    found += _random_prompts(layout)
    found += _unstable(layout)
    if len(results.scenario.run.seeds) < 2:
        found.append("One seed: no interval, so chance is not ruled out. Run with --seeds 5 or more")
    if layout.left_out:
        found.append(f"{layout.left_out} cells of the sweep are left out here; summary.json has them")
    return tuple(dict.fromkeys(found))


def _profiles(results: Results) -> list[Profile]:
    """Every profile once."""
    return list({profile.name: profile for profile in results.profiles.values()}.values())


def _profile(profile: Profile) -> Source:
    error = profile.error
    stated = f"± {100 * error.relative:.1f} % of a step ({error.basis})" if error else "none stated"
    device = (
        f"{profile.device.count} x {profile.device.name}" if profile.device.count > 1 else profile.device.name
    )
    facts = [
        ("kind", _KINDS[profile.kind]),
        ("device", device),
        ("target", profile.target.work.name),
        ("precision", profile.dtype),
        ("error", stated),
        ("made", profile.created),
        ("command", profile.command),
        ("step sizes known", f"up to {profile.max_tokens:,} tokens"),
        *(
            (f"source: {each.name}", " · ".join(filter(None, (each.what, each.licence))))
            for each in profile.sources
        ),
        *((f"assumed: {each.what}", f"{each.value} ({each.why})") for each in profile.assumptions),
    ]
    return Source(f"Profile {profile.name}", tuple(facts))


def _acceptances(layout: Layout) -> Iterator[Source]:
    """Every acceptance source once, with the classes of requests that it serves."""
    seen: dict[str, tuple[AcceptanceConfig, Place, list[str]]] = {}
    for place in layout.places:
        names = [kind.name for kind in place.cell.scenario.workload.classes] or ["all requests"]
        for name, config in zip(names, place.cell.scenario.acceptances, strict=True):
            if config is not None:
                entry = seen.setdefault(config.model_dump_json(), (config, place, []))
                entry[2].extend([name] if name not in entry[2] else [])
    for config, place, names in seen.values():
        stated = config.model_dump(mode="json", exclude_defaults=True)
        facts = [(key.replace("_", " "), _text(value)) for key, value in stated.items()]
        facts += [("drafter", place.cell.scenario.drafter or "none"), ("requests", ", ".join(names))]
        facts += [(f"recorded: {key}", value) for key, value in _recorded(config, place).items()]
        yield Source(f"Acceptance ({config.process})", tuple(facts))


def _recorded(config: AcceptanceConfig, place: Place) -> dict[str, str]:
    """What stands beside a recording about how it was made, if anything does."""
    if not isinstance(config, TraceAcceptance):
        return {}
    file = place.cell.scenario.locate_acceptance(config.path)
    beside = file.with_name(file.name.split(".jsonl")[0] + ".json")
    try:
        data: Any = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"file": file.name}
    plain = {k: _text(v) for k, v in data.items() if isinstance(v, str | int | float)}
    return {"file": file.name, **plain}


def _random_prompts(layout: Layout) -> Iterator[str]:
    """Recordings on random prompts: acceptance there says nothing about real text."""
    for place in layout.places:
        for config in place.cell.scenario.acceptances:
            about = {} if config is None else _recorded(config, place)
            said = [v for k, v in about.items() if k in ("file", "title", "dataset", "prompts", "source")]
            if re.search(r"\brandom\b", " ".join(said).replace("_", " "), re.IGNORECASE):
                file = about["file"]
                yield f"{file} was recorded on random prompts, whose acceptance is not that of real text"


def _unstable(layout: Layout) -> Iterator[str]:
    for place in layout.places:
        names = [policy.label for policy in place.compared.policies if policy.unstable]
        if names:
            yield f"Unstable at {place.name}: {', '.join(names)}. The backlog grew; no mean is given"
        partly = [p for p in place.compared.policies if p.unstable_seeds and not p.unstable]
        for policy in partly:
            seeds = f"{policy.unstable_seeds} of {len(policy.runs)} seeds"
            yield f"Unstable at {place.name} under {seeds}: {policy.label}. These seeds are left out"


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _list(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list) else str(values)
