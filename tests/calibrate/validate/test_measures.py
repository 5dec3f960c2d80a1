"""Metrics, step errors and the engine's loop, against what was put in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simpy

from calibrate.validate.measures import COMPARED, metrics_of, step_error
from calibrate.validate.overhead import Loop, Overhead, OwnRun, fit_overhead
from sim.engine.simulate import Setup, build_replica, simulate
from sim.policies.config import Bounds, PolicyConfig
from sim.results.run_records import RunRecords
from tests.calibrate.validate.test_agreement import CHOSEN, DEPTH, random_setup


@pytest.fixture(scope="module")
def run() -> tuple[Setup, RunRecords]:
    setup = random_setup(1, DEPTH)
    return setup, simulate(setup, CHOSEN[2].build(Bounds(DEPTH)))


def test_metrics_are_of_all_requests_and_steps(run: tuple[Setup, RunRecords]) -> None:
    setup, records = run
    found, r = metrics_of(records), records.requests
    assert tuple(found) == COMPARED
    took = (r["finish_ns"] - setup.requests.arrival_ns) / 1e6
    assert found["e2el_mean_ms"] == pytest.approx(took.mean())
    assert found["e2el_p95_ms"] == pytest.approx(np.percentile(took, 95))
    assert found["output_tokens_per_s"] == pytest.approx(
        r["output_tokens"].sum() / r["finish_ns"].max() * 1e9
    )
    assert found["acceptance_length"] == pytest.approx(1 + r["accepted"].sum() / r["rounds"].sum())


def test_a_closed_loop_counts_from_the_sending() -> None:
    setup = random_setup(2, DEPTH)
    records = simulate(setup, CHOSEN[1].build(Bounds(DEPTH)))
    took = records.requests["finish_ns"] - records.requests["sent_ns"]
    assert metrics_of(records)["e2el_mean_ms"] == pytest.approx(took.mean() / 1e6)


def test_steps_priced_by_their_own_tables_are_right(run: tuple[Setup, RunRecords]) -> None:
    setup, records = run
    cost = build_replica(simpy.Environment(), setup, CHOSEN[2].build(Bounds(DEPTH))).cost
    found = step_error(records, cost)
    assert all(abs(error) < 1e-6 for error in vars(found).values())


def test_dearer_passes_show_as_such(run: tuple[Setup, RunRecords]) -> None:
    setup, records = run
    cost = build_replica(simpy.Environment(), setup, CHOSEN[2].build(Bounds(DEPTH))).cost
    slower = _with(records, verify_ns=2 * records.steps["verify_ns"])
    found = step_error(slower, cost)
    assert found.verify == pytest.approx(-0.5, abs=1e-6)
    assert found.rest == pytest.approx(0, abs=1e-6)


LOOPS = {
    "off": Loop(5e5, 3e4, 0),
    "static(k=2)": Loop(6e5, 3e4, 2e5),
    "static(k=4)": Loop(9e5, 3e4, 4e5),
}


def test_what_the_engine_adds_is_found_in_its_runs() -> None:
    """Passes a tenth longer, the drafter's a fifth, and a loop that differs between policies."""
    runs = []
    for config in CHOSEN[:3]:
        setup, records = _burst(config)
        steps, host = records.steps, _loop_ns(LOOPS[config.title], records)
        slower = {"verify_ns": 1.1 * steps["verify_ns"], "draft_ns": 1.2 * steps["draft_ns"]}
        cost = build_replica(simpy.Environment(), setup, config.build(Bounds(setup.max_depth))).cost
        runs.append(OwnRun(config.title, _with(records, host_ns=host, **slower), cost))
    found = fit_overhead(runs)
    assert (found.verify, found.draft) == pytest.approx((1.1, 1.2), rel=1e-6)
    for run in runs:
        # A fixed depth does not tell steps from passes; their sum is what counts.
        np.testing.assert_allclose(
            _loop_ns(found.loops[run.policy], run.records), run.records.steps["host_ns"]
        )


def test_what_the_engine_adds_is_charged_to_every_step_and_pass() -> None:
    setup, before = _burst(CHOSEN[2])
    title = CHOSEN[2].title
    after = simulate(Overhead(1.1, 1.2, LOOPS).applied(setup, title), CHOSEN[2].build(Bounds(DEPTH)))
    more = _loop_ns(LOOPS[title], before) + 0.1 * before.steps["verify_ns"] + 0.2 * before.steps["draft_ns"]
    np.testing.assert_allclose(_took(after) - _took(before), more, atol=4)


def _loop_ns(loop: Loop, records: RunRecords) -> Any:
    steps = records.steps
    return loop.step_ns + loop.sequence_ns * steps["sequences"] + loop.draft_pass_ns * steps["draft_passes"]


def _burst(config: PolicyConfig) -> tuple[Setup, RunRecords]:
    """All requests at once, so that steps do not depend on time."""
    setup = random_setup(0, 0 if config.policy == "off" else DEPTH)
    return setup, simulate(setup, config.build(Bounds(setup.max_depth)))


def _took(records: RunRecords) -> Any:
    return records.steps["end_ns"] - records.steps["start_ns"]


def _with(records: RunRecords, **steps: Any) -> RunRecords:
    return RunRecords(**{**vars(records), "steps": {**records.steps, **steps}})
