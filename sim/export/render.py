"""Exported settings as text to paste, as plain data, and as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sim.export.build import ROLES, Block, LoadExport
from sim.export.settings import Engine
from sim.export.sglang import ADAPTIVE_FILE, SPS_FILE
from sim.files import write_whole
from sim.results.compare import Difference
from sim.results.names import METRICS
from sim.results.words import percent

FILES: Final = ("settings", ADAPTIVE_FILE, SPS_FILE)
"""Every name that an export writes in the folder of a role."""


def text(engine: Engine, loads: Sequence[LoadExport], error: float) -> str:
    """Everything as comments and, between them, lines to paste."""
    lines = [f"# Settings for {engine.NAME}, checked against {engine.CHECKED}."]
    if error:
        lines.append(f"# Gains under {100 * error:.0f} %, the profile's error, count as none.")
    for load in loads:
        lines += ["", f"# {load.verdict}", f"# {load.advice}", *_blocks(load)]
    return "\n".join(lines) + "\n"


def _blocks(load: LoadExport) -> Iterator[str]:
    for block in load.blocks:
        yield ""
        yield f"# {block.role}: {block.policy}; {block.gain}"
        yield from (f"# {note}" for note in remarks(block, load.context))
        if block.settings.text:
            yield block.settings.text
        for name, content in block.settings.files.items():
            yield f"# {name}:"
            yield from (f"#   {line}" for line in content.splitlines())


def remarks(block: Block, context: int) -> list[str]:
    """What has to be known of a block: why it is empty, what it stands for, what the engine minds."""
    if block.refused:
        return [f"no settings: {block.refused}"]
    found = list(block.settings.notes)
    other = block.settings.stands_for
    if other is not None and block.lost is not None:
        at = f"at the mean context of {context:,} tokens" if other.policy == "per_batch_size" else ""
        words = " ".join(filter(None, ["the nearest that this engine has is", other.title, at]))
        found.insert(0, f"{words}; {_lost(block.lost)}")
    return found


def _lost(lost: Difference | str) -> str:
    if isinstance(lost, str):
        return lost
    even = ", which is no difference" if lost.verdict == "no difference" else ""
    return f"simulated against the policy itself: {METRICS[lost.metric].label} {percent(lost)}{even}"


def data(engine: Engine, loads: Sequence[LoadExport], error: float) -> dict[str, Any]:
    """The same as plain data, for ``--json``."""
    return {
        "schema": "leadline.export/1",
        "engine": engine.NAME,
        "checked": engine.CHECKED,
        "error": error,
        "loads": [
            {
                "load": load.load,
                "verdict": load.verdict,
                "advice": load.advice,
                "worth": load.worth,
                "context_tokens": load.context,
                "settings": [_block(block, load.context) for block in load.blocks],
            }
            for load in loads
        ],
    }


def _block(block: Block, context: int) -> dict[str, Any]:
    lost = block.lost if isinstance(block.lost, Difference) else None
    return {
        "role": block.role,
        "policy": block.policy,
        "gain": block.gain,
        "text": block.settings.text,
        "files": dict(block.settings.files),
        "remarks": remarks(block, context),
        "lost": None if lost is None else {"ratio": lost.ratio, "half_width": lost.ratio_half_width},
    }


def write(out: Path, loads: Sequence[LoadExport]) -> list[Path]:
    """Write ``LOAD/ROLE/settings`` and the files that settings name; returns what was written.

    Files of that name that an earlier export left in other loads and roles of ``out`` are removed.
    """
    written = []
    for number, load in enumerate(loads):
        for block in load.blocks:
            folder = out / f"{number}-{_name(load.load)}" / _name(block.role)
            files = {"settings": block.settings.text + "\n", **block.settings.files}
            for name, content in files.items():
                write_whole(folder / name, content)
                written.append(folder / name)
    _remove_earlier(out, set(written))
    return written


def _remove_earlier(out: Path, written: set[Path]) -> None:
    """Remove what an export writes and this one did not, with the folders that this empties."""
    for role in ROLES:
        for folder in sorted(out.glob(f"[0-9]*-*/{_name(role)}")):
            earlier = (folder / name for name in FILES)
            stale = [path for path in earlier if path not in written and path.is_file()]
            for path in stale:
                path.unlink()
            for each in (folder, folder.parent) if stale else ():
                if not any(each.iterdir()):
                    each.rmdir()


def _name(label: str) -> str:
    return "".join(c if c.isalnum() or c in ".,=()-" else "_" for c in label)
