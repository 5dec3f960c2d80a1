"""What a step does around the policy: one mechanism each, neutral where it is off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.profile import Term
from sim.cost.work import step_bytes, step_flops
from sim.policies.off import Off
from sim.policies.static import Static
from sim.results.records import STEP_COLUMNS
from tests.engine.modelled import linear_profile
from tests.engine.steps import ByTurn, Turns, adds_up, finish, hosted, run, same, took, windowed

NEUTRAL: dict[str, Any] = {
    "graphs": "full",
    "varying_depth_graphs": "kept",
    "capture_multiples": False,
    "overlap_host": False,
    "stale_decisions": 0,
    "pad_depths": False,
    "drafter_limit_stops_all": False,
    "checkpoint_states": False,
    "drafter_max_model_len": 131072,
    "draft_kv_tokens": 100_000,
    "idle_rank_share": 0.0,
    "stream_interval": 1,
}


@pytest.mark.parametrize("preset", ["ideal", "vllm_v1"])
@pytest.mark.parametrize("policy", [Off, lambda: Static(3), Turns])
def test_neutral_values_change_no_byte(preset: str, policy: Any) -> None:
    """Every mechanism at its neutral value leaves records as they are, columns included."""
    plain = run(policy(), preset=preset)
    assert tuple(plain.steps) == STEP_COLUMNS
    assert same(plain, run(policy(), preset=preset, **NEUTRAL))


# -- decisions, depths, drafters -------------------------------------------------------------------


@pytest.mark.parametrize("late", [1, 2, 5])
def test_decisions_take_effect_so_many_steps_late(late: int) -> None:
    """The depth chosen at decision i is verified 1 + late steps on; before that, the first one is."""
    engine: dict[str, Any] = {"draft_past_end": True, "max_num_seqs": 1}
    arrivals = np.zeros(6)
    once = run(ByTurn(), arrivals=arrivals, **engine).steps["depth"]
    delayed = run(ByTurn(), arrivals=arrivals, stale_decisions=late, **engine).steps["next_depth"]
    assert once[1:4].tolist() == [1, 2, 3]
    turns = [1] * late + [i % 4 for i in range(1, len(delayed))]
    # With one sequence at a time every step ends in one decision, but for a request's last.
    first = int(np.argmax(delayed == 0)) or len(delayed)
    assert delayed[: min(first, 8)].tolist() == turns[: min(first, 8)]


def test_late_decisions_leave_a_fixed_depth_alone() -> None:
    """A depth that never changes is the same from any step's batch."""
    for policy in (Off, lambda: Static(3)):
        assert same(run(policy()), run(policy(), stale_decisions=3))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.sampled_from(["ideal", "vllm_v1"]))
def test_pads_cost_tokens_and_are_never_accepted(luck: int, preset: str) -> None:
    """With the same depths, padding accepts the same drafts in the same steps, and no step is faster."""
    ragged, padded = (
        run(Turns(), preset=preset, luck=luck),
        run(Turns(), preset=preset, luck=luck, pad_depths=True),
    )
    for name in ("drafted", "accepted", "emitted", "sequences"):
        np.testing.assert_array_equal(ragged.steps[name], padded.steps[name])
    assert np.all(padded.steps["tokens"] >= ragged.steps["tokens"])
    assert padded.steps["tokens"].sum() > ragged.steps["tokens"].sum()
    assert np.all(finish(padded) >= finish(ragged))
    uniform = padded.steps["prefill_tokens"] == 0
    widths = padded.steps["tokens"][uniform] / padded.steps["sequences"][uniform]
    np.testing.assert_array_equal(widths, padded.steps["depth"][uniform] + 1)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from(["ideal", "vllm_v1", "sglang"]),
    st.sampled_from(["mixed", "first"]),
    st.booleans(),
)
def test_padded_steps_are_uniform_whoever_waited(luck: int, preset: str, prefill: str, ahead: bool) -> None:
    """Decodes that waited while prompts had a step, and ghosts, are as deep as those beside them."""
    engine: dict[str, Any] = {"preset": preset, "prefill": prefill, "async_scheduling": ahead}
    engine |= {"pad_new_decodes": False, "chunked_prefill": True}
    steps = run(Turns(), luck=luck, arrivals=0.05 * np.arange(6), pad_depths=True, **engine).steps
    decodes = (steps["prefill_tokens"] == 0) & (steps["sequences"] > 0)
    assert np.all(steps["tokens"][decodes] % steps["sequences"][decodes] == 0)


def test_padding_one_depth_for_all_changes_nothing() -> None:
    """A uniform batch needs no pads."""
    assert same(run(Static(3), preset="vllm_v1"), run(Static(3), preset="vllm_v1", pad_depths=True))


@pytest.mark.parametrize(("dummies", "all_stop"), [(True, False), (False, True), (False, False)])
def test_a_sequence_beyond_the_drafters_context_stops_drafting(dummies: bool, all_stop: bool) -> None:
    """For itself, for everybody, or with dummies that everybody carries and nobody accepts."""
    limit = 100
    records = run(
        Static(3),
        drafter_max_model_len=limit,
        dummy_drafts=dummies,
        drafter_limit_stops_all=all_stop,
        draft_past_end=True,
    )
    free = run(Static(3), draft_past_end=True)
    assert records.requests["accepted"].sum() < free.requests["accepted"].sum()
    lengths = records.requests["prompt_tokens"] + records.requests["output_tokens"]
    short = lengths + 4 < limit
    assert short.any()
    assert not short.all()
    if not dummies and not all_stop:
        for name in ("drafted", "accepted", "rounds"):
            np.testing.assert_array_equal(records.requests[name][short], free.requests[name][short])
    if dummies:
        unfed = records.steps["draft_passes"] == 0
        assert np.all(records.steps["accepted"][1:][unfed[:-1]] == 0)
        assert records.steps["drafted"][1:][unfed[:-1]].sum() > 0


def test_a_drafter_that_reads_few_tokens_of_each_sequence_costs_what_those_cost() -> None:
    """MagicDec's sparse KV: every pass reads min(context, limit), the target all of it."""
    profile = linear_profile(per_context_ms=0.001)
    drafter = profile.drafters["d"]
    per = {"context_tokens": 1000.0}
    first = tuple(t.model_copy(update={"per_ns": t.per_ns | per}) for t in drafter.first)
    further = tuple(t.model_copy(update={"per_ns": per}) for t in drafter.next)
    drafter = drafter.model_copy(update={"first": first, "next": further})
    profile = profile.model_copy(update={"drafters": {"d": drafter}})
    whole, sparse = (run(Static(3), profile, "vllm_v1", draft_kv_tokens=n) for n in (0, 7))
    np.testing.assert_array_equal(whole.steps["verify_ns"], sparse.steps["verify_ns"])
    alone = (sparse.steps["prefill_tokens"] == 0) & (sparse.steps["draft_passes"] == 3)
    n = sparse.steps["sequences"][alone]
    np.testing.assert_array_equal(sparse.steps["draft_context_tokens"][alone], 3 * 7 * n)
    beyond = whole.steps["draft_context_tokens"] - sparse.steps["draft_context_tokens"]
    np.testing.assert_allclose(whole.steps["draft_ns"] - sparse.steps["draft_ns"], 1000 * beyond, atol=1)


# -- windows, states, chunks -----------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["ideal", "vllm_v1"])
def test_a_window_wider_than_any_context_reads_what_full_attention_reads(preset: str) -> None:
    """And a narrow one bounds every sequence's reads; parts add up in both."""
    wide, narrow = windowed(10_000), windowed(16)
    records = run(Static(3), wide, preset)
    for name in ("context_tokens", "query_context_tokens", "prefill_pairs"):
        np.testing.assert_array_equal(records.steps[name], records.steps[f"window_{name}"])
    adds_up(records, wide)
    records = run(Static(3), narrow, preset, max_num_batched_tokens=64)
    assert np.all(records.steps["window_context_tokens"] <= 16 * records.steps["decodes"])
    assert np.all(records.steps["window_prefill_pairs"] <= 16 * records.steps["prefill_tokens"])
    adds_up(records, narrow)


def test_pairs_of_a_chunked_prompt_are_those_of_the_whole_one() -> None:
    """Each of n prompt tokens reads the last min(i, w) tokens, however the prompt is cut."""
    for budget in (8192, 100):
        steps = run(Off(), windowed(16), max_num_batched_tokens=budget).steps
        expected = sum(min(i, 16) for n in (40, 7, 90, 33, 12, 60) for i in range(1, n + 1))
        assert steps["window_prefill_pairs"].sum() == expected


def test_a_state_is_written_for_every_verified_position() -> None:
    """Terms over sequences and logits are charged once per sequence and k + 1 times in a verify pass."""
    profile = linear_profile(per_token_ms=0.0)
    state = Term(name="state", mark="analytic", source="test", per_ns={"sequences": 1e3, "logits": 1e6})
    target = profile.target.model_copy(update={"verify": (*profile.target.verify, state)})
    profile = profile.model_copy(update={"target": target})
    steps = run(Static(3), profile, draft_past_end=True).steps
    fixed = profile.target.verify[0].fixed_ns
    expected = fixed + 1e3 * steps["sequences"] + 1e6 * steps["logits"]
    np.testing.assert_array_equal(steps["verify_ns"], expected)
    full = (steps["prefill_tokens"] == 0) & (steps["drafted"] == 3 * steps["sequences"])
    np.testing.assert_array_equal(steps["logits"][full], 4 * steps["sequences"][full])


def test_checkpointed_states_take_memory_by_depth() -> None:
    """At depth 3 a sequence holds four states, one without checkpoints."""
    profile = linear_profile()
    work = profile.target.work.model_copy(update={"state_bytes_per_sequence": 16e5 * 10})
    profile = profile.model_copy(update={"target": profile.target.model_copy(update={"work": work})})
    one, many = (run(Static(3), profile, checkpoint_states=on) for on in (False, True))
    np.testing.assert_array_equal(
        many.steps["kv_blocks"] - one.steps["kv_blocks"], 30 * one.steps["sequences"]
    )
    assert same(run(Off(), profile), run(Off(), profile, checkpoint_states=True))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 30), st.integers(0, 99), st.booleans())
def test_streaming_in_chunks_moves_no_step_and_no_finish(interval: int, luck: int, scarce: bool) -> None:
    """Only the gaps change: fewer and longer, together still last less first token."""
    memory: dict[str, Any] = {"kv_blocks": 12} if scarce else {}
    plain = run(Static(3), luck=luck, **memory)
    chunked = run(Static(3), luck=luck, stream_interval=interval, **memory)
    for name, values in plain.requests.items():
        np.testing.assert_array_equal(values, chunked.requests[name])
    for name, values in plain.steps.items():
        np.testing.assert_array_equal(values, chunked.steps[name])
    (every, often, _), (gaps, counts, _) = plain.chunk_gaps, chunked.chunk_gaps
    assert (every * often).sum() == (gaps * counts).sum()
    assert counts.sum() <= often.sum()
    tokens = plain.requests["output_tokens"] - 1
    assert counts.sum() <= np.ceil(tokens / interval).sum()


def test_plain_decoding_streams_every_interval_tokens() -> None:
    """20 tokens in chunks of 6: the first alone, then 6, 6, 6 and the last one."""
    records = run(Off(), arrivals=100.0 * np.arange(6), stream_interval=6)
    first = records.requests["first_token_ns"][0]
    gaps, counts, ends = records.chunk_gaps
    mine = ends < first + 20 * 25_000_000
    step = np.median(took(records))
    np.testing.assert_allclose(np.repeat(gaps, counts)[: mine.sum()] / step, [6, 6, 6, 1], rtol=0.01)


def test_different_columns_come_with_the_mechanism_that_needs_them() -> None:
    """Records of other runs keep their columns."""
    more = set(run(Off(), hosted(linear_profile(), 1.0), overlap_host=True).steps) - set(STEP_COLUMNS)
    assert more == {"hidden_ns"}
    setup_columns = set(run(Off(), windowed(8)).steps) - set(STEP_COLUMNS)
    assert setup_columns == {
        f"window_{v}" for v in ("context_tokens", "query_context_tokens", "prefill_pairs")
    }


def test_windowed_layers_move_and_compute_no_more_than_their_window() -> None:
    """Half of the KV bytes and attention FLOPs are windowed: a narrow window saves what lies beyond it."""
    found = []
    for window in (200, 16):
        profile = windowed(window)
        half = {"window_kv_bytes_per_token": 5e4, "window_attention_flops_per_query_context": 50.0}
        work = profile.target.work.model_copy(update={"attention_flops_per_query_context": 100.0, **half})
        profile = profile.model_copy(update={"target": profile.target.model_copy(update={"work": work})})
        steps = run(Off(), profile).steps
        found.append((steps, step_bytes(steps, profile, None), step_flops(steps, profile, None)))
    (wide, most_bytes, most_flops), (narrow, fewer_bytes, fewer_flops) = found
    assert np.array_equal(wide["window_context_tokens"], narrow["context_tokens"])
    beyond = narrow["context_tokens"] - narrow["window_context_tokens"]
    np.testing.assert_allclose(most_bytes - fewer_bytes, 5e4 * beyond)
    pairs = narrow["query_context_tokens"] + narrow["prefill_pairs"]
    near = narrow["window_query_context_tokens"] + narrow["window_prefill_pairs"]
    np.testing.assert_allclose(most_flops - fewer_flops, 50.0 * (pairs - near))
