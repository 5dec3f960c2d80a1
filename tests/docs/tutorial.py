"""The outputs shown in docs/tutorial.md, by doing in an empty folder what the page says.

``python -m tests.docs.tutorial`` writes the page again; a test keeps it true. A block of the page is

- a file, if its fence has ``title="NAME"``: it is written, before anything is run that stands below it;
- an edit, if it is a ``diff``: lines with ``-`` in ``mine.yaml`` become the lines with ``+``;
- commands, if it is ``bash``; the ``text`` block that follows, if any, is what the last of them prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
EDITED = "mine.yaml"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"^(python3 -m venv|pip|\.venv)\b|^xdg-open\b")
"""Commands that the test's own environment stands for."""


def page() -> str:
    """The page with its outputs made anew; takes about half a minute on one core."""
    with tempfile.TemporaryDirectory() as folder:
        return _followed(PAGE.read_text(encoding="utf-8"), Path(folder))


def _followed(text: str, folder: Path) -> str:
    printed: str | None = None
    parts, done = [], 0
    for block in BLOCK.finditer(text):
        kind, title, body = block.groups()
        if title is not None:
            (folder / title).write_text(body, encoding="utf-8")
        elif kind == "diff":
            edit(folder / EDITED, body)
        elif kind == "text" and printed is not None:
            parts += [text[done : block.start(3)], printed]
            done = block.end(3)
        printed = run(body, folder) if kind == "bash" else None
    return "".join([*parts, text[done:]])


def edit(file: Path, diff: str) -> None:
    """Put the ``+`` lines of each change where its ``-`` lines stand; ``ValueError`` if they do not."""
    text = file.read_text(encoding="utf-8")
    for change in re.finditer(r"((?:^-.*\n)+)((?:^\+.*\n)+)", diff, re.MULTILINE):
        old, new = (re.sub(r"^.", "", part, flags=re.MULTILINE) for part in change.groups())
        if text.count(old) != 1:
            raise ValueError(f"{file.name} does not hold once:\n{old}")
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def run(commands: str, folder: Path) -> str:
    """What the last command prints, without trailing blanks; raises if one fails."""
    printed = ""
    for command in commands.replace("\\\n", "").splitlines():
        if NOT_RUN.match(command):
            continue
        shell = f'leadline() {{ "{sys.executable}" -m sim "$@"; }}\n{command}'
        made = subprocess.run(
            ["bash", "-c", shell],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"{command}\n{made.stdout}{made.stderr}")
        printed = made.stdout
    return "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
