"""How long until a report can be used, and its pictures.

``python -m tests.report.interactive REPORT.html [FOLDER]``

Interactive is when everything in sight is drawn; complete when every chart is. Chromium, headless,
without a GPU; the median of five openings.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from tests.report.browser import browser


def main(page: Path, pictures: Path | None) -> None:
    """Print the times in ms; with a folder write ``report-light.png`` and ``report-dark.png`` there."""
    with browser() as shown:
        found: dict[str, list[int]] = {"interactiveMs": [], "readyMs": []}
        for _ in range(5):
            shown.open(page)
            for name, times in found.items():
                times.append(int(shown.js(f"document.documentElement.dataset.{name}")))
        print({name: statistics.median(times) for name, times in found.items()})
        if pictures is not None:
            for scheme, at in (("light", "body"), ("dark", "#depth-breadth")):
                shown.open(page, width=1000, height=1050, scheme=scheme)
                shown.js(f"document.querySelector('{at}').scrollIntoView()")
                shown.screenshot(pictures / f"report-{scheme}.png", whole=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
