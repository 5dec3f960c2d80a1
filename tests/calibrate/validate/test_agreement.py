"""Engine and simulator are two implementations of one step: with the same luck they take the same steps.

Here even time agrees, because the engine's steps are priced by the simulator's cost tables instead of
being timed: whatever differs would be a rule that one of the two does not know.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrate.passes import BenchSpec, build_bench
from calibrate.presets import PRESETS
from calibrate.reference.drafting import Drafted
from calibrate.reference.engine import Engine
from calibrate.reference.plan import Plan
from calibrate.validate.wiring import Models, serve
from sim.acceptance.build import build_process
from sim.acceptance.config import BetaAcceptance, Confidence
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.registry import POLICIES
from sim.results.run_records import RunRecords
from sim.workload.requests import Requests
from tests.engine.modelled import linear_profile

MODELLED = {"kv_blocks", "draft_context_tokens"}
"""The engine has slots instead of blocks; its further draft passes really read what they have written."""
DEPTH = 4
TIMED = {"verify_ns", "accept_ns", "draft_ns", "host_ns"}


class PricedEngine(Engine):
    """An engine whose steps take what the policy's cost tables say."""

    def spent(self, plan: Plan, drafted: Drafted) -> dict[str, int]:
        cost = self.steering.batch.keywords["cost"]  # type: ignore[attr-defined]
        s = plan.sums(self.serving.pad_queries)
        n, tokens, logits, context = (s[k] for k in ("sequences", "tokens", "logits", "context_tokens"))
        query, pairs, draft = s["query_context_tokens"], s["prefill_pairs"], 0
        if drafted.passes:
            rest = [] if drafted.passes == 1 else [(drafted.passes - 1, 1, 0)]
            draft = cost.draft_ns(drafted.first_tokens, n, context, query, pairs, rest)
        return {
            "verify": cost.verify_ns(tokens, n, logits, context, query, pairs),
            "accept": round(cost.accept.ns(tokens, n, logits)),
            "draft": draft,
            "host": round(cost.host.ns(tokens, n, logits)),
        }


@pytest.fixture(scope="module")
def models() -> Models:
    preset = PRESETS["tiny"]
    drafters = {name: (d.kind, d.build(d.config, name)) for name, d in preset.drafters.items()}
    bench: Any = build_bench(BenchSpec(preset.shape, drafters, max_sequences=16, max_context=64))
    return Models(bench, "draft")


def random_setup(seed: int, depth: int, **engine: Any) -> Setup:
    """Arrivals in a burst, spread out, or in a closed loop; small budgets, so that prompts are cut."""
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 12))
    arrival = np.sort(random.integers(0, 400_000_000, count)) if seed % 3 == 1 else np.zeros(count, np.int64)
    requests = Requests(
        arrival_ns=arrival.astype(np.int64),
        prompt_tokens=random.integers(1, 40, count),
        output_tokens=random.integers(1, 24, count),
        class_id=np.zeros(count, np.int64),
        max_concurrency=int(random.integers(1, 6)) if seed % 3 == 2 else None,
    )
    config = EngineConfig(
        max_num_seqs=int(random.integers(1, 9)),
        max_num_batched_tokens=int(random.integers(8, 64)),
        max_model_len=128,
        long_prefill_token_threshold=int(random.choice([0, 0, 7])),
        capture_sizes=(),
        kv_blocks=1000,
        dummy_drafts=False,
        pad_new_decodes=False,
        **engine,
    )
    profile = linear_profile(per_context_ms=0.01)
    acceptance = BetaAcceptance(process="beta", mean=0.7, concentration=8, confidence=Confidence(auc=0.85))
    process = build_process(acceptance, seed, max(depth, 1), lambda name: None)  # type: ignore[arg-type, return-value]
    return Setup(
        requests, profile, profile.drafters["d"] if depth else None, config, (process,), depth, seed=seed
    )


def policy(name: str, **given: Any) -> PolicyConfig:
    return POLICIES[name].model_validate({"policy": name, **given})


CHOSEN = (
    policy("off"),
    policy("static", k=2),
    policy("static", k=4),
    policy("goodput", k_max=DEPTH),
    policy("leadline", k_max=DEPTH),
    policy("p_min", k_max=DEPTH, p_min=0.6),
    policy("dspark", k_max=DEPTH),
    policy("entropy_stop", k_max=DEPTH),
    policy("sglang_ema"),
    policy("oracle", k_max=DEPTH),
)


def run_both(setup: Setup, config: PolicyConfig, models: Models) -> tuple[RunRecords, RunRecords]:
    simulated = simulate(setup, config.build(Bounds(setup.max_depth)))
    return simulated, serve(setup, config, models, PricedEngine)


@pytest.mark.parametrize("config", CHOSEN, ids=lambda config: config.title)
def test_engine_and_simulator_take_the_same_steps(models: Models, config: PolicyConfig) -> None:
    for seed in range(4):
        setup = random_setup(seed, 0 if config.policy == "off" else DEPTH)
        assert_alike(*run_both(setup, config, models))


@pytest.mark.parametrize(
    ("switch", "config"),
    [("draft_past_end", CHOSEN[2]), ("draft_slots", CHOSEN[2]), ("draft_uniformly", CHOSEN[5])],
)
def test_they_agree_without_the_habits_of_vllm(models: Models, switch: str, config: PolicyConfig) -> None:
    for seed in range(3):
        assert_alike(*run_both(random_setup(seed, DEPTH, **{switch: False}), config, models))


def test_they_agree_on_padded_queries(models: Models) -> None:
    for seed in range(3):
        setup = random_setup(seed, DEPTH, pad_queries=True)
        simulated, served = run_both(setup, CHOSEN[4], models)
        assert_alike(simulated, served)
        ragged = simulate(random_setup(seed, DEPTH), CHOSEN[4].build(Bounds(DEPTH)))
        assert simulated.steps["query_context_tokens"].sum() > ragged.steps["query_context_tokens"].sum()


def test_the_first_draft_pass_may_cover_kept_tokens_alone(models: Models) -> None:
    for seed in range(3):
        setup = random_setup(seed, DEPTH, draft_pass_over="emitted")
        assert_alike(*run_both(setup, CHOSEN[1], models))


def test_a_head_in_place_of_the_draft_model_changes_no_step(models: Models) -> None:
    """With forced luck its nonsense does not matter, and its passes take their states along."""
    setup = random_setup(0, DEPTH, draft_uniformly=False)
    assert_alike(*run_both(setup, CHOSEN[5], Models(models.bench, "eagle")))


def assert_alike(simulated: RunRecords, served: RunRecords) -> None:
    for name, values in simulated.steps.items():
        if name not in MODELLED:
            np.testing.assert_array_equal(served.steps[name], values, err_msg=name)
    for name, values in simulated.requests.items():
        np.testing.assert_array_equal(served.requests[name], values, err_msg=name)
    assert served.unfinished == simulated.unfinished == 0
    assert _pooled(served) == _pooled(simulated)


def _pooled(records: RunRecords) -> dict[tuple[int, int], int]:
    """How often each gap between chunks came at each time."""
    pooled: dict[tuple[int, int], int] = {}
    for gap, count, end in zip(*(column.tolist() for column in records.chunk_gaps), strict=True):
        pooled[gap, end] = pooled.get((gap, end), 0) + count
    return pooled
