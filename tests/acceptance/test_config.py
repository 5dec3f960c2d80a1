"""The ``acceptance:`` section refuses what would be misread."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.acceptance.config import (
    AcceptanceConfig,
    BetaAcceptance,
    MeanLengthAcceptance,
    PerPositionAcceptance,
)
from tests.acceptance.helpers import build, configure


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"process": "iid"}, "alpha"),
        ({"process": "iid", "alpha": 1.2}, "less than or equal to 1"),
        ({"process": "iid", "acceptance_rate": 0.4}, "not a per-token rate"),
        ({"process": "beta", "acceptance_rate": 0.4}, "mean_length"),
        ({"process": "geometric", "alpha": 0.5}, "does not match any of the expected tags"),
        ({"process": "per_position"}, "exactly one"),
        ({"process": "per_position", "conditional": [0.5], "unconditional": [0.5]}, "exactly one"),
        ({"process": "per_position", "conditional": []}, "at least 1"),
        ({"process": "per_position", "unconditional": [0.5, 0.6]}, "never rise, but 0.6 follows 0.5"),
        ({"process": "beta", "a": 1.0, "mean": 0.5}, "either a and b"),
        ({"process": "beta", "a": 0.0, "b": 1.0}, "greater than 0"),
        ({"process": "latent", "mean": 1.0, "spread": 1.0}, "less than 1"),
        ({"process": "latent", "mean": 0.5, "spread": 1.0, "correlation": 1.0}, "less than 1"),
        ({"process": "mean_length", "depth": 3}, "exactly one"),
        ({"process": "mean_length", "depth": 3, "acceptance_length": 4.5}, "beyond depth"),
        ({"process": "mean_length", "acceptance_length": 2.5}, "depth"),
        ({"process": "iid", "alpha": 0.5, "confidence": {"auc": 0.4}}, "greater than or equal to 0.5"),
        ({"process": "iid", "alpha": 0.5, "decay": {"from_tokens": 0}}, "half_life_tokens"),
        ({"process": "iid", "alpha": 0.5, "depth_decay": 1.1}, "less than or equal to 1"),
        ({"process": "per_position", "conditional": [0.5], "depth_decay": 0.9}, "depth_decay"),
        ({"process": "markov", "good": 0.5, "bad": 0.6, "leave_good": 0.1, "leave_bad": 0.1}, "swap the two"),
        (
            {"process": "markov", "good": 0.5, "bad": 0.1, "leave_good": 0.0, "leave_bad": 0.1},
            "greater than 0",
        ),
        (
            {"process": "iid", "alpha": 0.5, "confidence": {"ece": 0.1, "temperature": 2}},
            "either temperature or ece",
        ),
        ({"process": "iid", "alpha": 0.5, "confidence": {"direction": "bold"}}, "add ece"),
    ],
)
def test_mistakes_are_refused_with_their_fix(config: dict[str, Any], message: str) -> None:
    """Each message says what is wrong or what would be right."""
    with pytest.raises(ValidationError, match=message):
        configure(**config)


@given(st.integers(1, 12), st.floats(0.0, 1.0))
def test_accepted_over_drafted_means_the_length_it_was_counted_from(depth: int, rate: float) -> None:
    """At a fixed depth, accepted / drafted = (tau - 1) / depth: never alpha, unless depth is 1."""
    config = MeanLengthAcceptance(process="mean_length", depth=depth, acceptance_rate=rate)
    tokens = build(depth, **config.model_dump()).expected_tokens_per_round(depth)
    assert tokens == pytest.approx(1 + depth * rate, abs=1e-9)
    assert config.alpha >= rate - 1e-9


@given(st.floats(0.05, 0.95), st.floats(0.1, 100))
def test_beta_takes_either_pair(mean: float, concentration: float) -> None:
    """mean and concentration name the same law as a and b."""
    a, b = BetaAcceptance(process="beta", mean=mean, concentration=concentration).shape
    assert a / (a + b) == pytest.approx(mean)
    assert a + b == pytest.approx(concentration)
    assert BetaAcceptance(process="beta", a=a, b=b).shape == (a, b)


def test_counters_become_conditional_rates() -> None:
    """c_i = p_i / p_(i-1); beyond the list, the last rate or none, as said."""
    config = PerPositionAcceptance(process="per_position", unconditional=(0.8, 0.4, 0.1))
    assert config.rates(5) == pytest.approx([0.8, 0.5, 0.25, 0.25, 0.25])
    ended = PerPositionAcceptance(process="per_position", unconditional=(0.8, 0.0, 0.0), beyond="zero")
    assert ended.rates(4) == pytest.approx([0.8, 0.0, 0.0, 0.0])


def test_assumptions_are_stated() -> None:
    """A description that takes something for granted says so."""
    config: Any = configure(process="mean_length", depth=4, acceptance_length=2.7)
    assert "2.7 tokens per round at depth 4" in config.assumptions[0]
    plain: Any = configure(process="iid", alpha=0.5)
    assert plain.assumptions == ()


def test_the_schema_is_json() -> None:
    """Editors can complete every process."""
    schema = json.dumps(TypeAdapter(AcceptanceConfig).json_schema())
    for process in ("iid", "per_position", "beta", "latent", "markov", "trace", "mean_length"):
        assert f'"{process}"' in schema
