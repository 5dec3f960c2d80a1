"""The simulator's run, as the reference engine serves it: the same requests, settings, luck and policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import simpy

from calibrate.passes.bench import TransformerBench
from calibrate.reference.engine import Engine
from calibrate.reference.journal import Journal
from calibrate.reference.models import Drafter, Head, Target, Transformer
from calibrate.reference.policy import Steering
from calibrate.reference.serving import Request, Serving
from calibrate.reference.verdict import Forced
from sim.engine.replica import Replica
from sim.engine.simulate import Setup, build_replica
from sim.errors import InputError
from sim.policies.base import Batch, Outcome, Policy
from sim.policies.config import Bounds, PolicyConfig
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS
from sim.results.run_records import Columns, RunRecords
from sim.streams import uniforms

UNKNOWN: Final = ("dummy_drafts", "pad_new_decodes", "prefix_caching")
"""Habits of vLLM that the reference engine does not have."""


@dataclass(frozen=True)
class Models:
    """The models that calibration timed; ``drafter`` names the one that drafts."""

    bench: TransformerBench
    drafter: str

    def target(self, serving: Serving) -> Target:
        """The target with room for ``serving``."""
        return Transformer(self.bench.target, serving.max_num_seqs, serving.slot_tokens)

    def drafting(self, serving: Serving) -> Drafter:
        """The drafter with room for ``serving``."""
        rows = serving.max_num_seqs * (serving.max_depth + 1)
        most = max(serving.max_num_batched_tokens, rows)
        drafter, target = self.bench.drafters[self.drafter], self.bench.target
        return Head(drafter, target, serving.max_num_seqs, serving.slot_tokens, most)

    @property
    def vocabulary(self) -> int:
        """Tokens that the target knows."""
        return self.bench.target.vocabulary


def serve(setup: Setup, config: PolicyConfig, models: Models, make: type[Engine] = Engine) -> RunRecords:
    """Serve a setup's requests with real passes; the records are those that a simulation writes."""
    policy = config.build(Bounds(setup.max_depth))
    replica = build_replica(simpy.Environment(), setup, policy)
    serving = serving_of(setup, replica)
    engine = make(
        serving,
        models.target(serving),
        models.drafting(serving) if policy.drafts else None,
        Steering(policy, partial(Batch, cost=replica.cost), Outcome),
        seed=setup.seed,
        forced=luck_of(setup, policy),
    )
    journal = engine.serve(requests_of(setup, models.vocabulary), setup.requests.max_concurrency)
    return records_of(journal, setup, serving)


def serving_of(setup: Setup, replica: Replica) -> Serving:
    """The engine's limits and habits; ``InputError`` for what the reference engine does not do."""
    engine, behaviour, r = setup.engine, setup.engine.behaviour, setup.requests
    if behaviour.capture_sizes:
        raise InputError("the reference engine captures no graphs; set engine.capture_sizes: []")
    on = [name for name in UNKNOWN if getattr(behaviour, name)]
    if on:
        raise InputError(f"the reference engine does not know engine.{on[0]}; set it to false")
    return Serving(
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        longest=int((r.prompt_tokens + r.output_tokens).max(initial=1)),
        max_model_len=engine.max_model_len,
        max_depth=replica.drafting.max_depth,
        chunk_limit=engine.long_prefill_token_threshold,
        slots=replica.scheduler.slots,
        draft_at_depth_zero=behaviour.draft_at_depth_zero,
        draft_over_scheduled=behaviour.draft_pass_over == "scheduled",
        draft_for_finished=behaviour.draft_for_finished,
        draft_uniformly=behaviour.draft_uniformly,
        draft_past_end=behaviour.draft_past_end,
        pad_queries=behaviour.pad_queries,
        tpot_limits_ns=setup.tpot_limits_ns or (0,) * len(r.classes),
    )


def requests_of(setup: Setup, vocabulary: int) -> list[Request]:
    """The requests, with prompts of random tokens."""
    r = setup.requests
    rows = zip(
        *(column.tolist() for column in (r.arrival_ns, r.prompt_tokens, r.output_tokens, r.class_id)),
        strict=True,
    )
    return [
        Request(number, arrival, _prompt(setup.seed, number, prompt, vocabulary), output, class_id)
        for number, (arrival, prompt, output, class_id) in enumerate(rows)
    ]


def _prompt(seed: int, number: int, tokens: int, vocabulary: int) -> list[int]:
    prompt: list[int] = (uniforms(seed, "validate/prompt", number, tokens) * vocabulary).astype(int).tolist()
    return prompt


def luck_of(setup: Setup, policy: Policy) -> Forced:
    """The accepts of every request, and the drafter's claims where the policy asks for them."""
    r = setup.requests
    rows = zip(r.class_id.tolist(), r.prompt_tokens.tolist(), r.output_tokens.tolist(), strict=True)
    paths = [setup.processes[kind].path(i, prompt, output) for i, (kind, prompt, output) in enumerate(rows)]
    claims = {i: path.confidence() for i, path in enumerate(paths)} if policy.wants_confidence else {}
    return Forced({i: path.run for i, path in enumerate(paths)}, claims)


def records_of(journal: Journal, setup: Setup, serving: Serving) -> RunRecords:
    """The engine's journal as records; requests in order of intended arrival."""
    requests = sorted(journal.requests, key=lambda row: row["request"])
    gaps = np.array(journal.gaps, dtype=np.int64).reshape(-1, 3)
    return RunRecords(
        requests=_columns(requests, REQUEST_COLUMNS),
        steps=_columns(journal.steps, STEP_COLUMNS),
        chunk_gaps=(gaps[:, 0], gaps[:, 1], gaps[:, 2]),
        unfinished=len(setup.requests) - len(requests),
        classes=setup.requests.classes,
        last_arrival_ns=int(setup.requests.arrival_ns.max(initial=0)),
        kv_blocks_total=serving.max_num_seqs,
        max_num_seqs=serving.max_num_seqs,
    )


def _columns(rows: list[dict[str, int]], names: tuple[str, ...]) -> Columns:
    return {name: np.array([row[name] for row in rows], dtype=np.int64) for name in names}
