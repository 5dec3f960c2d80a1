"""The page in a real Chromium: it draws, complains of nothing, and asks nobody for anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.browser import CHROMIUM, browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
CHARTS = "[...document.querySelectorAll('[data-chart]')]"


def test_the_page_in_chromium(page: str, tmp_path: Path) -> None:
    """Nine charts drawn with marks in them; controls work by keyboard; dark, narrow and printed as well."""
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    with browser() as shown:
        for width, scheme in ((1100, "light"), (390, "dark")):
            shown.open(file, width=width, scheme=scheme)
            assert shown.js(f"{CHARTS}.map(c => c.querySelectorAll('svg path').length > 10)") == [True] * 9
            assert shown.js(f"{CHARTS}.every(c => c.getAttribute('aria-label'))")
            assert shown.js("document.documentElement.scrollWidth <= innerWidth")
        assert shown.js("window.alerted === undefined && document.querySelectorAll('script').length") == 3
        before = shown.js("document.querySelectorAll('#forest svg path').length")
        shown.js("document.querySelectorAll('input[name=policy]')[1].focus()")
        for kind in ("keyDown", "keyUp"):
            shown.call(
                "Input.dispatchKeyEvent", type=kind, key=" ", code="Space", text=" ", windowsVirtualKeyCode=32
            )
        shown.js("new Promise(r => setTimeout(r, 300))")
        assert shown.js("document.querySelectorAll('#forest svg path').length") < before
        assert shown.pdf().startswith(b"%PDF")
        assert shown.errors == []
        assert set(shown.requests) <= {file.resolve().as_uri(), "data:,"}
