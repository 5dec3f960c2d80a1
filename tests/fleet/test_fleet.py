"""Laws of a fleet: they hold for any requests, costs, replicas and router."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.errors import InputError
from sim.fleet.config import RouterName
from sim.fleet.fleet import Member, simulate_fleet
from sim.fleet.routers import ROUTERS, LeastRequests, PowerOfTwo, RoundRobin
from sim.policies.off import Off
from sim.policies.static import Static
from sim.results.metrics import measure
from sim.results.run_records import RunRecords
from sim.streams import uniforms
from tests.engine.modelled import linear_profile, requests
from tests.engine.test_laws import POLICIES, iid, poisson_s
from tests.engine.test_second_implementation import System, setup_of, systems

NAMES = st.sampled_from(get_args(RouterName))


def fleet(setup: Setup, build: Any, replicas: int, router: RouterName) -> RunRecords:
    return simulate_fleet([Member(setup, build()) for _ in range(replicas)], router)


def assert_same(a: RunRecords, b: RunRecords) -> None:
    for one, other in ((a.requests, b.requests), (a.steps, b.steps)):
        assert list(one) == list(other)
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name], err_msg=name)
    for gaps, others in zip(a.chunk_gaps, b.chunk_gaps, strict=True):
        np.testing.assert_array_equal(gaps, others)
    scalars = ("unfinished", "classes", "last_arrival_ns", "kv_blocks_total", "max_num_seqs", "replicas")
    assert [getattr(a, name) for name in scalars] == [getattr(b, name) for name in scalars]


@settings(max_examples=20, deadline=None)
@given(systems(), POLICIES, NAMES)
def test_one_replica_behind_any_router_is_the_plain_engine(
    system: System, policy: Any, router: RouterName
) -> None:
    setup = replace(setup_of(system), max_depth=3)
    assert_same(simulate_fleet([Member(setup, policy())], router), simulate(setup, policy()))


@settings(max_examples=20, deadline=None)
@given(systems(), POLICIES, NAMES, st.integers(2, 5))
def test_every_request_ends_once_on_one_replica(
    system: System, policy: Any, router: RouterName, replicas: int
) -> None:
    """Requests and tokens are conserved, each replica runs one step at a time, two runs are equal."""
    setup = replace(setup_of(system), max_depth=3)
    run = fleet(setup, policy, replicas, router)
    assert run.requests["request"].tolist() == list(range(len(system.prompts)))
    assert run.unfinished == 0
    assert set(run.requests["replica"].tolist()) <= set(range(replicas))
    for number in range(replicas):
        mine = {name: values[run.steps["replica"] == number] for name, values in run.steps.items()}
        served = run.requests["replica"] == number
        assert mine["emitted"].sum() == run.requests["output_tokens"][served].sum()
        assert np.all(mine["start_ns"][1:] >= mine["end_ns"][:-1])
    assert_same(run, fleet(setup, policy, replicas, router))


@settings(max_examples=15, deadline=None)
@given(systems(), st.integers(2, 6))
def test_round_robin_splits_evenly(system: System, replicas: int) -> None:
    run = fleet(replace(setup_of(system), max_depth=3), Off, replicas, "round_robin")
    counts = np.bincount(run.requests["replica"], minlength=replicas)
    assert counts.max() - counts.min() <= 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 20))
def test_least_requests_never_takes_a_busier_one(in_flight: list[int], turns: int) -> None:
    router = LeastRequests()
    chosen = [router.choose(i, in_flight) for i in range(turns + 1)]
    assert all(in_flight[each] == min(in_flight) for each in chosen)
    equal = [i for i, load in enumerate(in_flight) if load == min(in_flight)]
    assert len(set(chosen)) == min(len(equal), turns + 1)  # equals take turns


@given(st.integers(1, 9), st.integers(0, 50))
def test_power_of_two_draws_two_different_replicas_and_takes_the_less_busy(replicas: int, seed: int) -> None:
    router = PowerOfTwo(replicas, 60, seed)
    busy = [int(7 * u) for u in uniforms(seed, "test load", 0, replicas)]
    for request, (one, other) in enumerate(zip(router.first, router.second, strict=True)):
        assert (one != other) == (replicas > 1)
        assert busy[router.choose(request, busy)] == min(busy[one], busy[other])


def test_power_of_two_draws_every_pair_alike() -> None:
    """12,000 draws of 12 ordered pairs: each 1,000 +- 5 standard deviations."""
    router = PowerOfTwo(4, 12_000, 7)
    counts = np.zeros((4, 4))
    np.add.at(counts, (router.first, router.second), 1)
    off_diagonal = counts[~np.eye(4, dtype=bool)]
    assert np.all(np.diag(counts) == 0)
    assert np.all(np.abs(off_diagonal - 1000) < 5 * np.sqrt(12_000 * (1 / 12) * (11 / 12)))


def test_every_name_has_a_router() -> None:
    assert set(ROUTERS) == set(get_args(RouterName))
    assert isinstance(ROUTERS["round_robin"](3, 10, 0), RoundRobin)


# -- what a router is for --------------------------------------------------------------------------


def served(router: RouterName, seed: int, replicas: int = 4) -> float:
    """Mean wait in seconds; single-server replicas, exponential-like service, 80 % busy."""
    count = 1500
    steps = np.ceil(-3 * np.log(uniforms(seed, "test service", 0, count))).astype(np.int64)
    engine = EngineConfig(preset="ideal", kv_blocks=10_000, max_num_seqs=1)
    rate = 0.8 * replicas / (3.5 * 0.010)
    arriving = requests(poisson_s(rate, count, seed), 4, steps)
    profile = linear_profile(10.0, 0.0, draft=None)
    run = fleet(Setup(arriving, profile, None, engine, (iid(0.0),), 0, seed=seed), Off, replicas, router)
    return float((run.requests["scheduled_ns"] - run.requests["arrival_ns"]).mean() / 1e9)


def test_knowing_the_load_of_more_replicas_waits_less() -> None:
    """Round robin waits longer than the better of two, and that longer than the best of all."""
    waits = {name: np.mean([served(name, seed) for seed in range(2)]) for name in get_args(RouterName)}
    assert waits["least_requests"] < 0.9 * waits["power_of_two"] < 0.9 * waits["round_robin"]


def test_two_replicas_at_twice_the_rate_are_each_as_busy_as_one() -> None:
    """Utilisation is a share of the fleet's time, so doubling both leaves it where it was."""
    profile = linear_profile(10.0, 0.0, draft=None)
    engine = EngineConfig(preset="ideal", kv_blocks=10_000, max_num_seqs=1)
    busy = []
    for replicas in (1, 2):
        arriving = requests(poisson_s(6.0 * replicas, 1000 * replicas), 4, 10)
        setup = Setup(arriving, profile, None, engine, (iid(0.0),), 0)
        busy.append(measure(fleet(setup, Off, replicas, "least_requests"), "none")["busy_share"])
    assert busy[0] == pytest.approx(0.6, rel=0.1)
    assert busy[1] == pytest.approx(busy[0], rel=0.1)


def test_replicas_may_differ() -> None:
    """A replica of twice the speed behind least requests serves more; each has its own policy."""
    fast, slow = linear_profile(5.0, 0.0), linear_profile(10.0, 0.0)
    engine = EngineConfig(preset="ideal", kv_blocks=10_000, max_num_seqs=4)
    arriving = requests(poisson_s(20.0, 400), 4, 20)
    setups = [Setup(arriving, p, p.drafters["d"], engine, (iid(0.5),), 3) for p in (fast, slow)]
    run = simulate_fleet([Member(setups[0], Static(3)), Member(setups[1], Off())], "least_requests")
    counts = np.bincount(run.requests["replica"])
    assert counts[0] > 1.3 * counts[1]
    assert run.requests["drafted"][run.requests["replica"] == 1].sum() == 0


def test_a_client_that_leaves_is_let_go_by_its_replica() -> None:
    """Requests whose clients leave after one second free their place on the replica that has them."""
    arriving = requests(np.arange(12) * 0.001, 4, 1000)
    arriving = replace(arriving, abort_ns=np.full(12, 1_000_000_000, dtype=np.int64))
    engine = EngineConfig(preset="ideal", kv_blocks=10_000)
    setup = Setup(arriving, linear_profile(10.0, 0.0, draft=None), None, engine, (iid(0.0),), 0)
    run = fleet(setup, Off, 3, "round_robin")
    assert run.unfinished == 12
    assert run.steps["end_ns"].max() < 1_100_000_000


def test_a_fleet_serves_one_list_of_requests() -> None:
    profile = linear_profile(10.0, 0.0, draft=None)
    setups = [
        Setup(requests(poisson_s(5.0, 20), 4, 5), profile, None, EngineConfig(kv_blocks=999), (iid(0.0),), 0)
        for _ in range(2)
    ]
    with pytest.raises(InputError, match="the same requests"):
        simulate_fleet([Member(setup, Off()) for setup in setups])
    with pytest.raises(InputError, match="at least one replica"):
        simulate_fleet([])
