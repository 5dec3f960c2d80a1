"""What the documentation says is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import architecture, crossover

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_architecture_page_lists_every_module() -> None:
    """Each module stands on the page with its own first sentence."""
    packages = {path.parent for part in ("sim", "calibrate") for path in (ROOT / part).rglob("*.py")}
    assert {path.relative_to(ROOT).as_posix() for path in packages} == set(architecture.PACKAGES)
    assert architecture.PAGE.read_text(encoding="utf-8") == architecture.page()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Relative links name files that exist."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_shows_what_its_first_command_prints() -> None:
    """The tables in the README are the output of the command above them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```text\n(load .*?)```", readme, re.DOTALL)
    assert shown is not None
    command = [sys.executable, "-m", "sim", "run", "azure-conversation", "--jobs", "2"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert _lines(printed)[-len(_lines(shown[1])) :] == _lines(shown[1])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_the_crossover_table_is_the_measured_profile() -> None:
    """The page's numbers come from the shipped cells and their fit."""
    assert crossover.PAGE.read_text(encoding="utf-8") == crossover.page()
