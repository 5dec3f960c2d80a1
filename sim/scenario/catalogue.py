"""What ships with leadline: scenarios, hardware profiles and workloads, found by name.

The files are data of the package ``scenarios``, so an installed wheel has them, too. Wherever a
name is taken, a path does as well; it is relative to the file it stands in.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from sim.errors import InputError
from sim.scenario.words import did_you_mean

Kind = Literal["scenario", "profile", "workload"]

_PLACES: Final[dict[Kind, tuple[tuple[str, ...], str]]] = {
    "scenario": (("", "claims"), ".yaml"),
    "profile": (("profiles",), ".json"),
    "workload": (("workloads",), ".json"),
}


def shipped(kind: Kind) -> dict[str, Path]:
    """Files of one kind by name, in order of name; scenarios in a folder are ``folder/name``."""
    root = Path(str(files("scenarios")))
    folders, suffix = _PLACES[kind]
    found = {
        f"{folder}/{path.stem}" if kind == "scenario" and folder else path.stem: path
        for folder in folders
        for path in (root / folder).glob(f"*{suffix}")
    }
    return dict(sorted(found.items()))


def locate(kind: Kind, name: str, folder: Path) -> Path:
    """File of a shipped name, or of a path relative to ``folder``; ``InputError`` if there is none."""
    known = shipped(kind)
    if name in known:
        return known[name]
    path = folder / name
    if is_path(name) or path.is_file():
        if not path.is_file():
            raise InputError(f"there is no file {name!r}; paths count from the scenario's folder")
        return path
    raise InputError(f"there is no {kind} {name!r}{did_you_mean(name, known)}")


def is_path(name: str) -> bool:
    """Whether the user means a file rather than a shipped name."""
    return "/" in name or "\\" in name or Path(name).suffix in {".json", ".jsonl", ".csv", ".yaml", ".yml"}
