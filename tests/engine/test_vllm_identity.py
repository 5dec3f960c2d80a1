"""The vllm_v1 preset against the first recordings of vLLM's own scheduler under known step costs.

They lie beside the project; tests/referee has its own recordings, made and replayed in the same way.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.referee.replay import first_difference, load

RECORDED = Path(__file__).resolve().parents[2].parent / "shared" / "vllm_cpu" / "recorded"
FILES = sorted(RECORDED.glob("*.json"))


@pytest.mark.skipif(not FILES, reason="recordings of vLLM are not beside the project")
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_step_and_every_request_is_vllms(file: Path) -> None:
    """Fed the same luck, the simulator's steps and times are vLLM's."""
    assert first_difference(load(file)) is None
