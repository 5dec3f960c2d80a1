"""Steps beyond what a profile knows are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.profile import load_profile
from sim.cost.domain import extrapolated_share
from sim.results.records import STEP_COLUMNS
from tests.engine.modelled import linear_profile

PROFILES = Path(__file__).resolve().parents[1] / "scenarios" / "profiles"


def step(**given: int) -> Any:
    """One step with the columns given and zeros elsewhere."""
    return {name: np.array([given.get(name, 0)]) for name in STEP_COLUMNS}


@pytest.mark.parametrize(
    ("given", "beyond"),
    [
        ({"padded_tokens": 128, "sequences": 32, "decodes": 32, "context_tokens": 32 * 1024}, False),
        ({"padded_tokens": 129, "sequences": 32, "decodes": 32}, True),
        ({"padded_tokens": 128, "sequences": 129}, True),
        ({"padded_tokens": 8, "sequences": 8, "decodes": 8, "context_tokens": 8 * 1025}, True),
        ({"padded_tokens": 8, "sequences": 8, "draft_first_tokens": 129}, True),
    ],
)
def test_a_measured_profile_knows_its_cells_and_no_more(given: dict[str, int], beyond: bool) -> None:
    """The shipped CPU profile was measured to 128 tokens, 128 sequences and 1,024 tokens of context."""
    profile = load_profile(PROFILES / "cpu-small-88m.json")
    row = step(**{"tokens": 1, **given})
    assert extrapolated_share(row, profile, "draft") == float(beyond)


def test_a_composed_profile_ends_with_its_curves() -> None:
    """GEMM tables go to 8,192 tokens."""
    profile = load_profile(PROFILES / "llama-3.1-8b-h100.json")
    for tokens, beyond in ((8192, 0.0), (8193, 1.0)):
        assert extrapolated_share(step(tokens=tokens, padded_tokens=tokens), profile, None) == beyond


def test_a_profile_without_curves_ends_at_its_largest_step() -> None:
    profile = linear_profile()
    for tokens, beyond in ((8192, 0.0), (8193, 1.0)):
        assert extrapolated_share(step(tokens=tokens, padded_tokens=tokens), profile, None) == beyond
