"""What a step costs and does around the policy: one mechanism each, neutral where it is off."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.profile import Profile, Term
from sim.cost.breakdown import breakdown_ns
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Batch, Depths, Outcome, PolicyDefaults
from sim.policies.off import Off
from sim.policies.static import Static
from sim.results.records import STEP_COLUMNS
from sim.results.run_records import RunRecords
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests

LENGTHS = (20, 45, 70, 33, 61, 52)


class Turns(PolicyDefaults):
    """Depths by request and output length, with nothing learned: 0 to 3, other for every sequence."""

    def draft_depths(self, batch: Batch) -> Depths:
        """Depths that differ within a batch."""
        return (batch.request + batch.context_tokens) % 4


class Watching(Static):
    """One depth, and what the policy was shown."""

    wants_outcomes = True

    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.seen: list[int] = []
        self.outcomes: list[Outcome] = []

    def observe(self, outcome: Outcome) -> None:
        """Keep it."""
        self.outcomes.append(outcome)


class ByTurn(PolicyDefaults):
    """Depth 1, 2, 3, 0, 1, ... in the order of its decisions."""

    def __init__(self) -> None:
        self.asked = 0

    def draft_depths(self, batch: Batch) -> Depths:
        """One more than before, modulo 4."""
        self.asked += 1
        return self.asked % 4


def extras(profile: Profile, eager_ms: float, piecewise_ms: float) -> Profile:
    """The profile with constant costs of missed graphs."""

    def one(ms: float) -> tuple[Term, ...]:
        return (Term(name="extra", mark="analytic", source="test", fixed_ns=ms * 1e6),)

    update = {"eager_extra": one(eager_ms), "piecewise_extra": one(piecewise_ms)}
    return profile.model_copy(update={"target": profile.target.model_copy(update=update)})


def hosted(profile: Profile, ms: float, per_logit_ms: float = 0.0) -> Profile:
    """The profile with host time of a step, some of it for every logit."""
    term = Term(
        name="loop",
        mark="analytic",
        source="test",
        fixed_ns=ms * 1e6,
        per_ns={"logits": per_logit_ms * 1e6},
    )
    return profile.model_copy(update={"target": profile.target.model_copy(update={"host": (term,)})})


def run(
    policy: Any,
    profile: Profile | None = None,
    preset: str = "ideal",
    luck: int = 3,
    arrivals: Any = None,
    structured: tuple[bool, ...] = (),
    **engine: Any,
) -> RunRecords:
    """Six requests of different lengths, all at once unless ``arrivals`` says otherwise."""
    profile = profile or linear_profile()
    drawn = np.random.Generator(np.random.Philox(luck)).integers(0, 5, size=(len(LENGTHS), 80))
    setup = Setup(
        requests(np.zeros(len(LENGTHS)) if arrivals is None else arrivals, (40, 7, 90, 33, 12, 60), LENGTHS),
        profile,
        profile.drafters["d"],
        EngineConfig(**({"preset": preset, "kv_blocks": 1000} | engine)),
        (RecordedAcceptance(drawn.tolist()),),
        3,
        structured=structured,
    )
    return simulate(setup, policy)


def same(a: RunRecords, b: RunRecords) -> bool:
    """Whether two runs have the same records, byte for byte."""
    tables = [(a.requests, b.requests), (a.steps, b.steps)]
    equal = all(x.keys() == y.keys() and all(np.array_equal(x[k], y[k]) for k in x) for x, y in tables)
    return equal and all(np.array_equal(x, y) for x, y in zip(a.chunk_gaps, b.chunk_gaps, strict=True))


def finish(records: RunRecords) -> np.ndarray:
    return records.requests["finish_ns"]


def took(records: RunRecords) -> np.ndarray:
    return records.steps["end_ns"] - records.steps["start_ns"]


def adds_up(records: RunRecords, profile: Profile) -> None:
    """The parts of all steps are their latencies, but for a nanosecond of rounding per part and step."""
    parts = breakdown_ns(records.steps, profile, profile.drafters["d"])
    assert sum(parts.values()) == pytest.approx(took(records).sum(), abs=6 * len(took(records)))


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


# -- graphs ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.sampled_from([Off, lambda: Static(2), Turns]), st.floats(0, 9), st.floats(0, 9))
def test_eager_is_no_faster_than_pieces_and_pieces_than_one_graph(
    luck: int, policy: Any, piecewise_ms: float, more_ms: float
) -> None:
    """Of equal steps: none >= piecewise >= full_and_piecewise >= full, as the extra costs are."""
    profile = extras(linear_profile(), piecewise_ms + more_ms, piecewise_ms)
    modes = ("none", "piecewise", "full_and_piecewise", "full")
    times = [took(run(policy(), profile, luck=luck, graphs=mode)) for mode in modes]
    for slower, faster in pairwise(times):
        assert np.all(slower >= faster)


@pytest.mark.parametrize(
    ("mode", "decodes", "mixed"),
    [
        ("none", 0, 0),
        ("piecewise", 2, 2),
        ("full", 1, 1),
        ("full_decode_only", 1, 0),
        ("full_and_piecewise", 1, 2),
    ],
)
def test_the_mode_decides_how_prompts_and_decodes_are_launched(mode: str, decodes: int, mixed: int) -> None:
    """Steps of one token per sequence are uniform; those with prompt tokens are mixed."""
    profile = extras(linear_profile(), 8.0, 2.0)
    records = run(Off(), profile, graphs=mode)
    prompts = records.steps["prefill_tokens"] > 0
    assert set(records.steps["graph"][prompts].tolist()) == {mixed}
    assert set(records.steps["graph"][~prompts].tolist()) == {decodes}
    adds_up(records, profile)


def test_beyond_the_largest_size_every_mode_is_eager() -> None:
    """Capture sizes are in tokens; a larger step has no graph at all."""
    for mode in ("piecewise", "full", "full_decode_only", "full_and_piecewise"):
        steps = run(Off(), graphs=mode, capture_sizes=(1, 2, 4)).steps
        assert set(steps["graph"][steps["tokens"] > 4].tolist()) == {0}
        assert 0 not in steps["graph"][(steps["tokens"] <= 4) & (steps["prefill_tokens"] == 0)]


def test_a_policy_that_varies_the_depth_may_lose_full_graphs() -> None:
    """vLLM V1 overrides the mode to piecewise for a depth schedule; a fixed depth keeps its graph."""
    lost = {"graphs": "full_and_piecewise", "varying_depth_graphs": "piecewise", "draft_past_end": True}
    assert set(run(Turns(), **lost).steps["graph"].tolist()) == {2}
    assert 1 in run(Static(3), **lost).steps["graph"]
    assert 1 in run(Turns(), **{**lost, "varying_depth_graphs": "kept"}).steps["graph"]


def test_decode_graphs_of_speculation_hold_whole_sequences() -> None:
    """At depth 3 the sizes 1, 2, 4, 8, 17 become 4, 8 and (beyond 17, so left out) 20."""
    captured: dict[str, Any] = {"capture_multiples": True, "capture_sizes": (1, 2, 4, 8, 17)}
    records = run(Static(3), draft_past_end=True, max_num_seqs=2, **captured)
    padded = records.steps["padded_tokens"][records.steps["graph"] == 1]
    assert set(padded.tolist()) == {4, 8}
    assert np.all(padded >= records.steps["tokens"][records.steps["graph"] == 1])


@settings(max_examples=15, deadline=None)
@given(st.floats(0, 1))
def test_an_idle_rank_takes_the_graph_of_its_share_of_steps(share: float) -> None:
    """Its dummy step makes so many steps eager, evenly spread, and everything else stays."""
    profile = extras(linear_profile(), 4.0, 0.0)
    plain, vetoed = run(Off(), profile), run(Off(), profile, idle_rank_share=share)
    missed = vetoed.steps["graph"] == 0
    assert abs(missed.sum() - share * len(missed)) < 1
    np.testing.assert_array_equal(took(vetoed) - took(plain), np.where(missed, 4_000_000, 0))
    adds_up(vetoed, profile)


# -- the host --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 99), st.sampled_from([Off, lambda: Static(3), Turns]), st.floats(0, 60), st.floats(0, 3)
)
def test_overlap_is_never_slower_and_hides_at_most_the_step_before(
    luck: int, policy: Any, host_ms: float, per_logit_ms: float
) -> None:
    """What is hidden and what shows is the host time of the synchronous engine, step for step."""
    profile = hosted(linear_profile(), host_ms, per_logit_ms)
    plain = run(policy(), profile, luck=luck)
    over = run(policy(), profile, luck=luck, overlap_host=True)
    assert np.all(finish(over) <= finish(plain))
    hidden, shown = over.steps["hidden_ns"], over.steps["host_ns"]
    np.testing.assert_array_equal(hidden + shown, plain.steps["host_ns"])
    device = took(over) - shown
    assert hidden[0] == 0
    np.testing.assert_array_equal(hidden[1:], np.minimum(plain.steps["host_ns"][1:], device[:-1]))
    adds_up(over, profile)


def test_after_an_idle_time_the_host_has_nothing_to_hide_behind() -> None:
    """The first step of every request that comes alone pays its host time in full."""
    profile = hosted(linear_profile(), 5.0)
    records = run(Off(), profile, arrivals=100.0 * np.arange(6), overlap_host=True)
    starts = np.isin(records.steps["start_ns"], records.requests["scheduled_ns"])
    assert starts.sum() == 6
    assert set(records.steps["host_ns"][starts].tolist()) == {5_000_000}
    assert set(records.steps["host_ns"][~starts].tolist()) == {0}


def test_masks_cost_the_host_per_structured_sequence_and_draft() -> None:
    """A structured class pays one mask per sequence that samples and one per draft; others pay nothing."""
    profile = linear_profile()
    cost = {"grammar_overhead": "100us", "grammar_overhead_per_draft": "10us"}
    free = run(Static(3), profile, structured=(False,), **cost)
    assert same(free, run(Static(3), profile))
    paid = run(Static(3), profile, structured=(True,), **cost)
    steps = paid.steps
    sampled = steps["logits"] - steps["drafted"]
    np.testing.assert_array_equal(steps["grammar_ns"], 100_000 * sampled + 10_000 * steps["drafted"])
    assert took(paid).sum() - took(free).sum() == steps["grammar_ns"].sum()
    adds_up(paid, profile)


def test_depth_zero_with_a_drafter_may_cost_more_than_plain_decoding() -> None:
    """Off pays nothing; a policy stuck at 0 pays per decode step and sequence; drafting steps do not."""
    cost = {"depth_zero_overhead": "1ms", "depth_zero_overhead_per_sequence": "50us"}
    profile = linear_profile()
    assert same(run(Off(), profile), run(Off(), profile, **cost))
    plain, idle = run(Static(0), profile), run(Static(0), profile, **cost)
    decodes = plain.steps["decodes"]
    extra = np.where(decodes > 0, 1_000_000 + 50_000 * decodes, 0)
    np.testing.assert_array_equal(took(idle) - took(plain), extra)
    drafting = run(Static(3), profile, draft_past_end=True, **cost).steps
    assert np.all(drafting["depth_zero_ns"][drafting["drafted"] > 0] == 0)
    adds_up(idle, profile)


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


def windowed(window: int) -> Profile:
    """Half of the layers see the last ``window`` tokens, half see all; 1 us per token read, 2 per pair."""
    profile = linear_profile()
    read = {"context_tokens": 1e3, "query_context_tokens": 1e2, "prefill_pairs": 2e3}
    terms = (
        Term(name="attention", mark="analytic", source="test", per_ns=read),
        Term(
            name="attention_window",
            mark="analytic",
            source="test",
            per_ns={f"window_{name}": ns for name, ns in read.items()},
        ),
    )
    work = profile.target.work.model_copy(update={"window_tokens": window})
    target = profile.target.model_copy(update={"work": work, "verify": (*profile.target.verify, *terms)})
    return profile.model_copy(update={"target": target})


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
    memory = {"kv_blocks": 12} if scarce else {}
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
