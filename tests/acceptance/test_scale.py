"""``scale`` multiplies every conditional acceptance and keeps the luck."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sim.acceptance.build import build_process
from sim.acceptance.config import AcceptanceConfig, geometric_tokens

PROCESSES = [
    {"process": "iid", "alpha": 0.8},
    {"process": "per_position", "conditional": [0.9, 0.7, 0.5]},
    {"process": "beta", "mean": 0.7, "concentration": 4.0},
    {"process": "latent", "mean": 0.7, "spread": 1.0, "correlation": 0.5},
    {"process": "markov", "good": 0.9, "bad": 0.4, "leave_good": 0.1, "leave_bad": 0.2},
    {"process": "mean_length", "depth": 3, "acceptance_length": 2.5},
    {"process": "trace", "path": "rows.jsonl"},
]


def process(data: dict[str, object], folder: Path, depth: int = 5, seed: int = 3):  # type: ignore[no-untyped-def]
    """The process of plain data; traces are looked for in ``folder``."""
    config = TypeAdapter(AcceptanceConfig).validate_python(data)
    return build_process(config, seed, depth, lambda name: folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording of runs."""
    path = tmp_path_factory.mktemp("trace")
    (path / "rows.jsonl").write_text(
        '{"accepted": [3, 2, 1, 0, 5, 4, 3, 2, 1, 0], "depth": 5}\n', encoding="utf-8"
    )
    return path


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PROCESSES), st.floats(0, 1), st.floats(0, 1), st.integers(0, 50))
def test_fewer_drafts_of_the_same_ones_survive(
    folder: Path, data: dict[str, object], low: float, high: float, request: int
) -> None:
    """At every position a smaller scale accepts a leading part of what a larger one does."""
    low, high = sorted((low, high))
    few, many = (process({**data, "scale": s}, folder).path(request, 10, 60).run for s in (low, high))
    assert np.all(few <= many)
    assert np.all(many <= process(data, folder).path(request, 10, 60).run)


@pytest.mark.parametrize("data", PROCESSES)
def test_a_scale_of_one_changes_no_byte(folder: Path, data: dict[str, object]) -> None:
    """And at 0 nothing is accepted."""
    plain = process(data, folder).path(1, 10, 60).run
    np.testing.assert_array_equal(process({**data, "scale": 1.0}, folder).path(1, 10, 60).run, plain)
    assert not process({**data, "scale": 0.0}, folder).path(1, 10, 60).run.any()


@pytest.mark.parametrize("data", PROCESSES)
def test_expected_tokens_are_those_of_long_walks(folder: Path, data: dict[str, object]) -> None:
    """What a process expects of a round is what its paths give, scaled or not."""
    scaled = process({**data, "scale": 0.6}, folder)
    rounds = tokens = 0
    for request in range(150):
        run = scaled.path(request, 10, 400).run
        at = 0
        while at < 400:
            rounds, tokens, at = rounds + 1, tokens + 1 + min(int(run[at]), 3), at + 1 + min(int(run[at]), 3)
    assert tokens / rounds == pytest.approx(scaled.expected_tokens_per_round(3), rel=0.03)


def test_scaled_iid_is_iid_at_the_product(folder: Path) -> None:
    """0.8 under 0.5 is 0.4: (1 - a^(k+1)) / (1 - a) tokens per round."""
    scaled = process({"process": "iid", "alpha": 0.8, "scale": 0.5}, folder)
    assert scaled.expected_tokens_per_round(4) == pytest.approx(geometric_tokens(0.4, 4))
