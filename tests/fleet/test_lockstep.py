"""Data-parallel ranks: they begin and end every step together, and the slowest says when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.off import Off
from sim.results.run_records import RunRecords
from tests.engine.modelled import linear_profile, requests
from tests.engine.test_laws import POLICIES, iid
from tests.engine.test_second_implementation import System, systems
from tests.fleet.live import live
from tests.fleet.test_fleet import assert_same
from tests.fleet.test_live import assert_accounted, plainly, small


@settings(max_examples=8, deadline=None)
@given(systems(), POLICIES)
def test_one_rank_in_lockstep_is_the_plain_engine(system: System, policy: Any) -> None:
    assert_same(plainly(live(small(system), policy, 1, lockstep=True)), simulate(small(system), policy()))


@settings(max_examples=10, deadline=None)
@given(systems(), POLICIES, st.integers(2, 4))
def test_ranks_step_together(system: System, policy: Any, ranks: int) -> None:
    """Rounds of different ranks are the same stretch of time or do not meet; every request ends once."""
    run = live(small(system), policy, ranks, lockstep=True, router="round_robin")
    assert_accounted(run, system)
    rounds = sorted(set(zip(run.steps["start_ns"].tolist(), run.steps["end_ns"].tolist(), strict=True)))
    starts, ends = np.array(rounds).T
    assert np.all(starts[1:] >= ends[:-1])


def two_ranks(outputs: list[int], **rules: Any) -> RunRecords:
    """Two requests at once, one on each rank; a step of n tokens takes 10 + n ms."""
    engine = EngineConfig(preset="ideal", kv_blocks=10_000, capture_sizes=rules.pop("capture_sizes", None))
    arriving = requests([0.0, 0.0], rules.pop("prompts", [4, 4]), outputs)
    profile = linear_profile(10.0, 1.0, draft=None)
    setup = Setup(arriving, profile, None, engine, (iid(0.0),), 0)
    return live(setup, Off, 2, router="round_robin", lockstep=True, **rules)


def test_a_round_lasts_as_long_as_its_longest_step() -> None:
    """A prompt of 100 tokens beside one of 4: both first tokens come after 110 ms."""
    run = two_ranks([1, 3], prompts=[100, 4])
    assert run.requests["first_token_ns"].tolist() == [110_000_000, 110_000_000]
    assert run.requests["finish_ns"].tolist() == [110_000_000, 132_000_000]


def test_a_slow_rank_slows_the_others() -> None:
    run = two_ranks([5, 5], events=[{"at": "0ms", "slow": 1, "factor": 3.0}])
    assert run.requests["finish_ns"].tolist() == [(14 + 4 * 11) * 3_000_000] * 2


def test_a_graph_that_one_rank_misses_is_missed_by_all_and_all_pad_to_the_largest() -> None:
    """S59: with graphs up to 8 tokens a prompt of 9 on one rank makes the other one's step eager."""
    missed = two_ranks([2, 2], prompts=[9, 3], capture_sizes=(4, 8))
    first = missed.steps["start_ns"] == 0
    assert missed.steps["graph"][first].tolist() == [0, 0]
    assert np.all(missed.steps["graph"][~first] == 1)
    padded = two_ranks([2, 2], prompts=[7, 3], capture_sizes=(4, 8))
    assert padded.steps["padded_tokens"][padded.steps["start_ns"] == 0].tolist() == [8, 8]


def test_a_rank_with_nothing_to_do_takes_part_in_every_round() -> None:
    """The request that comes second waits for the end of the round that runs, though its rank is idle."""
    engine = EngineConfig(preset="ideal", kv_blocks=10_000)
    arriving = requests([0.0, 0.012], [40, 4], [1, 1])
    setup = Setup(arriving, linear_profile(10.0, 1.0, draft=None), None, engine, (iid(0.0),), 0)
    run = live(setup, Off, 2, router="round_robin", lockstep=True)
    assert run.requests["scheduled_ns"].tolist() == [0, 50_000_000]
    assert replace(run, fleet=None).requests["replica"].tolist() == [0, 1]
