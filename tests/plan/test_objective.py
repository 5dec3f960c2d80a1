"""What a plan must meet, and the traffic it is made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.plan.memory import held
from sim.plan.objective import objective, parse_limit, parse_share
from sim.plan.traffic import one_at_a_time, peak_of, steady
from sim.policies.config import Bounds
from sim.results.metrics import measure
from sim.results.window import measured_requests, measured_window
from sim.scenario.load import find_scenario, load_scenario
from sim.sweep.prepare import make_run, prepare
from sim.workload.build import build_requests
from sim.workload.config import WorkloadConfig
from tests.plan.support import write_queue


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft_p99=500ms", "TTFT p99 <= 500 ms"),
        ("tpot_p95 <= 40ms", "TPOT p95 <= 40 ms"),
        ("e2el_mean=2s", "E2EL mean <= 2000 ms"),
        ("e2el_p99.9=90s", "E2EL p99.9 <= 90000 ms"),
    ],
)
def test_limits_are_read_with_their_units(text: str, says: str) -> None:
    assert parse_limit(text).text == says


@pytest.mark.parametrize("text", ["ttft=1s", "itl_p99=1s", "ttft_p100=1s", "ttft_p99=", "ttft_p99>1s", ""])
def test_what_is_no_limit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="ttft_p99=500ms"):
        parse_limit(text)


@pytest.mark.parametrize("text", ["ttft_p99=500", "ttft_p99=0ms", "ttft_p99=5 parsecs"])
def test_a_limit_needs_a_duration(text: str) -> None:
    with pytest.raises(InputError, match="ttft_p99"):
        parse_limit(text)


def test_shares_are_percentages_or_fractions() -> None:
    assert parse_share("95%") == parse_share("0.95") == pytest.approx(0.95)
    for text in ("100%", "0", "1.5", "most", "nan"):
        with pytest.raises(InputError, match="95%"):
            parse_share(text)


def test_parts_agree_with_the_metrics_of_a_run(tmp_path: Path) -> None:
    """Every ``used`` is the reported metric over its limit, and the share that misses over what may."""
    scenario = load_scenario(write_queue(tmp_path, rate=80, output=3, seqs=4))
    limits = ["ttft_mean=20ms", "ttft_p99=20ms", "tpot_p90=5ms", "e2el_p50=1s"]
    asked = objective(scenario, limits, "90%")
    records, _ = make_run(scenario, scenario.policies[0], 0)
    rows = measured_requests(records, measured_window(records))
    metrics = measure(records, "mser5", scenario.slos)
    expected = [
        metrics["ttft_mean_ms"] / 20,
        metrics["ttft_p99_ms"] / 20,
        metrics["tpot_p90_ms"] / 5,
        metrics["e2el_p50_ms"] / 1000,
        (1 - metrics["slo_share"]) / 0.1,
    ]
    assert asked.used(records, rows) == pytest.approx(expected)
    assert asked.parts[-1].says(expected[-1]).startswith(f"{100 * metrics['slo_share']:.3g} %")


def test_without_flags_the_scenarios_own_slo_counts(tmp_path: Path) -> None:
    scenario = load_scenario(write_queue(tmp_path))
    assert objective(scenario, [], None).text == "95 % of requests within the SLO"
    bare = scenario.model_copy(update={"slo": type(scenario.slo)()})
    assert objective(bare, ["tpot_p99=1s"], None).text == "TPOT p99 <= 1000 ms"
    with pytest.raises(InputError, match="nothing to plan for"):
        objective(bare, [], None)


# -- traffic ---------------------------------------------------------------------------------------

ARRIVALS: list[tuple[dict[str, Any], float | None]] = [
    ({"process": "poisson", "request_rate": "7/s", "normalise": True}, 7.0),
    ({"process": "gamma", "request_rate": "7/s", "cv": 2.0}, 7.0),
    ({"process": "constant", "request_rate": "7/s"}, 7.0),
    (
        {
            "process": "phases",
            "phases": [
                {"duration": "10s", "request_rate": "1/s", "ramp_to": "9/s"},
                {"duration": "10s", "ramp_to": "2/s"},
            ],
        },
        9.0,
    ),
    ({"process": "closed", "max_concurrency": 4}, None),
]


@pytest.mark.parametrize(("arrival", "peak"), ARRIVALS)
def test_any_arrivals_become_steady_at_the_rate_asked_for(
    tmp_path: Path, arrival: dict[str, Any], peak: float | None
) -> None:
    scenario = load_scenario(write_queue(tmp_path), {"workload.arrival": arrival})
    if peak is None:
        with pytest.raises(InputError, match="--peak"):
            peak_of(scenario)
    else:
        assert peak_of(scenario) == peak
    planned = steady(scenario, 50.0, 4000).workload
    again = WorkloadConfig.model_validate(
        planned.model_dump() | {"arrival": planned.arrival, "lengths": planned.lengths}
    )
    requests = build_requests(again, 1, scenario.locate)
    assert len(requests) == 4000
    halves = requests.arrival_ns[[1999, 3999]] / 1e9
    assert halves == pytest.approx([40, 80], rel=0.12)
    alone = build_requests(one_at_a_time(scenario, 9).workload, 1, scenario.locate)
    assert (len(alone), alone.max_concurrency, int(alone.arrival_ns.max())) == (9, 1, 0)


def test_a_trace_keeps_its_requests_and_gets_the_rate() -> None:
    scenario = load_scenario(find_scenario("situations/u03-threshold"))
    assert scenario.workload.arrival.process == "trace"
    requests = build_requests(steady(scenario, 10.0, 20).workload, 0, scenario.locate)
    own = build_requests(scenario.workload, 0, scenario.locate)
    assert requests.prompt_tokens.tolist() == own.prompt_tokens[:20].tolist()
    assert 19 / (requests.arrival_ns[-1] - requests.arrival_ns[0]) * 1e9 == pytest.approx(10.0)
    with pytest.raises(InputError, match="--peak"):
        peak_of(scenario)


# -- memory ----------------------------------------------------------------------------------------


def test_a_drafter_takes_weights_kv_and_lookahead_from_the_requests() -> None:
    """Blocks by hand: usable memory less weights, over the KV bytes of 16 tokens in both models."""
    scenario = load_scenario(find_scenario("azure-conversation"))
    static = scenario.policies[2]
    setup = prepare(scenario, static, 0)
    found = held(setup, static.build(Bounds(setup.max_depth)))
    target, device = setup.profile.target.work, setup.profile.device
    drafter = setup.drafter.work if setup.drafter else None
    assert drafter is not None
    usable = scenario.engine.gpu_memory_utilization * device.memory_bytes * device.count
    length = float(np.mean(setup.requests.prompt_tokens + setup.requests.output_tokens))
    for models, lookahead, memory in (
        ([target], 0, found.without),
        ([target, drafter], setup.max_depth, found.with_drafter),
    ):
        block = 16 * sum(work.kv_bytes_per_token for work in models)
        blocks = int((usable - sum(work.weight_bytes for work in models)) / block) - 1
        state = -int(-sum(work.state_bytes_per_sequence for work in models) // block)
        assert memory.blocks == blocks
        assert memory.requests == blocks // (int(np.ceil((np.ceil(length) + lookahead) / 16)) + state)
    assert found.with_drafter.requests < found.without.requests
    without = replace(setup, drafter=None, max_depth=0)
    assert held(without, scenario.policies[0].build(Bounds(0))).with_drafter == found.without
