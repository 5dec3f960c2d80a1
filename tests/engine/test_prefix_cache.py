"""Prefix caching: what is found again, what has to be computed anew, and what is forgotten first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.batch import Sequence
from sim.engine.client import Client
from sim.engine.config import EngineConfig
from sim.engine.prefix_cache import PrefixCache
from sim.engine.simulate import Setup, build_replica, simulate
from sim.errors import InputError
from sim.policies.base import Policy
from sim.policies.off import Off
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from sim.workload.hashes import PromptHashes
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests
from tests.engine.test_second_implementation import System, policy_of, setup_of, systems


def alike(
    arrivals: list[float], prompts: list[int], shared: int, kind: str = "draft_model", **engine: Any
) -> Setup:
    """Requests of one prefix group, five output tokens each, blocks of 16."""
    plain = requests(arrivals, prompts, 5)
    n = len(plain)
    given = {"kv_blocks": 1000, "block_size": 16, "prefix_caching": True, "capture_sizes": ()} | engine
    profile = linear_profile(10.0, 0.1, kind=kind)
    return Setup(
        requests=replace(plain, prefix_group=np.zeros(n, np.int64), prefix_tokens=np.full(n, shared)),
        profile=profile,
        drafter=profile.drafters["d"],
        engine=EngineConfig.model_validate(given),
        processes=(RecordedAcceptance([[0] * 5] * n),),
        max_depth=2,
    )


def prefilled(run: RunRecords) -> list[int]:
    """Tokens of the steps that computed more than decodes."""
    tokens = run.steps["tokens"] - run.steps["drafted"]
    return [int(t) for t, n in zip(tokens, run.steps["sequences"], strict=True) if t > n]


@pytest.mark.parametrize(
    ("prompts", "shared", "second"),
    [
        ([100, 100], 64, 36),  # four blocks of 16 are shared
        ([100, 100], 70, 36),  # the fifth is not, for its content differs
        ([100, 64], 64, 16),  # all is cached: one token must be computed, so its whole block is
        ([100, 65], 64, 1),
        ([20, 100], 64, 84),  # only a full block is cached
    ],
)
def test_a_prompt_computes_what_no_earlier_one_did(prompts: list[int], shared: int, second: int) -> None:
    """Without drafter: the second prompt's tokens less its cached blocks (one token is a decode row)."""
    run = simulate(alike([0.0, 1.0], prompts, shared), Off())
    assert prefilled(run) == [prompts[0]] + ([second] if second > 1 else [])
    assert run.steps["tokens"].sum() == prompts[0] + second + 2 * 4


@pytest.mark.parametrize(("kind", "second"), [("draft_model", 36), ("ngram", 36), ("eagle", 52), ("mtp", 52)])
def test_a_drafter_that_reads_hidden_states_computes_the_last_hit_anew(kind: str, second: int) -> None:
    """vLLM's ``use_eagle_block_drop``: one block of 16 more."""
    run = simulate(alike([0.0, 1.0], [100, 100], 64, kind), Static(2))
    assert prefilled(run) == [100, second]


def test_requests_of_one_step_share_already() -> None:
    """Blocks are cached as soon as they are scheduled."""
    run = simulate(alike([0.0, 0.0], [100, 100], 64), Off())
    assert run.steps["tokens"][0] == 136


def test_held_blocks_count_once() -> None:
    """100 tokens are 7 blocks; the second prompt has 3 of its own."""
    run = simulate(alike([0.0, 0.0], [100, 100], 64, null_block=False), Off())
    assert run.steps["kv_blocks"][0] == 10


def test_what_was_preempted_finds_its_own_blocks() -> None:
    """Under preemption fewer tokens are computed with caching than without."""
    setup = alike([0.0, 0.0, 0.0], [64, 64, 64], 0, kv_blocks=14)
    long = replace(setup.requests, output_tokens=np.full(3, 60))
    setup = replace(setup, requests=long, processes=(RecordedAcceptance([[0] * 60] * 3),))
    plain = replace(setup, engine=setup.engine.model_copy(update={"prefix_caching": False}))
    cached, anew = simulate(setup, Off()), simulate(plain, Off())
    assert all(run.requests["preemptions"].sum() > 0 for run in (cached, anew))
    assert cached.steps["tokens"].sum() < anew.steps["tokens"].sum()


def holding(cache: PrefixCache, request: int, blocks: int) -> Sequence:
    """A sequence that holds ``blocks`` full and cached blocks."""
    sequence = Sequence(request, 0, blocks * cache.block_size, 1, 0, 0)
    cache.adopt(sequence, [])
    cache.take(blocks)
    cache._name(sequence, blocks)
    return sequence


def test_the_block_unused_for_longest_is_forgotten_first_and_tails_before_heads() -> None:
    """Of two released sequences the earlier loses its blocks from the last on, then the other does."""
    cache = PrefixCache(6, 4)
    both = [holding(cache, request, 3) for request in (0, 1)]
    cache.release(0, 3)
    cache.release(1, 3)
    for left in ([2, 3], [1, 3], [0, 3], [0, 2], [0, 1], [0, 0]):
        cache.take(1)
        # One token more, so that the whole sequence may hit.
        assert [len(cache.look_up(replace(sequence, produced=1))) for sequence in both] == left


def test_blank_blocks_are_taken_before_cached_ones() -> None:
    cache = PrefixCache(5, 4)
    sequence = holding(cache, 0, 3)
    cache.release(0, 3)
    cache.take(2)
    assert len(cache.look_up(replace(sequence, produced=1))) == 3
    cache.take(1)
    assert len(cache.look_up(replace(sequence, produced=1))) == 2


@settings(max_examples=60, deadline=None)
@given(systems(), st.integers(0, 10))
def test_blocks_balance_in_every_step(system: System, aborts: int) -> None:
    """Names, references, idle and free blocks agree after every step, aborts included; all ends free."""
    setup = setup_of(system)
    n = len(setup.requests)
    gone = np.where(np.arange(n) < aborts, setup.requests.arrival_ns + 60_000_000 * np.arange(n), -1)
    setup = replace(setup, requests=replace(setup.requests, abort_ns=gone))
    env = simpy.Environment(initial_time=0)
    replica = build_replica(env, setup, policy_of(system.config))
    client = Client(env, setup.requests, replica, setup.engine.max_model_len)
    replica.done = client.done
    step = replica.step

    def checked(now: int) -> int:
        latency = step(now)
        replica.scheduler.check_integrity()
        return latency

    replica.step = checked  # type: ignore[method-assign]
    for process in (client.run(), client.leave(), replica.run()):
        env.process(process)
    env.run(until=client.finished)
    pool = replica.scheduler.pool
    assert (pool.free, pool.shared) == (pool.capacity, 0)
    answered = replica.journal.requests.to_arrays()["request"].tolist()
    assert set(range(aborts, n)) <= set(answered) <= set(range(n))
    assert len(answered) == len(set(answered))


@settings(max_examples=25, deadline=None)
@given(systems())
def test_nothing_shared_and_nothing_preempted_is_as_without_caching(system: System) -> None:
    """With memory for all and no common prefix, every step is the same."""
    setup = setup_of(replace(system, shared=0))
    runs = []
    for caching in (False, True):
        engine = setup.engine.model_copy(update={"prefix_caching": caching, "kv_blocks": 5000})
        engine = engine.model_copy(update={"max_num_batched_tokens": max(engine.max_num_batched_tokens, 16)})
        runs.append(simulate(replace(setup, engine=engine), policy_of(system.config)))
    for name, values in runs[0].steps.items():
        np.testing.assert_array_equal(values, runs[1].steps[name], err_msg=name)


def test_a_padded_decode_that_never_fits_is_refused() -> None:
    """vLLM would let it wait for ever (scheduler.py: prefers not to schedule it unpadded)."""
    with pytest.raises(InputError, match="padded decode"):
        simulate(alike([0.0], [30], 0, max_num_batched_tokens=3), Static(2))


def test_a_padded_admission_carries_empty_drafts_and_emits_one_token() -> None:
    """One token left to compute beside a decode: 1 + k rows, none of them accepted, whatever the luck."""
    setup = alike([0.0, 0.021, 0.3], [64, 1, 65], 64)
    lucky = replace(setup, processes=(RecordedAcceptance([[2] * 5] * 3),))
    run = simulate(lucky, Static(2))
    row = int(np.flatnonzero(run.steps["start_ns"] >= 300_000_000)[0])
    assert (run.steps["tokens"][row], run.steps["drafted"][row], run.steps["emitted"][row]) == (3, 2, 1)


@pytest.mark.parametrize(
    ("prompt", "unit", "kind", "second"),
    [
        (200, 64, "draft_model", 200 - 128),  # 170 tokens are shared: two units of 64
        (200, 64, "mtp", 200 - 64),  # of which the last is computed anew
        (200, 96, "draft_model", 200 - 96),
        (200, 96, "mtp", 200),
        (200, 176, "draft_model", 200),  # more than is shared
        (129, 64, "draft_model", 1),
        (128, 64, "draft_model", 64),  # one token must be computed, so the second unit is
    ],
)
def test_a_hit_ends_at_a_multiple_of_the_unit(prompt: int, unit: int, kind: str, second: int) -> None:
    """And a drafter that reads hidden states costs a whole unit."""
    run = simulate(alike([0.0, 1.0], [200, prompt], 170, kind, prefix_unit=unit), Static(2))
    assert prefilled(run) == [200] + ([second] if second > 1 else [])


@pytest.mark.parametrize(
    ("ids", "second"),
    [
        ([1, 2, 3, 4], 4),  # the same prompt: its last block, of which one token must be computed
        ([1, 2, 9, 9], 40),
        ([9, 2, 3, 4], 80),  # what stands before differs, so nothing is shared
    ],
)
def test_prompts_hit_by_their_hashed_blocks(ids: list[int], second: int) -> None:
    """Hashes over 20 tokens, KV blocks of four: a prompt of 80 computes what no equal start had."""
    setup = alike([0.0, 1.0], [80, 80], 0, block_size=4)
    hashes = PromptHashes.of([[1, 2, 3, 4], ids], 20)
    plain = replace(setup.requests, prefix_group=None, prefix_tokens=None, hashes=hashes)
    assert prefilled(simulate(replace(setup, requests=plain), Off())) == [80, second]


def test_a_recurrent_state_needs_a_unit() -> None:
    """Engines cache states of hybrid models at some positions only, which the profile does not know."""
    setup = alike([0.0, 1.0], [100, 100], 100)
    target = setup.profile.target
    work = target.work.model_copy(update={"state_bytes_per_sequence": 1e6})
    hybrid = setup.profile.model_copy(update={"target": target.model_copy(update={"work": work})})
    policy: Policy = Off()
    with pytest.raises(InputError, match="recurrent state"):
        simulate(replace(setup, profile=hybrid), policy)
    engine = setup.engine.model_copy(update={"prefix_unit": 48})
    assert prefilled(simulate(replace(setup, profile=hybrid, engine=engine), policy)) == [100, 4]
