"""What each kind of drafter costs, step by step, and how own policies use its claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrate.profile import Drafter, Profile, Term
from sim.acceptance.build import build_process
from sim.acceptance.config import IidAcceptance
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.errors import InputError
from sim.policies.base import Batch, Depths, Policy, PolicyDefaults
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from tests.engine.modelled import linear_profile, requests


def profile_with(kind: str, block: int = 0) -> Profile:
    """20 ms + 0.5 ms a token; first draft pass 2 ms + 0.05 ms a token, further ones 1.5 ms."""
    profile = linear_profile(20.0, 0.5, draft=(2.0, 0.05, 1.5))
    drafter = profile.drafters["d"].model_copy(
        update={
            "kind": kind,
            "block_tokens": block,
            **({} if kind in ("draft_model", "eagle", "mtp") else {"next": ()}),
        }
    )
    return profile.model_copy(update={"drafters": {"d": drafter}})


def run(profile: Profile, policy: Policy, k: int = 3, **options: Any) -> RunRecords:
    """Four sequences of 40 tokens, no draft ever accepted unless ``alpha`` says so."""
    alpha = options.pop("alpha", 0.0)
    confidence = options.pop("confidence", None)
    config = IidAcceptance(process="iid", alpha=alpha, confidence=confidence)
    process = build_process(config, 0, k, locate=lambda name: None)  # type: ignore[arg-type,return-value]
    engine = EngineConfig(**{"preset": "vllm_v1", "kv_blocks": 1000, "capture_sizes": (), **options})
    setup = Setup(requests(np.zeros(4), 8, 40), profile, profile.drafters["d"], engine, (process,), k)
    return simulate(setup, policy)


def steady(records: RunRecords, column: str) -> int:
    """A column's value while all four sequences decode."""
    values = records.steps[column][5:20]
    assert len(set(values.tolist())) == 1
    return int(values[0])


@pytest.mark.parametrize("kind", ["draft_model", "eagle", "mtp"])
def test_a_sequential_drafter_runs_once_over_the_step_and_k_minus_one_times_more(kind: str) -> None:
    """First pass over 4 x (3 + 1) tokens, then two passes of four."""
    records = run(profile_with(kind), Static(3))
    assert steady(records, "draft_ns") == (2.0 + 0.05 * 16 + 2 * 1.5) * 1e6
    assert steady(records, "draft_passes") == 3
    assert steady(records, "draft_next_tokens") == 8


def test_a_parallel_drafter_makes_its_block_in_one_pass() -> None:
    """The pass covers the step's tokens and a block of 8 per sequence, at any depth."""
    for k in (1, 3):
        records = run(profile_with("parallel", block=8), Static(k), k)
        tokens = 4 * (k + 1) + 4 * 8
        assert steady(records, "draft_ns") == pytest.approx((2.0 + 0.05 * tokens) * 1e6)
        assert steady(records, "draft_passes") == 1


def test_a_look_up_has_no_passes_beyond_its_own_cost() -> None:
    """n-gram: what its terms say, once, whatever the depth."""
    host = Term(name="lookup", mark="analytic", source="test", fixed_ns=1e5)
    profile = profile_with("ngram").model_copy(
        update={"drafters": {"d": Drafter(kind="ngram", first=(host,))}}
    )
    assert steady(run(profile, Static(3)), "draft_ns") == 1e5


def test_depth_zero_still_runs_the_drafter_in_vllm() -> None:
    """vLLM V1 at depth 0: the first pass over the step's tokens is paid; ``ideal`` pays nothing."""
    assert steady(run(profile_with("eagle"), Static(0)), "draft_ns") == (2.0 + 0.05 * 4) * 1e6
    assert steady(run(profile_with("eagle"), Static(0), preset="ideal"), "draft_ns") == 0


def test_look_ups_without_a_match_verify_nothing() -> None:
    """With a match at half of the positions, about half of the rounds carry drafts."""
    config = IidAcceptance(process="iid", alpha=0.2, match=0.5)
    process = build_process(config, 0, 3, locate=lambda name: None)  # type: ignore[arg-type,return-value]
    profile = profile_with("ngram")
    engine = EngineConfig(preset="vllm_v1", kv_blocks=10_000)
    setup = Setup(requests(np.zeros(50), 8, 200), profile, profile.drafters["d"], engine, (process,), 3)
    records = simulate(setup, Static(3))
    decoded = records.requests["output_tokens"].sum() - records.requests["accepted"].sum() - 50
    assert records.requests["rounds"].sum() / decoded == pytest.approx(0.5, abs=0.03)


class Deeper(PolicyDefaults):
    """Alternates depth 3 for even requests and 1 for odd ones."""

    def draft_depths(self, batch: Batch) -> Depths:
        return np.where(batch.request % 2 == 0, 3, 1)


def test_a_ragged_drafter_pays_for_the_sequences_that_go_on() -> None:
    """``ideal``: two sequences go to depth 3, so passes 2 and 3 have two tokens each."""
    records = run(profile_with("eagle"), Deeper(), preset="ideal")
    assert steady(records, "drafted") == 2 * 3 + 2 * 1
    assert steady(records, "draft_next_tokens") == 4
    uniform = run(profile_with("eagle"), Deeper(), preset="vllm_v1")
    assert steady(uniform, "draft_next_tokens") == 8


class Confident(PolicyDefaults):
    """Drafts three and verifies while the claim is above one half."""

    wants_confidence = True

    def draft_depths(self, batch: Batch) -> Depths:
        return 3

    def verify_depths(self, batch: Batch, depths: Depths, confidence: NDArray[np.float32]) -> Depths:
        kept = np.cumprod(confidence[:, :3] > 0.5, axis=1)
        return kept.sum(axis=1)


def test_a_policy_that_reads_claims_wastes_less_than_one_that_does_not() -> None:
    """Claims of AUC 0.95 let it drop most drafts that would be rejected."""
    claims = {"auc": 0.95}
    read = run(profile_with("eagle"), Confident(), alpha=0.6, confidence=claims)
    blind = run(profile_with("eagle"), Static(3), alpha=0.6)
    waste = [1 - r.requests["accepted"].sum() / r.requests["drafted"].sum() for r in (read, blind)]
    assert waste[0] < 0.5 * waste[1]


def test_claims_that_nobody_stated_are_asked_for() -> None:
    with pytest.raises(InputError, match="confidence"):
        run(profile_with("eagle"), Confident(), alpha=0.6)


class Spy(PolicyDefaults):
    """Records whether it was shown the future."""

    def __init__(self) -> None:
        self.shown: set[bool] = set()

    def draft_depths(self, batch: Batch) -> Depths:
        self.shown.add(batch.run is not None)
        return 2


def test_only_a_clairvoyant_policy_sees_what_would_be_accepted() -> None:
    policy = Spy()
    run(profile_with("eagle"), policy)
    assert policy.shown == {False}
