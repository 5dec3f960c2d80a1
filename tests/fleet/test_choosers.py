"""Routers that see: what they choose follows from what they are told, and from nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.batch import Sequence
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup
from sim.fleet.choosers import LeastKv, PrefixAware, Turn
from sim.fleet.config import PrefixRule
from sim.policies.off import Off
from tests.engine.modelled import linear_profile, requests
from tests.engine.test_laws import iid, poisson_s
from tests.fleet.live import live

LOADS = st.lists(st.integers(0, 4), min_size=2, max_size=7)


def request(number: int, group: int = -1, shared: int = 0, prompt: int = 100) -> Sequence:
    return Sequence(number, 0, prompt, 10, 0, 0, group, shared)


@given(LOADS, st.integers(1, 20))
def test_equals_take_turns(loads: list[int], turns: int) -> None:
    """Any number of choices among the same loads spreads over the best as evenly as can be."""
    turn = Turn()
    chosen = [turn.least(range(len(loads)), loads.__getitem__) for _ in range(turns)]
    best = [i for i, load in enumerate(loads) if load == min(loads)]
    counts = [chosen.count(each) for each in best]
    assert sum(counts) == turns
    assert max(counts) - min(counts) <= 1


@given(LOADS, st.data())
def test_least_kv_takes_the_emptiest_of_those_that_are_open(loads: list[int], data: st.DataObject) -> None:
    kv = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(loads), max_size=len(loads)))
    among = sorted(data.draw(st.sets(st.sampled_from(range(len(loads))), min_size=1)))
    chosen = LeastKv(kv.__getitem__, loads).choose(request(0), among)
    assert chosen in among
    assert (kv[chosen], loads[chosen]) == min((kv[i], loads[i]) for i in among)


@given(LOADS, st.integers(0, 3), st.sampled_from([1.0, 1.5, 3.0]))
def test_prefix_aware_follows_the_load_exactly_where_it_is_uneven(
    loads: list[int], gap: int, ratio: float
) -> None:
    """A prefix sent to the busiest replica is followed unless both thresholds are passed."""
    busiest = loads.index(max(loads))
    rule = PrefixRule(balance_abs_threshold=gap, balance_rel_threshold=ratio)
    router = PrefixAware(rule, lambda request, replica: 0, loads)
    router.sent[busiest][7] = 80
    chosen = router.choose(request(0, group=7, shared=80), range(len(loads)))
    if max(loads) - min(loads) > gap and max(loads) > ratio * min(loads):
        assert loads[chosen] == min(loads)
    else:
        assert chosen == busiest


def test_a_prefix_that_is_too_small_a_share_of_the_prompt_is_not_followed() -> None:
    rule, loads = PrefixRule(cache_threshold=0.5), [0, 0, 0]
    router = PrefixAware(rule, lambda request, replica: 0, loads)
    first = router.choose(request(0, group=1, shared=60), [0, 1, 2])
    assert router.choose(request(1, group=1, shared=60, prompt=119), [0, 1, 2]) == first
    assert router.choose(request(2, group=1, shared=60, prompt=121), [0, 1, 2]) != first


def test_a_prefix_is_forgotten_with_its_replica() -> None:
    router = PrefixAware(PrefixRule(), lambda request, replica: 0, [0, 0])
    first = router.choose(request(0, group=1, shared=90), [0, 1])
    router.forget(first)
    assert router.sent[first] == {}
    assert router.size[first] == 0


def test_hashed_prompts_are_followed_by_their_leading_blocks() -> None:
    router = PrefixAware(PrefixRule(), lambda request, replica: 0, [0, 0, 0])
    one = request(0)
    one.hashes, one.hash_block = (5, 6, 7), 30
    first = router.choose(one, [0, 1, 2])
    other = request(1)
    other.hashes, other.hash_block = (5, 6, 9), 30
    assert router.choose(other, [0, 1, 2]) == first


def shared_prompts(router: str, **rules: Any) -> int:
    """Prompt tokens that three replicas compute for twelve groups with long common prefixes."""
    arriving = requests(poisson_s(8.0, 150, 2), 512, 4)
    groups = np.random.Generator(np.random.Philox(4)).integers(0, 12, 150)
    arriving = type(arriving)(
        **{**vars(arriving), "prefix_group": groups, "prefix_tokens": np.full(150, 480, dtype=np.int64)}
    )
    engine = EngineConfig(preset="ideal", kv_blocks=260, prefix_caching=True)
    setup = Setup(arriving, linear_profile(5.0, 0.01, draft=None), None, engine, (iid(0.0),), 0)
    return int(live(setup, Off, 3, router=router, **rules).steps["prefill_tokens"].sum())


def test_following_prefixes_computes_fewer_prompt_tokens() -> None:
    """Twelve prefixes fit three caches apart and not one cache together: whoever mixes them computes more."""
    mixed = shared_prompts("round_robin")
    assert shared_prompts("prefix_aware") < 0.5 * mixed
    assert shared_prompts("prefix_aware", prefix={"sees": "cached"}) < 0.5 * mixed


def test_late_reports_send_crowds_to_the_same_replica() -> None:
    """The longer the router waits for reports, the less evenly a burst is spread, though turns help."""
    setup = Setup(
        requests(poisson_s(60.0, 300, 5), 200, 40),
        linear_profile(5.0, 0.05, draft=None),
        None,
        EngineConfig(preset="ideal", kv_blocks=2000),
        (iid(0.0),),
        0,
    )
    waits = []
    for period in ("0ms", "2s"):
        run = live(setup, Off, 4, router="least_kv", report_period=period)
        waits.append(float((run.requests["finish_ns"] - run.requests["arrival_ns"]).mean()))
    assert waits[0] < waits[1]
