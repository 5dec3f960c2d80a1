"""Laws of the engine (design): they hold for any requests, limits, costs and luck."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.acceptance.build import build_process
from sim.acceptance.config import IidAcceptance
from sim.ahead.run import run_ahead
from sim.engine.client import Client
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, build_replica, collect, simulate
from sim.policies.base import Policy
from sim.policies.config import Bounds
from sim.policies.disable_by_batch_size import DisableByBatchSize
from sim.policies.goodput import Goodput
from sim.policies.off import Off
from sim.policies.oracle import Oracle
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from sim.streams import uniforms
from tests.engine.modelled import linear_profile, requests
from tests.engine.test_second_implementation import System, setup_of, systems


def iid(alpha: float, max_depth: int = 8) -> Any:
    """An iid acceptance process."""
    config = IidAcceptance(process="iid", alpha=alpha)
    return build_process(config, seed=1, max_depth=max_depth, locate=lambda name: None)  # type: ignore[arg-type,return-value]


def poisson_s(rate: float, count: int, seed: int = 3) -> np.ndarray:
    """Arrival times of a Poisson process, in seconds."""
    return np.cumsum(-np.log(uniforms(seed, "test arrivals", 0, count)) / rate)


def same_times(a: RunRecords, b: RunRecords) -> None:
    for name, values in a.requests.items():
        if name not in ("rounds", "drafted", "accepted"):
            np.testing.assert_array_equal(values, b.requests[name], err_msg=name)


POLICIES = st.sampled_from(
    [
        Off,
        lambda: Static(3),
        lambda: DisableByBatchSize(3, 2),
        lambda: Goodput(3, 0.7, 0.15, 5),
        lambda: Oracle(3),
    ]
)


@settings(max_examples=60, deadline=None)
@given(systems(), POLICIES, st.sampled_from(["ideal", "vllm_v1"]))
def test_requests_memory_and_time_are_conserved(system: System, policy: Any, preset: str) -> None:
    """Every request ends once with all its tokens; blocks balance; the clock never goes back."""
    setup = setup_of(system)
    setup = replace(setup, engine=setup.engine.model_copy(update={"preset": preset}), max_depth=3)
    env = simpy.Environment(initial_time=0)
    replica = build_replica(env, setup, policy())
    client = Client(env, setup.requests, replica, setup.engine.max_model_len)

    def check(request: int) -> None:
        client.done(request)
        replica.scheduler.check_integrity()

    replica.done = check
    env.process(client.run())
    env.process(replica.run())
    env.run(until=client.finished)
    run = collect(setup, replica)

    assert run.requests["request"].tolist() == list(range(len(system.prompts)))
    assert run.requests["output_tokens"].tolist() == list(system.outputs)
    assert run.steps["emitted"].sum() == sum(system.outputs)
    assert replica.scheduler.pool.free == replica.scheduler.pool.capacity
    assert np.all(run.steps["end_ns"] > run.steps["start_ns"])
    assert np.all(run.steps["start_ns"][1:] >= run.steps["end_ns"][:-1])
    r = run.requests
    order = [r[c] for c in ("arrival_ns", "sent_ns", "scheduled_ns", "first_token_ns", "finish_ns")]
    assert all(np.all(later >= earlier) for earlier, later in pairwise(order))
    assert np.all(r["first_token_ns"] > r["scheduled_ns"])
    gaps, counts, _ = run.chunk_gaps
    assert np.all(gaps > 0)
    assert np.all(r["accepted"] <= r["drafted"])
    assert r["drafted"].sum() == run.steps["drafted"].sum()
    assert (gaps * counts).sum() == (r["finish_ns"] - r["first_token_ns"]).sum()


@settings(max_examples=30, deadline=None)
@given(systems())
def test_depth_zero_of_any_policy_is_plain_decoding(system: System) -> None:
    """With an engine that runs no drafter at depth 0, every policy stuck at 0 equals ``off``."""
    setup = setup_of(system)
    setup = replace(setup, engine=setup.engine.model_copy(update={"preset": "ideal"}), max_depth=3)
    plain = simulate(setup, Off())
    table = PerBatchSizeConfig(policy="per_batch_size", table=((1, 999, 0),))
    for policy in (Static(0), DisableByBatchSize(3, 1), table.build(Bounds(3))):
        run = simulate(setup, policy)
        same_times(plain, run)
        np.testing.assert_array_equal(plain.steps["end_ns"], run.steps["end_ns"])


def closed_loop(policy: Policy, alpha: float, batch: int = 8, **engine: Any) -> RunRecords:
    """``batch`` sequences kept running until 60 requests of 200 tokens are answered."""
    profile = linear_profile(6.0, 0.02, 4e-5, draft=(0.5, 0.001, 0.5), kind="eagle")
    n = 60
    return simulate(
        Setup(
            requests=requests(np.zeros(n), 64, 200, max_concurrency=batch),
            profile=profile,
            drafter=profile.drafters["d"],
            engine=EngineConfig(preset="ideal", kv_blocks=100_000, **engine),
            processes=(iid(alpha),),
            max_depth=8,
        ),
        policy,
    )


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_tokens_per_round_follow_the_geometric_sum(alpha: float, k: int) -> None:
    """E[tokens per round] = (1 - a^(k+1)) / (1 - a) for iid acceptance (Leviathan 2023, eq. 1)."""
    config = {"draft_past_end": True}
    run = closed_loop(Static(k), alpha, **config)
    rounds, accepted = run.requests["rounds"].sum(), run.requests["accepted"].sum()
    expected = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert 1 + accepted / rounds == pytest.approx(expected, abs=4 * k / np.sqrt(rounds) * (alpha > 0))


def test_flops_per_token_rise_with_depth() -> None:
    """Every rejected draft is wasted work, so deeper never costs fewer FLOPs per output token."""
    tokens = []
    for k in range(8):
        run = closed_loop(Static(k), 0.8)
        tokens.append(run.steps["tokens"].sum() / run.steps["emitted"].sum())
    assert all(b > a for a, b in pairwise(tokens))


def single_server(arrival_s: np.ndarray, output: np.ndarray, replay: Any = simulate) -> RunRecords:
    """One sequence at a time, every step 10 ms: a single-server queue."""
    profile = linear_profile(10.0, 0.0, draft=None)
    engine = EngineConfig(preset="ideal", kv_blocks=10_000, max_num_seqs=1)
    setup = Setup(requests(arrival_s, 4, output), profile, None, engine, (iid(0.0),), 0)
    records: RunRecords = replay(setup, Off())
    return records


def mean_wait_s(run: RunRecords) -> float:
    return float((run.requests["scheduled_ns"] - run.requests["arrival_ns"]).mean() / 1e9)


def test_constant_service_waits_like_m_d_1() -> None:
    """Mean wait of M/D/1 is rho S / (2 (1 - rho)); 30,000 requests at rho = 0.6."""
    run = single_server(poisson_s(60.0, 30_000), np.ones(30_000, dtype=np.int64))
    assert mean_wait_s(run) == pytest.approx(0.6 * 0.010 / (2 * 0.4), rel=0.06)


def test_geometric_service_waits_like_m_m_1() -> None:
    """A geometric number of steps is near-exponential service: wait = l E[S^2] / (2 (1 - rho))."""
    n, p = 30_000, 0.2
    steps = np.ceil(np.log(uniforms(5, "test service", 0, n)) / np.log(1 - p)).astype(np.int64)
    run = single_server(poisson_s(12.0, n), steps, run_ahead)
    second_moment = (2 - p) / p**2 * 1e-4
    assert mean_wait_s(run) == pytest.approx(12.0 * second_moment / (2 * 0.4), rel=0.12)


def test_sequence_seconds_in_steps_are_sequence_seconds_of_requests() -> None:
    """Little: what the batch holds over time is what the requests spend in it."""
    profile = linear_profile(10.0, 0.1, draft=None)
    engine = EngineConfig(preset="ideal", kv_blocks=100_000)
    setup = Setup(requests(poisson_s(3.0, 400), 30, 100), profile, None, engine, (iid(0.0),), 0)
    run = simulate(setup, Off())
    held = (run.steps["sequences"] * (run.steps["end_ns"] - run.steps["start_ns"])).sum()
    assert held == (run.requests["finish_ns"] - run.requests["scheduled_ns"]).sum()


def test_latency_follows_c1_over_one_minus_rate_c2() -> None:
    """Step cost c0 + c1 tokens: L = n (c0 + c1) / (1 - rate (n + 1) c1), over six seeds, run ahead.

    Kong et al. (arXiv 2605.15051): L = C1 / (1 - rate C2). C1 holds a sequence's own row beside
    the n steps' fixed part; a prompt of 2 tokens makes each request's share n + 1 tokens.
    """
    n, rate, c0, c1 = 200, 5.0, 0.010, 0.0005
    profile = linear_profile(1e3 * c0, 1e3 * c1, draft=None)
    engine = EngineConfig(preset="ideal", kv_blocks=1_000_000)
    latencies = []
    for seed in range(6):
        arrivals = requests(poisson_s(rate, 3000, seed), 2, n)
        run = run_ahead(Setup(arrivals, profile, None, engine, (iid(0.0),), 0), Off())
        spent = run.requests["finish_ns"] - run.requests["scheduled_ns"]
        latencies.append(spent[500:2500].mean() / 1e9)
    expected = n * (c0 + c1) / (1 - rate * (n + 1) * c1)
    assert np.mean(latencies) == pytest.approx(expected, rel=0.04)


@settings(max_examples=15, deadline=None)
@given(systems(), st.lists(st.integers(1, 40_000_000), min_size=1, max_size=20))
def test_events_that_do_nothing_change_nothing(system: System, delays: list[int]) -> None:
    """Other events in the same simulation, at any time, leave every result as it was."""
    setup = setup_of(system)
    env = simpy.Environment(initial_time=0)
    replica = build_replica(env, setup, Static(3))
    client = Client(env, setup.requests, replica, setup.engine.max_model_len)
    replica.done = client.done

    def noise() -> Any:
        for delay in delays:
            yield env.timeout(delay)

    env.process(noise())
    env.process(client.run())
    env.process(replica.run())
    env.process(noise())
    env.run(until=client.finished)
    alone = simulate(setup, Static(3))
    np.testing.assert_array_equal(collect(setup, replica).steps["end_ns"], alone.steps["end_ns"])


def test_an_arrival_at_the_instant_a_step_ends_joins_the_next_step() -> None:
    """Steps take 20.5 ms here: a request that arrives then waits for no other step."""
    profile = linear_profile(20.0, 0.0, draft=None)
    engine = EngineConfig(preset="ideal", kv_blocks=1000)
    setup = Setup(requests([0.0, 0.020], 4, 5), profile, None, engine, (iid(0.0),), 0)
    run = simulate(setup, Off())
    assert run.requests["scheduled_ns"].tolist() == [0, 20_000_000]


def test_closed_loop_keeps_the_asked_concurrency() -> None:
    """With max_concurrency c and enough requests, c sequences run until the queue is empty."""
    run = closed_loop(Off(), 0.0, batch=8)
    full = run.steps["start_ns"] < run.requests["sent_ns"].max()
    assert set(run.steps["sequences"][full].tolist()) == {8}


def test_luck_is_the_same_for_every_policy() -> None:
    """A path depends on (seed, request) alone: the first round of equal depth accepts equally."""
    shallow, deep = iid(0.7, 2).path(3, 10, 50).run, iid(0.7, 8).path(3, 10, 50).run
    np.testing.assert_array_equal(shallow, np.minimum(deep, 2))
