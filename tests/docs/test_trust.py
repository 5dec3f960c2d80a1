"""docs/trust.md quotes other pages: its bold figures stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROWS = [
    line
    for line in (DOCS / "trust.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and "**" in line
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_quoted_figures_stand_in_the_page_that_is_named(row: str) -> None:
    pages = [DOCS / name for name in re.findall(r"\]\(([\w-]+\.md)\)", row)]
    text = " ".join(page.read_text(encoding="utf-8") for page in pages)
    quoted = re.findall(r"\*\*(.+?)\*\*", row)
    assert quoted
    for figure in quoted:
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", text), figure
