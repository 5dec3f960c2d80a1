"""Parts of a page that a generator writes: what stands between ``<!-- name -->`` and ``<!-- /name -->``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def filled(text: str, parts: Mapping[str, str]) -> str:
    """The page with its parts made anew; ``ValueError`` if the page lacks one."""
    for name, made in parts.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        head, _, rest = text.partition(start)
        tail = rest.partition(end)[2]
        if end not in rest:
            raise ValueError(f"the page has no part {name!r}")
        text = f"{head}{start}\n\n{made.strip()}\n\n{end}{tail}"
    return text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown; bars inside cells are escaped."""
    lines = [head, ("---",) * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
