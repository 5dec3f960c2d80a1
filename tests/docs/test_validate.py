"""docs/validate.md shows what the recorded run printed, judged by today's rules."""

from __future__ import annotations

import json

import pytest


def test_the_output_shown_is_that_of_the_recorded_run() -> None:
    pytest.importorskip("torch", reason="the reference engine needs torch (extra: calibrate)")
    from tests.docs.validate import DATA, PAGE, page

    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text, json.loads(DATA.read_text(encoding="utf-8"))), "python -m tests.docs.validate"
