"""Write docs/claims.md from the runs of the claims' scenarios: ``python -m tests.claims.page``.

The words are in ``page.md`` beside this file, with the tables' and numbers' names in braces.
"""

from __future__ import annotations

from pathlib import Path

from tests.claims import claims

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
WORDS = Path(__file__).with_name("page.md")

TABLES = (
    claims.work_per_token,
    claims.memory_bound,
    claims.two_sequences,
    claims.breadth_or_depth,
    claims.fixed_depth_at_load,
    claims.waste,
    claims.disable_at_load,
    claims.adapt_to_batch,
    claims.depth_per_sequence,
)
NUMBERS = (claims.memory_bound_numbers, claims.breadth_or_depth_numbers, claims.adapt_to_batch_numbers)


def page() -> str:
    """The whole page."""
    shown = {make.__name__: markdown(make()) for make in TABLES}
    for make in NUMBERS:
        shown |= make()
    return WORDS.read_text(encoding="utf-8").format(**shown)


def markdown(table: claims.Table) -> str:
    """A Markdown table."""
    head, rows = table
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
