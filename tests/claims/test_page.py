"""The page shows what the scenarios give now."""

from __future__ import annotations

from tests.claims.measure import CLAIMS
from tests.claims.page import PAGE, page


def test_the_page_is_what_its_command_writes() -> None:
    """docs/claims.md equals the output of ``python -m tests.claims.page``."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_scenario_of_the_claims_is_on_the_page() -> None:
    """Nothing in scenarios/claims is left out."""
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"claims/{path.stem}`" in text for path in CLAIMS.glob("*.yaml"))
