"""Errors keep what they say on their way out of a worker process."""

from __future__ import annotations

import pickle

import pytest

from calibrate.profile import ProfileError
from sim.errors import InputError, Problem, ScenarioError, TraceError


@pytest.mark.parametrize(
    "error",
    [
        InputError("a"),
        TraceError("t.csv", 3, "b"),
        ProfileError("p.json", "field", "c"),
        ScenarioError([Problem(2, 1, "k", "d", "s.yaml")]),
    ],
)
def test_an_error_survives_pickling(error: Exception) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)
