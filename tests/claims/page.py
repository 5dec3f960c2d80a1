"""Write docs/claims.md from the runs of the claims' scenarios: ``python -m tests.claims.page``."""

from __future__ import annotations

from pathlib import Path

from tests.claims.claims import Claim, Row, all_claims

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"

_INTRODUCTION = """\
# Claims

The article that this program started from makes claims about breadth and depth. Each is a small scenario here, run in
seconds, with what came out. The tests hold each outcome to theory: a closed form, a roofline bound, or the profile's
terms added up by hand (`tests/claims`). Nothing on this page is typed in: `python -m tests.claims.page` writes it.

Step times are composed from measured kernels ([profiles.md](profiles.md)), and acceptance is independent per draft.
Batches are held constant by closed loops. Unless a table says otherwise, it shows steps in which every client's
sequence decodes and none prefills, averaged over two seeds. Scenarios with `preset: ideal` leave out what an engine does
around the pass (padding to graph sizes, drafting at depth 0), so that one cause shows at a time.
"""


def page() -> str:
    """The whole page."""
    return "\n".join((_INTRODUCTION, *(section(i, claim) for i, claim in enumerate(all_claims(), 1))))


def section(number: int, claim: Claim) -> str:
    """One claim: what it says, whether it holds, why, and the table."""
    return (
        f"## {number}. {claim.title}\n\n"
        f"{claim.verdict[:1].upper()}{claim.verdict[1:]}. `leadline run claims/{claim.scenario}`\n\n"
        f"{wrapped(claim.text)}\n\n{table(claim.head, claim.rows)}\n"
    )


def table(head: Row, rows: tuple[Row, ...]) -> str:
    """A Markdown table."""
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def wrapped(text: str, width: int = 118) -> str:
    """Paragraph lines of at most ``width`` characters."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        lines = [*lines[:-1], joined] if len(joined) <= width else [*lines, word]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
