"""docs/plan.md says what the command takes and what the routers are."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from sim.fleet.routers import ROUTERS
from sim.plan.cli import app

DOCS = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")


def test_every_flag_is_explained_and_every_flag_shown_exists() -> None:
    flags = {name for option in get_command(app).params for name in option.opts if name.startswith("--")}
    assert set(re.findall(r"--[a-z][a-z-]*", DOCS)) == flags - {"--help"}


def test_every_router_has_its_row() -> None:
    assert set(ROUTERS) <= set(re.findall(r"^\| `(\w+)` \|", DOCS, re.MULTILINE))
