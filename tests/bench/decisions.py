"""Time of one decision of every policy, beside the time of the step that it decides.

A decision is all that a policy is asked in one step: ``draft_depths``, ``stop_depths`` and
``verify_depths`` where it wants confidences, ``observe`` where it wants outcomes. Contexts differ
between sequences, confidences come from a drafter of AUC 0.85 whose acceptance varies with request and
stretch, and one sequence in 64 is replaced by a new request every step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic import ValidationError

from calibrate.profile import load_profile
from sim.acceptance.build import build_process
from sim.acceptance.config import Confidence, LatentAcceptance
from sim.cost.step_cost import DraftHabits, StepCost
from sim.engine.presets import PRESETS
from sim.policies.base import Batch, Claims, Depths, Int64, Outcome, Policy
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.registry import POLICIES
from sim.streams import uniforms

PROFILE: Final = Path(__file__).resolve().parents[2] / "scenarios" / "profiles" / "llama-3.1-8b-h100.json"
DRAFTER: Final = "eagle3"
MAX_DEPTH: Final = 7
SEQUENCES: Final = (64, 256)
ROUNDS: Final = 128
WARM_UP: Final = 32
TARGETS_US: Final = {("one depth for all", 64): 30.0, ("a depth each", 256): 150.0}
NEEDED: Final[dict[str, dict[str, Any]]] = {
    "static": {"k": 3},
    "tree": {"width": 4, "k": 3, "nodes": 8},
    "disable_by_batch_size": {"k": 3, "threshold": 128},
    "per_batch_size": {"table": ((1, 64, 3), (65, 512, 1))},
    "per_batch_and_context": {"table": ((1, 512, 1, 1023, 1), (1, 512, 1024, 131072, 3))},
    "draft_len_schedule": {"schedule": {"64": 3, "256": 1}},
}
"""Parameters of the policies that cannot do without."""


class Round(NamedTuple):
    """One step's question: what the policy sees, what the drafter claims, what would be accepted."""

    batch: Batch
    claims: Claims
    run: Int64


class Played(NamedTuple):
    """Microseconds of the decisions, milliseconds of the steps, and whether depths were all alike."""

    us: list[float]
    step_ms: list[float]
    answer: str


def decision_table(repeats: int) -> list[str]:
    """Median decision of every registered policy that drafts, at each batch size; misses are named."""
    lines = [
        "All that a policy is asked in one step, from confidences to outcomes, and the step that it decides. "
        f"Targets: {_targets()}.",
        "",
        "| policy | answers with | batch | us per decision, median | step, ms | share | target |",
        "|---|---|---|---|---|---|---|",
    ]
    missed = []
    for sequences in SEQUENCES:
        for name, played in measured(sequences, repeats).items():
            us, ms = statistics.median(played.us), statistics.median(played.step_ms)
            target = TARGETS_US.get((played.answer, sequences))
            lines.append(
                f"| {name} | {played.answer} | {sequences} | {us:.1f} | {ms:.1f} | {us / 10 / ms:.2f} % | "
                f"{f'{target:.0f} us' if target else ''} |"
            )
            if target and us > target:
                missed.append(f"{name} {us:.0f} of {target:.0f} us at batch {sequences}")
    return [*lines, "", f"Over its target: {'; '.join(missed) or 'none'}."]


def _targets() -> str:
    return " and ".join(f"{us:.0f} us for {answer} at batch {n}" for (answer, n), us in TARGETS_US.items())


def measured(sequences: int, repeats: int) -> dict[str, Played]:
    """Every policy over the same rounds, repeats interleaved."""
    cost = step_cost()
    questions = rounds(cost, sequences)
    played: dict[str, Played] = {}
    for _ in range(repeats):
        for name in POLICIES:
            policy = built(configured(name))
            if not policy.drafts:
                continue
            again = play(policy, questions)
            before = played.get(name, Played([], [], again.answer))
            played[name] = Played(before.us + again.us, again.step_ms, again.answer)
    return played


def configured(name: str) -> PolicyConfig:
    """A registered policy with defaults; raises ``SystemExit`` where it lacks parameters."""
    try:
        return POLICIES[name].model_validate({"policy": name} | NEEDED.get(name, {}))
    except ValidationError as error:
        raise SystemExit(
            f"policy {name!r} needs parameters ({error.errors()[0]['msg']}); "
            "write them into NEEDED of tests/bench/decisions.py"
        ) from None


def built(config: PolicyConfig) -> Policy:
    """The policy at the depth of all; a tree at its own number of nodes."""
    return config.build(Bounds(config.verified if config.verified > config.depth else MAX_DEPTH))


def step_cost() -> StepCost:
    """Llama-3.1-8B, H100, EAGLE-3, preset ``vllm_v1``."""
    profile, behaviour = load_profile(PROFILE), PRESETS["vllm_v1"]
    habits = DraftHabits(
        over_scheduled=behaviour.draft_pass_over == "scheduled",
        idle_pass=behaviour.draft_at_depth_zero,
        uniform=behaviour.draft_uniformly,
    )
    return StepCost(profile, profile.drafters[DRAFTER], 8192, behaviour.capture_sizes, habits)


def rounds(cost: StepCost, sequences: int) -> list[Round]:
    """Steps of a full batch; contexts are log-normal around 1000 tokens and grow."""
    acceptance = LatentAcceptance(
        process="latent",
        mean=0.66,
        spread=1.0,
        correlation=0.9,
        request_share=0.15,
        confidence=Confidence(auc=0.85),
    )
    process = build_process(acceptance, 0, MAX_DEPTH, Path)
    paths = [process.path(request, 512, ROUNDS) for request in range(sequences)]
    claims = np.stack([path.confidence() for path in paths], axis=1)
    runs = np.stack([path.run for path in paths], axis=1).astype(np.int64)
    luck = uniforms(0, "bench contexts", 0, 2 * sequences).reshape(2, -1)
    normal = np.sqrt(-2 * np.log(luck[0])) * np.cos(2 * np.pi * luck[1])
    contexts = np.round(1000 * np.exp(0.7 * normal)).astype(np.int64) + 1
    return [
        Round(_seen(cost, contexts + 3 * at, at, runs[at]), claims[at].copy(), runs[at])
        for at in range(ROUNDS)
    ]


def _seen(cost: StepCost, contexts: Int64, at: int, run: Int64) -> Batch:
    n = len(contexts)
    place = np.arange(n)
    age = (at + place) % 64
    return Batch(
        now_ns=at * 20_000_000,
        scheduled=n,
        running=n,
        waiting=0,
        step_tokens=4 * n,
        max_depth=MAX_DEPTH,
        request=place + n * ((at + place) // 64),
        class_id=np.zeros(n, dtype=np.int64),
        context_tokens=contexts,
        remaining_tokens=131072 - contexts,
        cost=cost,
        run=run,
        output_tokens=1 + 3 * age,
        since_first_ns=20_000_000 * age,
        tpot_limit_ns=np.where(place % 2 == 0, 6_000_000, 40_000_000),
    )


def play(policy: Policy, questions: list[Round]) -> Played:
    """Ask one policy round after round; the first ones, in which tables are made, do not count."""
    watch, us, step_ms = Stopwatch(), [], []
    carried: Depths = 0
    request, run = questions[0].batch.request[:0], questions[0].run[:0]
    answers = []
    for batch, claims, ahead in questions:
        watch.ns = 0
        batch.run = ahead if policy.clairvoyant else None
        depths = watch.time(policy.draft_depths, batch)
        answers.append(isinstance(depths, int))
        verified = depths
        if policy.wants_confidence:
            depths = watch.time(policy.stop_depths, batch, depths, claims)
            shown = claims * (np.arange(claims.shape[1]) < np.reshape(depths, (-1, 1)))
            verified = watch.time(policy.verify_depths, batch, depths, shown)
            answers.append(isinstance(verified, int))
        step_ms.append(_step_ns(policy, batch, depths, verified) / 1e6)
        if policy.wants_outcomes:
            drafted = np.broadcast_to(carried, request.shape)
            outcome = Outcome(round(step_ms[-1] * 1e6), request, drafted, np.minimum(run, drafted))
            watch.time(policy.observe, outcome)
        carried, request, run = verified, batch.request, ahead
        us.append(watch.ns / 1e3)
    answer = "one depth for all" if all(answers) else "a depth each"
    return Played(us[WARM_UP:], step_ms[WARM_UP:], answer)


def _step_ns(policy: Policy, batch: Batch, depths: Depths, verified: Depths) -> float:
    """A decode-only step that verifies what was decided and drafts as deep."""
    n, context = batch.sequences, float(batch.context_tokens.sum())
    drafts = int(np.broadcast_to(verified, n).sum())
    levels = policy.tree.depth if policy.tree else int(np.max(depths))
    drafting = batch.cost.drafting_ns(n, drafts, levels, context)
    return float(batch.cost.target_ns(n + drafts, n, context) + drafting)


class Stopwatch:
    """Adds up the time that calls take."""

    def __init__(self) -> None:
        self.ns = 0

    def time(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The call's result."""
        start = time.perf_counter_ns()
        result = call(*arguments)
        self.ns += time.perf_counter_ns() - start
        return result
