"""``leadline policies`` says what each policy is; ``leadline policies NAME`` what it does and knows."""

from __future__ import annotations

import pytest

from sim.errors import InputError
from sim.policies.explain import explain, summaries
from sim.policies.registry import POLICIES

PLAIN = ("off", "static", "oracle", "tree")


def test_every_policy_has_one_line() -> None:
    assert list(summaries())[:-1] == list(POLICIES)
    assert all(line.endswith(".") and len(line) <= 110 for line in summaries().values())


@pytest.mark.parametrize("name", POLICIES)
def test_an_explanation_names_the_policy_its_parameters_and_what_it_may_know(name: str) -> None:
    text = explain(name)
    assert text.startswith(f"`{name}`")
    parameters = text.split("Parameters:\n")[1]
    assert all(f"  {key} (" in parameters for key in POLICIES[name].model_fields if key != "policy")
    if name not in PLAIN:
        assert "granularity" in text.lower()
        assert "inputs:" in text.lower() or "input:" in text.lower()


def test_an_unknown_name_gets_a_near_one() -> None:
    with pytest.raises(InputError, match="did you mean 'dspark'"):
        explain("dpsark")
