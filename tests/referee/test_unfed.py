"""With luck of its own instead of the recorded one, the simulator's answers lie around the real engine's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.acceptance.build import build_process
from sim.acceptance.config import PerPositionAcceptance
from sim.engine.simulate import simulate
from tests.referee.replay import Recording, drafter_of, load, policy_of, setup_of
from tests.referee.test_recorded import FILES, MINIMAL

SEEDS = 60


def drawable(recording: Recording) -> bool:
    """Whether one set of rates decides all acceptance (look-ups depend on the text) and all finish."""
    config = recording["config"]
    model = drafter_of(config) in ("draft_model", "eagle", "medusa")
    return model and config.get("spread") == 0 and not config.get("aborts")


RECORDINGS = {p.name: load(p) for p in FILES if p not in MINIMAL}
DRAWN = {name: recording for name, recording in RECORDINGS.items() if drawable(recording)}


def real_ms(recording: Recording) -> float:
    """Mean time from arrival to the last token."""
    pairs = zip(recording["config"]["requests"], recording["requests"], strict=True)
    return 1e3 * float(np.mean([answer[1] - asked[0] for asked, answer in pairs]))


def simulated_ms(recording: Recording, seed: int) -> float:
    rates = tuple(recording["config"]["rates"])
    config = PerPositionAcceptance(process="per_position", unconditional=rates)
    process = build_process(config, seed, len(rates), Path)
    run = simulate(replace(setup_of(recording), processes=(process,), seed=seed), policy_of(recording))
    return 1e-6 * float(np.mean(run.requests["finish_ns"] - run.requests["arrival_ns"]))


@pytest.fixture(scope="module")
def deviations() -> dict[str, float]:
    """How many standard deviations of one run the recorded mean lies from the simulated ones."""
    found = {}
    for name, recording in DRAWN.items():
        drawn = np.array([simulated_ms(recording, seed) for seed in range(SEEDS)])
        found[name] = (real_ms(recording) - drawn.mean()) / (drawn.std(ddof=1) * (1 + 1 / SEEDS) ** 0.5)
    return found


def test_there_are_recordings_to_draw_for() -> None:
    assert len(DRAWN) >= 8


def test_every_recorded_run_is_one_that_may_be_drawn(deviations: dict[str, float]) -> None:
    """Student's t with 59 degrees of freedom: beyond 3.5 once in a thousand runs."""
    assert all(abs(z) < 3.5 for z in deviations.values()), deviations


def test_recorded_runs_lie_on_both_sides_as_far_as_chance_has_it(deviations: dict[str, float]) -> None:
    """The mean of n standard scores has deviation 1/sqrt(n); their mean square is about 1."""
    z = np.array(list(deviations.values()))
    assert abs(z.mean()) < 3 / len(z) ** 0.5
    assert 0.2 < (z**2).mean() < 3
