"""What the YAML may say, and what it is told when it says something else."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sim.workload.config import RequestClass, WorkloadConfig
from tests.workload.support import SHORT

POISSON = {"process": "poisson", "request_rate": "4/s"}
GRID = {"type": "quantiles", "p": [0, 1], "tokens": [1, 9]}
TRACE = {"process": "trace", "format": "azure", "path": "t.csv"}


def phases(*items: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """A workload of phases alone."""
    return {"arrival": {"process": "phases", "phases": list(items), **rest}}


def lengths(side: Any) -> dict[str, Any]:
    """A workload whose input lengths are ``side``."""
    return {"lengths": {"input": side, "output": 5}}


def classes(*shares: float, **rest: Any) -> dict[str, Any]:
    """A workload of classes a, b, ... with these shares."""
    return {"classes": [{"name": "abc"[i], "share": share, **rest} for i, share in enumerate(shares)]}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"arrival": POISSON | {"process": "gamma"}}, "gamma needs burstiness or cv"),
    ({"arrival": POISSON | {"process": "gamma", "cv": 2, "burstiness": 1}}, "give one of them"),
    ({"arrival": POISSON | {"burstiness": 1}}, "Extra inputs"),
    ({"num_requests": None}, "give num_requests"),
    (
        {"num_requests": None, "duration": "1s", "arrival": POISSON | {"normalise": True}},
        "normalise places the last",
    ),
    (
        {"arrival": {"process": "closed", "max_concurrency": 4}, "duration": "9s"},
        "a closed loop ends by count",
    ),
    (phases({"duration": "9s", "ramp_to": "4/s"}), "the first phase needs request_rate"),
    (phases({"duration": "9s"}), "a phase needs request_rate or ramp_to"),
    (phases({"duration": "9s", "request_rate": "0/s"}), "no phase has a rate above"),
    (phases({"duration": "9s", "request_rate": "4/s", "ramp_to": "0/s"}), "may never come; add duration"),
    (
        phases({"duration": "9s", "request_rate": "0/s", "ramp_to": "4/s", "ramp": "exponential"}),
        "use ramp: linear",
    ),
    (
        phases({"duration": "9s", "request_rate": "4/s"}, rate_scale=2, request_rate="4/s"),
        "both set the mean rate",
    ),
    (phases({"duration": "9s", "request_rate": "4/s"}, repeat=True) | {"num_requests": None}, "never end"),
    ({"arrival": TRACE | {"time_scale": 2, "request_rate": "4/s"}, "lengths": None}, "both set the rate"),
    ({"arrival": TRACE}, "a trace brings its own lengths"),
    ({"lengths": None}, "lengths is missing; for example"),
    ({"lengths": {"input": 5}}, "needs both input and output, or joint alone"),
    ({"lengths": {"input": 5, "output": 5, "joint": "x"}}, "needs both input and output, or joint alone"),
    (lengths("many"), "'many' is not a length; write tokens"),
    (lengths({"type": "uniform", "min": 9, "max": 3}), "max 3 is below min 9"),
    (lengths({"type": "lognormal", "mean": 9}), "mean and sigma, or p50 and p90"),
    (lengths({"type": "lognormal", "p50": 9, "p90": 9}), "p90 9 must be above p50 9"),
    (lengths({"type": "lognormal", "median": 9, "sigma": 1, "min": 9, "max": 3}), "max 3 is below min 9"),
    (lengths({"type": "quantiles"}), "either from"),
    (lengths(GRID | {"from": "x"}), "either from"),
    (lengths(GRID | {"column": "input"}), "an inline grid has none"),
    (lengths(GRID | {"p": [0, 0.5]}), "begin with 0 and end with 1"),
    (lengths(GRID | {"p": [0, 0.5, 0.5, 1], "tokens": [1, 2, 3, 4]}), "p must rise"),
    (lengths(GRID | {"tokens": [9, 1]}), "tokens must not fall"),
    (lengths(GRID | {"tokens": [0, 1]}), "a length is at least 1"),
    (lengths(GRID | {"tokens": [1, 2, 3]}), "give one length per p"),
    (classes(0.7, 0.2), "add up to 0.9; make them add up to 1"),
    (classes(0.7, 0.3) | {"lengths": None}, "classes a, b have none"),
    ({"classes": [{"name": "a", "share": 0.5}, {"name": "a", "share": 0.5}]}, "'a' is named twice"),
    ({"classes": [{"name": "a", "share": "most%"}]}, "write for example 70%"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message for _, message in BAD])
def test_a_mistake_is_told_with_its_remedy(change: dict[str, Any], message: str) -> None:
    """Every contradiction or gap is refused by a message that says what would be right."""
    good = {"arrival": POISSON, "lengths": SHORT, "num_requests": 10}
    WorkloadConfig.model_validate(good)
    with pytest.raises(ValidationError) as caught:
        WorkloadConfig.model_validate(good | change)
    assert any(message in problem["msg"] for problem in caught.value.errors())


def test_a_share_may_be_a_percentage() -> None:
    """70% and 0.7 are the same share."""
    assert RequestClass.model_validate({"name": "a", "share": "70%"}).share == pytest.approx(0.7)


def test_a_scenario_may_say_more_about_its_classes() -> None:
    """A subclass adds keys to a class of requests and the workload takes it."""

    class Richer(RequestClass):
        acceptance: float

    class RicherWorkload(WorkloadConfig):
        classes: tuple[Richer, ...] = ()

    config = RicherWorkload.model_validate(
        {
            "arrival": POISSON,
            "lengths": SHORT,
            "num_requests": 3,
            "classes": [{"name": "chat", "share": "100%", "acceptance": 0.8}],
        }
    )
    assert config.classes[0].acceptance == 0.8
    assert config.at_rate(9.0).classes == config.classes


def test_the_vocabulary_has_a_json_schema() -> None:
    """Editors can complete every process and length type, and a bare number is a length."""
    schema = WorkloadConfig.model_json_schema()
    keys = {"arrival", "lengths", "prefix", "num_requests", "duration", "classes", "timeout"}
    assert set(schema["properties"]) == keys
    assert schema["$defs"]["Lengths"]["properties"]["input"]["anyOf"][0]["type"] == "integer"
    assert "from" in schema["$defs"]["ProfileArrival"]["required"]
