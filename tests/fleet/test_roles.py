"""Prompts here, answers there: what must hold of a request whose KV travels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.profile import Profile
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.fleet.config import FleetConfig
from sim.fleet.link import Link
from sim.fleet.live import Post, simulate_live
from sim.policies.off import Off
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from sim.sweep.posts import prefilling
from tests.engine.modelled import linear_profile, requests
from tests.engine.test_laws import iid, poisson_s
from tests.fleet.live import grouped

APART: list[dict[str, Any]] = [{"role": "prefill"}, {"role": "decode"}]


def queue(seed: int, count: int = 16, rate: float = 6.0, seqs: int = 64, **engine: Any) -> Setup:
    """Random prompts and answers at a rate that keeps one replica busy."""
    draw = np.random.Generator(np.random.Philox(seed))
    prompts, outputs = draw.integers(1, 400, count), draw.integers(1, 30, count)
    config = EngineConfig(preset="ideal", kv_blocks=20_000, max_num_seqs=seqs, **engine)
    arriving = requests(poisson_s(rate, count, seed), prompts, outputs)
    return Setup(arriving, linear_profile(5.0, 0.05, draft=None), None, config, (iid(0.0),), 0, seed=seed)


def apart(setup: Setup, **rules: Any) -> RunRecords:
    return grouped([setup, setup], [Off, Off], APART, **rules)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([64, 256, 8192]))
def test_first_tokens_are_those_of_an_engine_whose_answers_end_there(seed: int, budget: int) -> None:
    """A prefill replica is a plain engine that is asked for one token of each request."""
    setup = queue(seed, max_num_batched_tokens=budget)
    one = replace(setup, requests=replace(setup.requests, output_tokens=np.ones(16, dtype=np.int64)))
    run, alone = apart(setup, kv_bandwidth="1GB/s", kv_latency="2ms"), simulate(one, Off())
    np.testing.assert_array_equal(run.requests["first_token_ns"], alone.requests["finish_ns"])
    np.testing.assert_array_equal(run.requests["scheduled_ns"], alone.requests["scheduled_ns"])


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000))
def test_one_at_a_time_no_first_token_comes_later_than_together(seed: int) -> None:
    """Where a replica serves one request at a time, prompts that wait for no answer are never later.

    With batches a single request may be later: one that finds the replica idle starts at once and keeps
    those that come just after from sharing its step.
    """
    setup = queue(seed, rate=3.0, seqs=1)
    run, together = apart(setup), simulate(setup, Off())
    assert np.all(run.requests["first_token_ns"] <= together.requests["first_token_ns"])


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000))
def test_a_faster_link_hurts_no_one_that_decodes_alone(seed: int) -> None:
    setup = queue(seed, count=1)
    ends = [
        apart(setup, **link).requests["finish_ns"][0]
        for link in ({}, {"kv_bandwidth": "100MB/s"}, {"kv_bandwidth": "100MB/s", "kv_latency": "3ms"})
    ]
    prompt, output = int(setup.requests.prompt_tokens[0]), int(setup.requests.output_tokens[0])
    sending = round(prompt * 1e5 / 1e8 * 1e9) if output > 1 else 0
    latency = 3_000_000 if output > 1 else 0
    assert ends == [ends[0], ends[0] + sending, ends[0] + sending + latency]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([40, 60, 100]))
def test_kv_memory_balances_on_both_sides(seed: int, blocks: int) -> None:
    """Tight memory, a slow link: parked KV is freed, no replica holds more than it has, all is answered."""
    setup = queue(seed, rate=20.0)
    setup = replace(setup, engine=setup.engine.model_copy(update={"kv_blocks": blocks}))
    run = apart(setup, kv_bandwidth="50MB/s")
    assert run.requests["request"].tolist() == list(range(16))
    assert run.steps["kv_blocks"].max() <= blocks
    decoded = run.requests["output_tokens"] > 1
    assert np.all(run.requests["replica"][decoded] == 1)
    assert np.all(run.requests["prefill_replica"][decoded] == 0)
    assert np.all(run.requests["replica"][~decoded] == 0)
    at_decode = run.steps["replica"] == 1
    again = run.requests["preemptions"].sum()
    if not again:
        assert run.steps["prefill_tokens"][at_decode].sum() == 0  # nothing is computed twice
    assert run.steps["prefill_tokens"][~at_decode].sum() >= setup.requests.prompt_tokens.sum()


def test_transfers_of_one_sender_queue_and_those_of_two_do_not() -> None:
    link = Link(1e6, 500, lambda source, target, tokens: 1000.0 * tokens)
    assert link.send(0, 2, 1, 0) == 1_000_500  # 1000 bytes at 1 MB/s, and the latency
    assert link.send(0, 3, 2, 0) == 3_000_500  # waits for the first
    assert link.send(1, 2, 1, 0) == 1_000_500
    assert Link(None, 7, link.kv_bytes).send(0, 1, 9, 5) == 12


# -- the drafter's KV ------------------------------------------------------------------------------


def drafted(prefill_drafts: bool, **rules: Any) -> RunRecords:
    """Twenty requests of 300 tokens apart; the decode side drafts three ahead."""
    profile = _with_draft_kv(linear_profile(5.0, 0.01, draft=(1.0, 0.01, 1.0), kind="eagle"))
    engine = EngineConfig(preset="ideal", kv_blocks=20_000)
    arriving = requests(np.arange(20) * 2.0, 300, 120)
    setup = Setup(arriving, profile, profile.drafters["d"], engine, (iid(0.8),), 3, seed=1)
    config = FleetConfig.model_validate({"replicas": APART, **rules})
    first, build = prefilling(setup) if prefill_drafts else (setup, Off)
    posts = [Post(first, build, 0), Post(setup, lambda: Static(3), 1)]
    return simulate_live(posts, config)


def _with_draft_kv(profile: Profile) -> Profile:
    work = profile.target.work.model_copy(update={"kv_bytes_per_token": 1e4})
    drafter = profile.drafters["d"].model_copy(update={"work": work})
    return profile.model_copy(update={"drafters": {"d": drafter}})


def test_a_drafter_at_the_prefill_side_costs_time_there_and_bytes_on_the_link() -> None:
    """TTFT rises by the first pass over the prompt, the transfer by the drafter's share of KV."""
    rules = {"kv_bandwidth": "1GB/s"}
    without, with_ = drafted(False, **rules), drafted(True, **rules)
    later = with_.requests["first_token_ns"] - without.requests["first_token_ns"]
    assert np.all(later == 1_000_000 + 300 * 10_000)
    gap = [
        run.steps["start_ns"][run.steps["replica"] == 1][0] - run.requests["first_token_ns"][0]
        for run in (without, with_)
    ]
    assert gap == [300 * 1e5, 300 * 1.1e5]  # ns: bytes at 1 byte/ns


def test_drafter_kv_that_is_missing_is_rebuilt_or_costs_acceptance() -> None:
    """Rebuilding takes the drafter's pass over each prompt once; losing keeps 1 - loss of each draft."""
    whole, rebuilt = drafted(True), drafted(False)
    lost = drafted(False, missing_draft_kv="lose", acceptance_loss=0.25)
    rows = [run.steps["replica"] == 1 for run in (whole, rebuilt)]
    passes = [run.steps["draft_ns"][at].sum() for run, at in zip((whole, rebuilt), rows, strict=True)]
    assert passes[1] - passes[0] == 20 * (1_000_000 + 300 * 10_000)
    np.testing.assert_array_equal(whole.requests["accepted"], rebuilt.requests["accepted"])
    length = [1 + r.requests["accepted"].sum() / r.requests["rounds"].sum() for r in (whole, lost)]
    expected = [sum(a**i for i in range(4)) for a in (0.8, 0.6)]  # 0.8 * 0.75
    assert length == pytest.approx(expected, rel=0.06)
