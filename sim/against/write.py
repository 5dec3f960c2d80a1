"""The adjusted scenario as YAML and, where a factor on passes was fitted, the adjusted profile."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any, Final

import yaml

from calibrate.profile import Profile, Source, StatedError, load_profile, save_profile
from sim.against.adjust import draft_scaled, shifted, verify_scaled
from sim.against.fit import Fit
from sim.errors import InputError
from sim.scenario.load import read_document
from sim.scenario.model import Scenario
from sim.scenario.overlay import with_values
from sim.units import NS_PER_MS

_PATHS: Final = ("profile", "path", "from", "joint", "search")
"""Keys of a scenario whose value may be a file beside it."""


def write(fit: Fit, source: Path, out: Path, command: str) -> tuple[Path, ...]:
    """Write the adjusted scenario to ``out`` and its profile beside it; returns what was written.

    ``source`` is the scenario that was fitted; everything but the adjusted keys stays as written
    there (or as set by flags), paths made relative to the new place. Raises ``InputError`` when
    ``out`` is the source, or cannot be written.
    """
    if out.resolve() == source.resolve():
        raise InputError(f"--out is {out}, the scenario itself; name another file")
    scenario = fit.bench.scenario
    written = {**scenario.written, **_own_sections(source)}
    values = _values(fit)
    profile = _profile(fit, out.stem, command)
    if profile is not None:
        values["profile"] = f"{profile.name}.json"
    kept = {key: value for key, value in written.items() if value not in ({}, None)}
    data = with_values(_moved(kept, scenario.folder, out.parent), values)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(_text(data, fit, command), encoding="utf-8")
        if profile is None:
            return (out,)
        save_profile(profile, out.parent / f"{profile.name}.json")
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
    return out, out.parent / f"{profile.name}.json"


def _own_sections(source: Path) -> dict[str, Any]:
    """Workload and sweep as the file has them; the files of runs had replaced them."""
    data = read_document(source).data
    return {"workload": data["workload"], "sweep": data.get("sweep", {})}


def _text(data: Mapping[str, Any], fit: Fit, command: str) -> str:
    held = fit.error("tpot_mean_ms", fit.held_out, adjusted=True) if fit.held_out else float("nan")
    error = "nothing was held out" if isnan(held) else f"TPOT off by {held:.1%} on held-out runs"
    head = f"# Made by: {command}\n# {error}. Other keys are as they were written.\n"
    return head + yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=110)


def _values(fit: Fit) -> dict[str, Any]:
    """Adjusted keys of the scenario by dotted path."""
    scenario, a = fit.bench.scenario, fit.adjustment
    values: dict[str, Any] = {}
    if a.overhead_ms:
        ns = scenario.engine.step_overhead + round(a.overhead_ms * NS_PER_MS)
        values["engine.step_overhead"] = f"{max(0, ns)}ns"
    if a.acceptance and scenario.acceptance is not None:
        moved = shifted(scenario.acceptance, a.acceptance)
        values["acceptance"] = moved.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return values


def _moved(data: Any, here: Path, there: Path) -> Any:
    """The data with paths to files beside the scenario made relative to its new folder."""
    if isinstance(data, list):
        return [_moved(item, here, there) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        key: os.path.relpath(here / value, there)
        if key in _PATHS and isinstance(value, str) and (here / value).exists()
        else _moved(value, here, there)
        for key, value in data.items()
    }


# -- the profile -----------------------------------------------------------------------------------


def _profile(fit: Fit, name: str, command: str) -> Profile | None:
    """The profile with its passes scaled, marked as composed; ``None`` where no factor was fitted."""
    scenario, a = fit.bench.scenario, fit.adjustment
    if a.verify == 1 and a.draft == 1:
        return None
    base = load_profile(scenario.profile_path)
    note = f"x {{:.4g}}, fitted to runs (source {_SOURCE})"
    scaled = verify_scaled(base, a.verify, note.format(a.verify))
    drafters = {**scaled.drafters, **_drafter(scaled, scenario, a.draft, note)}
    return scaled.model_copy(
        update={
            "name": _name(base.name, name),
            "kind": "composed",
            "command": command,
            "drafters": drafters,
            "error": _error(fit),
            "sources": (*base.sources, *_sources(fit)),
            "samples": (),
            "cells": (),
            "fit": {},
            "method": None,
            "machine": None,
            "seal": {},
            "notes": f"{base.name} with passes scaled by leadline fit: target x {a.verify:.4g}, drafter "
            f"x {a.draft:.4g}. {base.notes}".strip(),
        }
    )


_SOURCE: Final = "leadline-fit"


def _drafter(profile: Profile, scenario: Scenario, factor: float, note: str) -> dict[str, Any]:
    drafter = scenario.drafter_of(profile)
    if drafter is None or scenario.drafter is None:
        return {}
    return {scenario.drafter: draft_scaled(drafter, factor, note.format(factor))}


def _name(base: str, name: str) -> str:
    """A name that a profile may have."""
    allowed = "".join(c if c.isalnum() or c in "._-" else "-" for c in name.lower()).strip("._-")
    return f"{base}-{allowed or 'adjusted'}"


def _error(fit: Fit) -> StatedError | None:
    """What held-out runs were missed by; without any, nothing is known."""
    if not fit.held_out:
        return None
    error = fit.error("tpot_mean_ms", fit.held_out, adjusted=True)
    if isnan(error):
        return None
    basis = f"mean error of TPOT on {len(fit.held_out)} held-out runs of leadline fit"
    return StatedError(relative=round(min(error, 0.99), 4), basis=basis)


def _sources(fit: Fit) -> tuple[Source, ...]:
    """The files whose runs were fitted, by content."""
    places = dict.fromkeys(_file(fit.bench.runs[n].place) for n in fit.fitted)
    return tuple(
        Source(
            name=_SOURCE,
            what="serving results that factors on whole passes were fitted to",
            file=path.name,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in places
    )


def _file(place: str) -> Path:
    """The file of a run's place, which may go on with the number of a run or row."""
    path = Path(place)
    while not path.is_file() and ", " in str(path):
        path = Path(str(path).rpartition(", ")[0])
    return path
