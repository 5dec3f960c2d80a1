"""Drafting stops where each rule says, knowing only the drafts made so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from calibrate.profile import Profile
from sim.acceptance.build import build_process
from sim.acceptance.config import IidAcceptance
from sim.cost.step_cost import StepCost
from sim.engine.config import EngineConfig
from sim.engine.presets import VLLM_CAPTURE_SIZES
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Batch, Claims, Int64, Outcome, Policy
from sim.policies.config import Bounds
from sim.policies.p_min import PMin
from sim.policies.registry import POLICIES
from sim.policies.static import Static
from sim.policies.stopping import before_first
from sim.results.run_records import RunRecords
from tests.acceptance.helpers import build
from tests.engine.modelled import linear_profile, requests, view

PROFILE = linear_profile(20.3, 0.5, 1e-4, draft=(2.1, 0.05, 1.5))
COST = StepCost(PROFILE, PROFILE.drafters["d"], 4096, VLLM_CAPTURE_SIZES)
WIDTH = 7
NAMES = ("p_min", "entropy_stop", "specdec_pp", "dsde", "adaspec")
EIGHTHS = st.integers(0, 8).map(lambda n: n / 8)
"""Claims whose products are exact in single precision, so that two sums of them can be compared."""


def policy(name: str, max_depth: int = WIDTH, **keys: Any) -> Policy:
    """A fresh policy from its YAML keys."""
    return POLICIES[name](policy=name, **keys).build(Bounds(max_depth))


def claims(sequences: int) -> st.SearchStrategy[Claims]:
    """Claims of a batch."""
    return arrays(np.float32, (sequences, WIDTH), elements=EIGHTHS)


def batch(sequences: int) -> Batch:
    """Equal sequences at a context of 500."""
    return view(COST, sequences, 500)


def proposed(name: str, confidence: Claims) -> Int64:
    """Depths at which a fresh policy stops drafting seven deep."""
    n = len(confidence)
    return np.broadcast_to(policy(name).stop_depths(batch(n), WIDTH, confidence), n)


# -- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_whether_a_draft_is_made_depends_on_earlier_drafts_alone(name: str, data: st.DataObject) -> None:
    """Changing every claim from position j on does not change who drafts at j."""
    n, position = data.draw(st.integers(1, 6)), data.draw(st.integers(0, WIDTH - 1))
    one, other = data.draw(claims(n)), data.draw(claims(n))
    other[:, :position] = one[:, :position]
    assert np.array_equal(proposed(name, one) > position, proposed(name, other) > position)


@pytest.mark.parametrize("name", ["p_min", "entropy_stop", "specdec_pp"])
@settings(max_examples=25)
@given(data=st.data())
def test_a_sequence_stops_whatever_the_others_claim(name: str, data: st.DataObject) -> None:
    """These three rules look at one sequence at a time."""
    confidence = data.draw(claims(5))
    alone = [int(proposed(name, confidence[row : row + 1])[0]) for row in range(5)]
    assert proposed(name, confidence).tolist() == alone


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_no_more_is_proposed_or_verified_than_was_asked_for(name: str, data: st.DataObject) -> None:
    """Also with ragged depths, none of them, and no sequences."""
    n = data.draw(st.integers(0, 5))
    depths = data.draw(arrays(np.int64, n, elements=st.integers(0, WIDTH)))
    confidence, chosen, now = data.draw(claims(n)), policy(name), batch(n)
    stop = np.minimum(chosen.stop_depths(now, depths, confidence), depths)
    seen = confidence * (np.arange(WIDTH) < stop[:, None])
    verify = chosen.verify_depths(now, stop, seen)
    assert np.all(chosen.stop_depths(now, depths, confidence) <= depths)
    assert np.all((verify >= 0) & (verify <= stop))


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_without_room_for_drafts_gets_none(name: str) -> None:
    chosen = policy(name, max_depth=0)
    assert np.all(chosen.draft_depths(batch(3)) == 0)
    assert np.all(chosen.verify_depths(batch(3), 0, np.zeros((3, 0), dtype=np.float32)) == 0)


# -- each rule against a second, literal implementation --------------------------------------------


def first(row: Claims, rule: Callable[[list[float]], bool]) -> int:
    """Drafts made one by one until ``rule`` of those so far says that the last one was made."""
    made: list[float] = []
    for claim in row.tolist():
        made.append(claim)
        if rule(made):
            break
    return len(made)


@given(claims(4), EIGHTHS, st.integers(0, 4))
def test_p_min_is_llama_cpps_loop(confidence: Claims, p_min: float, n_min: int) -> None:
    """A token is kept only if it is not below p_min; a short draft is cleared."""
    chosen = PMin(WIDTH, p_min, n_min)
    stop = chosen.stop_depths(batch(4), WIDTH, confidence)
    seen = confidence * (np.arange(WIDTH) < np.reshape(stop, (-1, 1)))
    for row, made, verified in zip(confidence, stop, chosen.verify_depths(batch(4), stop, seen), strict=True):
        kept = 0
        while kept < WIDTH and row[kept] >= p_min:
            kept += 1
        assert made == min(kept + 1, WIDTH)
        assert verified == (kept if kept >= n_min else 0)


@given(claims(4), EIGHTHS)
def test_specdec_pp_is_the_papers_loop(confidence: Claims, h: float) -> None:
    """Stop when 1 - c_1 ... c_i > h."""
    depths = policy("specdec_pp", h=h).stop_depths(batch(4), WIDTH, confidence)
    assert depths.tolist() == [first(row, lambda made: 1 - np.prod(made) > h) for row in confidence]


@given(claims(4), EIGHTHS)
def test_entropy_stop_keeps_the_draft_that_fell_below(confidence: Claims, start: float) -> None:
    depths = policy("entropy_stop", start=start).stop_depths(batch(4), WIDTH, confidence)
    assert depths.tolist() == [first(row, lambda made: made[-1] < start) for row in confidence]


# -- examples --------------------------------------------------------------------------------------

FALLING = np.array([[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]], dtype=np.float32)


def test_p_min_pays_for_the_improbable_token_and_drops_it() -> None:
    """0.9, 0.8 and 0.7 pass 0.65; the fourth token ends the draft."""
    chosen = PMin(WIDTH, 0.65)
    assert chosen.stop_depths(batch(1), WIDTH, FALLING).tolist() == [4]
    assert chosen.verify_depths(batch(1), np.array([4]), FALLING).tolist() == [3]


def test_p_min_drops_a_draft_shorter_than_n_min() -> None:
    for n_min, verified in ((3, 3), (4, 0)):
        assert PMin(WIDTH, 0.65, n_min).verify_depths(batch(1), 4, FALLING).tolist() == [verified]


def test_bounds_in_the_wrong_order_are_refused() -> None:
    for name, keys in (("p_min", {"k_max": 4, "n_min": 5}), ("dsde", {"k_max": 4, "k_min": 5})):
        with pytest.raises(ValidationError, match="k_max 4"):
            policy(name, **keys)


def test_p_min_of_zero_drafts_and_verifies_everything() -> None:
    nothing = np.zeros((2, WIDTH), dtype=np.float32)
    chosen = PMin(WIDTH, 0.0)
    assert chosen.stop_depths(batch(2), WIDTH, nothing).tolist() == [WIDTH] * 2
    assert chosen.verify_depths(batch(2), WIDTH, nothing).tolist() == [WIDTH] * 2


def test_specdec_pp_with_h_of_one_never_stops_and_with_zero_at_the_first_doubt() -> None:
    for h, depth in ((1.0, WIDTH), (0.0, 1)):
        assert policy("specdec_pp", h=h).stop_depths(batch(1), WIDTH, FALLING).tolist() == [depth]


def test_stopping_nowhere_counts_all_and_no_width_counts_none() -> None:
    assert before_first(np.zeros((2, 3), dtype=np.bool_)).tolist() == [3, 3]
    assert before_first(np.zeros((2, 0), dtype=np.bool_)).tolist() == [0, 0]


# -- the threshold of entropy_stop -----------------------------------------------------------------


def threshold_after(drafted: int, accepted: int, start: float = 0.5) -> float:
    """Threshold of request 3 after one round; the mean acceptance starts at 0 and forgets at once."""
    chosen = policy("entropy_stop", start=start, target=0.7, beta_1=0.0)
    chosen.observe(Outcome(1, np.array([3]), np.array([drafted]), np.array([accepted])))
    return float(chosen.threshold.of(np.array([3]))[0])  # type: ignore[attr-defined]


def test_the_threshold_moves_by_a_tenth_of_epsilon_towards_the_target() -> None:
    """Draft & Verify: up below the target, down above it, not down when the draft was whole."""
    assert threshold_after(drafted=4, accepted=2) == pytest.approx(0.5 + 0.1 * 0.01)
    assert threshold_after(drafted=4, accepted=4) == pytest.approx(0.5 - 0.1 * 0.01)
    assert threshold_after(drafted=WIDTH, accepted=WIDTH) == 0.5
    assert threshold_after(drafted=0, accepted=0) == 0.5


def stationary(start: float, target: float, rounds: int) -> tuple[float, float]:
    """Mean threshold at the end, and accepted / drafted of the last quarter, of 24 iid requests."""
    process = build(WIDTH, process="iid", alpha=0.85, confidence={"auc": 0.85})
    paths = [process.path(request, 1, 8 * rounds) for request in range(24)]
    run = np.stack([path.run[:] for path in paths]).astype(np.int64)
    said = np.stack([path.confidence() for path in paths])
    chosen, at, every = policy("entropy_stop", start=start, target=target, epsilon=0.1), 0, np.arange(24)
    now, total = batch(24), np.zeros(2)
    position = np.zeros(24, dtype=np.int64)
    for at in range(rounds):
        drafted = chosen.stop_depths(now, WIDTH, said[every, position])
        accepted = np.minimum(run[every, position], drafted)
        chosen.observe(Outcome(1, now.request, np.asarray(drafted), accepted))
        position += accepted + 1
        total += (at >= 0.75 * rounds) * np.array([accepted.sum(), np.sum(drafted)])
    return float(chosen.threshold.of(now.request).mean()), total[0] / total[1]  # type: ignore[attr-defined]


def test_thresholds_meet_from_both_sides_on_a_stationary_stream() -> None:
    """From 0.2 and 0.98 they end together, where accepted / drafted is the target."""
    low, low_rate = stationary(0.2, 0.75, 400)
    high, high_rate = stationary(0.98, 0.75, 400)
    assert abs(low - high) < 0.1
    assert low_rate == pytest.approx(0.75, abs=0.04)
    assert high_rate == pytest.approx(0.75, abs=0.04)


# -- what stopping saves ---------------------------------------------------------------------------


def alone(profile: Profile, chosen: Policy) -> RunRecords:
    """One sequence of 400 tokens under drafts of acceptance 0.7 and claims of AUC 0.9."""
    config = IidAcceptance(process="iid", alpha=0.7, confidence={"auc": 0.9})  # type: ignore[arg-type]
    process = build_process(config, 0, WIDTH, locate=lambda name: None)  # type: ignore[arg-type,return-value]
    engine = EngineConfig(preset="vllm_v1", kv_blocks=1000, capture_sizes=())
    given = Setup(requests([0.0], 8, 400), profile, profile.drafters["d"], engine, (process,), WIDTH)
    return simulate(given, chosen)


def with_kind(parallel: bool) -> Profile:
    """A drafter of 2 ms and, if sequential, 1.5 ms for every further pass."""
    profile = linear_profile(20.0, 0.5, draft=(2.0, 0.0, 1.5))
    if not parallel:
        return profile
    block = {"kind": "parallel", "block_tokens": WIDTH + 1, "next": ()}
    return profile.model_copy(update={"drafters": {"d": profile.drafters["d"].model_copy(update=block)}})


def test_a_sequential_drafter_runs_once_more_than_tokens_are_kept() -> None:
    """p_min: each step's passes are the drafts verified in the next, and the one thrown away."""
    steps = alone(with_kind(parallel=False), PMin(WIDTH, 0.75)).steps
    passes, verified = steps["draft_passes"][2:-2], steps["drafted"][3:-1]
    assert set((passes - verified).tolist()) == {0, 1}
    assert np.all(passes[passes == verified] == WIDTH)


def test_stopping_saves_a_parallel_drafter_nothing_but_verification_still() -> None:
    """Its block is made in one pass of 2 ms, wherever the policy stops."""
    stopped, whole = (
        alone(with_kind(parallel=True), each).steps for each in (PMin(WIDTH, 0.75), Static(WIDTH))
    )
    assert set(stopped["draft_ns"][2:-2].tolist()) == set(whole["draft_ns"][2:-2].tolist()) == {2_000_000}
    assert stopped["verify_ns"].mean() < whole["verify_ns"].mean() - 1e6
