"""The reference scheduler and vLLM's own decide the same at every step of the same arrivals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .vllm_scheduler import replay

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "vllm_cpu" / "recorded"
PATHS = sorted(RECORDED.glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    """Read one recording."""
    recording: dict[str, Any] = json.loads(path.read_text())
    return recording


@pytest.mark.skipif(not PATHS, reason=f"no recorded vLLM run in {RECORDED}")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_reference_replays_vllm(path: Path) -> None:
    """Clock, tokens, depth, batch, drafts, preemptions, queue and request times are identical."""
    assert replay(load(path)) == []
