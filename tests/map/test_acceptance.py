"""Acceptance is moved to a stated mean, whatever the process."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from sim.acceptance.config import AcceptanceConfig, IidAcceptance
from sim.errors import InputError
from sim.map.acceptance import mean_rate, with_mean
from sim.scenario.load import find_scenario, load_scenario
from sim.scenario.model import Scenario

PROCESSES: list[dict[str, Any]] = [
    {"process": "iid", "alpha": 0.7},
    {"process": "beta", "mean": 0.6, "concentration": 5.0},
    {"process": "beta", "a": 2.0, "b": 3.0},
    {"process": "latent", "mean": 0.7, "spread": 1.0, "correlation": 0.5},
    {"process": "markov", "good": 0.9, "bad": 0.4, "leave_good": 0.1, "leave_bad": 0.3},
    {"process": "per_position", "conditional": [0.7, 0.6, 0.5]},
    {"process": "mean_length", "depth": 3, "acceptance_length": 2.5},
]


def scenario(acceptance: dict[str, Any]) -> Scenario:
    found = load_scenario(find_scenario("azure-conversation"), {"sweep": {}})
    return found.model_copy(update={"acceptance": TypeAdapter(AcceptanceConfig).validate_python(acceptance)})


@pytest.mark.parametrize("mean", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("acceptance", PROCESSES, ids=lambda each: each["process"])
def test_the_mean_is_as_stated(acceptance: dict[str, Any], mean: float) -> None:
    moved = with_mean(scenario(acceptance), mean).acceptance
    assert moved is not None
    assert moved.process == acceptance["process"]
    assert mean_rate(moved) == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("mean", [0.0, 1.0])
@pytest.mark.parametrize("acceptance", PROCESSES, ids=lambda each: each["process"])
def test_at_the_ends_every_process_is_the_iid_one(acceptance: dict[str, Any], mean: float) -> None:
    assert with_mean(scenario(acceptance), mean).acceptance == IidAcceptance(process="iid", alpha=mean)


def test_its_own_mean_leaves_a_process_as_it_is() -> None:
    before = scenario(PROCESSES[3])
    assert with_mean(before, 0.7).acceptance == before.acceptance


def test_classes_keep_their_order_and_average_to_the_mean() -> None:
    before = load_scenario(find_scenario("two-classes"), {"sweep": {}})
    after = with_mean(before, 0.5)
    shares = [kind.share for kind in after.workload.classes]
    rates = [[mean_rate(config) for config in each.acceptances if config] for each in (before, after)]
    assert sum(share * rate for share, rate in zip(shares, rates[1], strict=True)) == pytest.approx(0.5)
    assert sorted(range(len(shares)), key=rates[0].__getitem__) == sorted(
        range(len(shares)), key=rates[1].__getitem__
    )


def test_a_recorded_trace_is_refused() -> None:
    with pytest.raises(InputError, match="recorded trace has no rate"):
        with_mean(load_scenario(find_scenario("recorded-acceptance"), {"sweep": {}}), 0.5)
