"""What is recommended: the simplest of even policies, and nothing where off is as good."""

from __future__ import annotations

import pytest

from sim.errors import InputError
from sim.export.recommend import gain, picks
from sim.policies.config import PolicyConfig
from sim.results.compare import Cell, Comparison
from tests.export.wishes import policy
from tests.results import build

OFF, ONE, THREE = policy("off"), policy("static", k=1), policy("static", k=3)
TABLE, COST, BOUND = policy("per_batch_size"), policy("goodput"), policy("oracle")


def comparison(error: float, **tpot: tuple[float, ...]) -> tuple[Cell, Comparison]:
    """Policies with a TPOT per seed, ``o`` off, ``s1``, ``s3``, ``t`` table, ``g`` goodput, ``b`` oracle."""
    names = {"o": OFF, "s1": ONE, "s3": THREE, "t": TABLE, "g": COST, "b": BOUND}
    results = tuple(build.policy(names[key].title, values, bound=key == "b") for key, values in tpot.items())
    cell = Cell("8/s", results)
    return cell, Comparison((cell,), results[0].label, "tpot_mean_ms", error)


ALL: tuple[PolicyConfig, ...] = (OFF, ONE, THREE, TABLE, COST, BOUND)


def test_the_best_policy_is_recommended_where_nothing_is_even_with_it() -> None:
    cell, found = comparison(
        0.01, o=(20, 20.1), s1=(15, 15.1), s3=(12, 12.1), t=(11, 11.1), g=(8, 8.1), b=(5, 5.1)
    )
    chosen = picks(cell, ALL, found)
    assert chosen.recommended == COST
    assert chosen.best_static == THREE
    assert chosen.off == OFF
    assert chosen.worth
    assert "goodput" in chosen.advice


def test_of_even_policies_the_simplest_is_recommended() -> None:
    cell, found = comparison(0.1, o=(20, 20.1), s1=(8.3, 8.4), s3=(8.2, 8.3), t=(8.1, 8.2), g=(8, 8.1))
    assert picks(cell, ALL, found).recommended == THREE


def test_where_the_gain_is_inside_the_error_nobody_should_bother() -> None:
    cell, found = comparison(0.1, o=(8.2, 8.3), s3=(9, 9.1), g=(8, 8.1))
    chosen = picks(cell, ALL, found)
    assert chosen.recommended == OFF
    assert not chosen.worth
    assert chosen.advice.startswith("don't bother: the best that drafts is goodput")
    assert "inside the error" in chosen.advice


def test_a_bound_is_never_recommended_and_cannot_be_asked_for() -> None:
    cell, found = comparison(0.01, o=(20, 20.1), g=(19, 19.1), b=(5, 5.1))
    assert picks(cell, ALL, found).recommended == COST
    with pytest.raises(InputError, match="sees the future"):
        picks(cell, ALL, found, "oracle")


def test_another_policy_can_be_asked_for_by_its_label() -> None:
    cell, found = comparison(0.01, o=(20, 20.1), s1=(15, 15.1), g=(8, 8.1))
    assert picks(cell, ALL, found, "static(k=1)").recommended == ONE
    with pytest.raises(InputError, match="did you mean 'goodput'"):
        picks(cell, ALL, found, "godput")


def test_where_nothing_drafts_no_stability_is_claimed() -> None:
    for given in ({"o": (20, 20)}, {"b": (5, 5)}):
        cell, found = comparison(0.01, **given)
        assert picks(cell, ALL, found).advice == "no policy that drafts was simulated"
    cell = Cell("8/s", (build.policy("off", (9, 9)), build.policy("goodput", (9, 9), unstable=True)))
    assert "is stable" in picks(cell, ALL, Comparison((cell,), "off")).advice


def test_a_single_policy_has_nothing_to_gain_against() -> None:
    cell, found = comparison(0.01, s3=(20, 20))
    assert gain(cell, found, THREE.title, None) == "the only policy, no gain to measure"


def test_gains_carry_their_interval() -> None:
    """Differences of -10 and -12 ms from 20 ms: a mean of -11 and a t interval over two seeds."""
    cell, found = comparison(0.01, o=(20, 20), g=(10, 8))
    assert gain(cell, found, "goodput", OFF).startswith("TPOT mean -55.0 ± ")
    assert gain(cell, found, "off", OFF) == "what gains are measured against"
