"""Requests on another machine are the same requests at another pace, or the first of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.validate.pace import faster, filled, is_open, limited
from sim.scenario.model import ScenarioWorkload
from sim.workload.build import build_requests
from sim.workload.requests import Requests

LENGTHS = {
    "input": {"type": "uniform", "min": 5, "max": 50},
    "output": {"type": "uniform", "min": 2, "max": 9},
}
PHASES = [
    {"duration": "20s", "request_rate": "1/s"},
    {"duration": "10s", "request_rate": "8/s", "ramp_to": "2/s"},
]
OPEN: dict[str, dict[str, Any]] = {
    "poisson": {"request_rate": "4/s"},
    "normalised": {"process": "poisson", "request_rate": "4/s", "normalise": True},
    "gamma": {"request_rate": "4/s", "cv": 2.0},
    "constant": {"request_rate": "4/s"},
    "phases": {"phases": PHASES, "burstiness": 0.5},
    "repeated": {"process": "phases", "phases": PHASES, "repeat": True, "rate_scale": 2.0},
    "meant": {"process": "phases", "phases": PHASES, "repeat": True, "request_rate": "3/s"},
    "profile": {"from": "azure-2023-code"},
}
COUNT = 60


def workload(arrival: dict[str, Any], **more: Any) -> ScenarioWorkload:
    return ScenarioWorkload.model_validate({"arrival": arrival, "lengths": LENGTHS, **more})


def built(of: ScenarioWorkload) -> Requests:
    from sim.scenario.catalogue import locate

    return build_requests(of, 3, lambda name: locate("workload", name, Path()))


@pytest.mark.parametrize("name", OPEN)
@settings(deadline=None, max_examples=20)
@given(factor=st.floats(0.01, 100))
def test_a_faster_machine_sees_the_same_requests_sooner(name: str, factor: float) -> None:
    before = workload({"process": name, **OPEN[name]}, num_requests=COUNT)
    slow, fast = built(before), built(faster(before, factor))
    np.testing.assert_allclose(fast.arrival_ns, slow.arrival_ns / factor, rtol=1e-5, atol=1e3)
    np.testing.assert_array_equal(fast.prompt_tokens, slow.prompt_tokens)
    np.testing.assert_array_equal(fast.output_tokens, slow.output_tokens)


def test_what_ends_by_the_clock_ends_sooner_too() -> None:
    before = workload({"process": "constant", "request_rate": "4/s"}, duration="10s")
    assert len(built(before)) == len(built(faster(before, 8.0))) == 40


@pytest.mark.parametrize("name", ["poisson", "gamma", "constant"])
def test_of_a_steady_stream_the_first_requests_are_left(name: str) -> None:
    before = workload({"process": name, **OPEN[name]}, num_requests=COUNT)
    np.testing.assert_array_equal(built(limited(before, 20, COUNT)).arrival_ns, built(before).arrival_ns[:20])


def test_phases_run_through_their_course_with_fewer_requests() -> None:
    """A constant stream of 20 requests in 20 s and then 50 in 10 s: a tenth of it has both parts."""
    before = workload({"process": "phases", "phases": PHASES, "burstiness": 1e6})
    assert before.end_ns is not None
    few = limited(before, 7, 70)
    requests = built(few)
    assert few.end_ns == before.end_ns // 10
    assert len(requests) == pytest.approx(7, abs=1)
    assert np.count_nonzero(requests.arrival_ns < 2e9) == pytest.approx(2, abs=1)


def test_a_full_batch_has_all_requests_from_the_start() -> None:
    for name, arrival in OPEN.items():
        full = filled(workload({"process": name, **arrival}, num_requests=COUNT), 5, 30)
        requests = built(full)
        assert not is_open(full)
        assert (len(requests), requests.max_concurrency) == (30, 5)
        assert not requests.arrival_ns.any()


@pytest.fixture
def trace(tmp_path: Path) -> dict[str, Any]:
    rows = [
        {"timestamp": 500 * i, "input_length": 10 + i, "output_length": 3, "hash_ids": []} for i in range(40)
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return {"process": "trace", "format": "mooncake", "path": str(path)}


@pytest.mark.parametrize("more", [{}, {"time_scale": 0.5}, {"request_rate": "3/s"}])
def test_a_trace_is_cut_and_hastened_like_any_other(trace: dict[str, Any], more: dict[str, Any]) -> None:
    before = ScenarioWorkload.model_validate({"arrival": {**trace, **more}})
    slow, fast = built(limited(before, 12, 40)), built(faster(limited(before, 12, 40), 4.0))
    assert len(slow) == 12
    np.testing.assert_allclose(fast.arrival_ns, slow.arrival_ns / 4, atol=1)
    full = built(filled(before, 5, 30))
    assert (len(full), full.max_concurrency, full.arrival_ns.max()) == (30, 5, 0)
