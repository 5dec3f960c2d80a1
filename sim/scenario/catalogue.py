"""What ships with leadline: scenarios, hardware profiles, workloads and acceptance traces, found by name.

The files are data of the package ``scenarios``, so an installed wheel has them, too. Wherever a
name is taken, a path does as well; it is relative to the file it stands in.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from sim.errors import InputError
from sim.scenario.nodes import parse_yaml
from sim.scenario.words import did_you_mean

Kind = Literal["scenario", "profile", "workload", "acceptance"]

_PLACES: Final[dict[Kind, tuple[str, str]]] = {
    "scenario": ("", "**/*.yaml"),
    "profile": ("profiles", "*.json"),
    "workload": ("workloads", "*.json"),
    "acceptance": ("acceptance", "*.jsonl.gz"),
}


def shipped(kind: Kind) -> dict[str, Path]:
    """Files of one kind by name; scenarios at the top first, then those in folders, ``folder/name``."""
    place, pattern = _PLACES[kind]
    ending = pattern.rpartition("*")[2]
    root = Path(str(files("scenarios"))) / place
    paths = sorted(root.glob(pattern), key=lambda path: (len(path.relative_to(root).parts), path))
    return {path.relative_to(root).as_posix().removesuffix(ending): path for path in paths}


def locate(kind: Kind, name: str, folder: Path) -> Path:
    """File of a shipped name, or of a path relative to ``folder``; ``InputError`` if there is none."""
    known = shipped(kind)
    if name in known:
        return known[name]
    path = folder / name
    if exists(path):
        return path
    if is_path(name):
        hint = "" if kind == "scenario" else "; paths count from the scenario's folder"
        raise InputError(f"there is no file {name!r}{hint}")
    what = "acceptance trace" if kind == "acceptance" else kind
    raise InputError(f"there is no {what} {name!r}{did_you_mean(name, known)}")


def described(kind: Kind) -> dict[str, str]:
    """What ships of one kind by name, each with a line about it."""
    return {name: _description(kind, path) for name, path in shipped(kind).items()}


def _description(kind: Kind, path: Path) -> str:
    if kind == "acceptance":  # the line stands in the description beside it
        path = path.with_name(path.name.removesuffix(".jsonl.gz") + ".json")
    text = path.read_text(encoding="utf-8")
    if kind == "scenario":
        data = parse_yaml(text, path.name).data
        return str(data.get("description", "")) if isinstance(data, dict) else ""
    data = json.loads(text)
    if kind in {"workload", "acceptance"}:
        return str(data.get("title", ""))
    drafters = ", ".join(data.get("drafters", {})) or "none"
    return (
        f"{data['target']['work']['name']} on {data['device']['name']}, {data['kind']}; drafters: {drafters}"
    )


def copy_scenario(name: str, destination: Path | None, force: bool) -> Path:
    """Write a shipped scenario to a file or into a folder, by default here; returns where.

    Raises ``InputError`` when there is no such scenario, or a file in its place without ``force``.
    """
    source = shipped("scenario").get(name)
    if source is None:
        raise InputError(f"there is no scenario {name!r}{did_you_mean(name, shipped('scenario'))}")
    target = destination or Path()
    target = target / source.name if target.is_dir() else target
    if target.exists() and not force:
        raise InputError(f"{target} exists already; give another DEST, or --force to overwrite it")
    try:
        target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target} cannot be written ({error.strerror}); give another DEST") from None
    return target


def exists(path: Path) -> bool:
    """Whether there is a file of that name (no name with a NUL or 5,000 letters is one)."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_path(name: str) -> bool:
    """Whether the user means a file rather than a shipped name."""
    endings = {".json", ".jsonl", ".gz", ".csv", ".yaml", ".yml"}
    return "/" in name or "\\" in name or Path(name).suffix in endings
