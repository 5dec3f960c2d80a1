"""A depth policy of leadline inside the real vLLM 0.32.

vLLM's runner starts the drafter of a step once the step's tokens are sampled, to the depth that the
scheduler's output names; the scheduler then takes the drafts over. The policy is asked at those two
places, with what vLLM knows there: depths before drafting, and how many of each sequence's drafts
to keep. In the order of a step of leadline's engine (sim/engine/drafting.py), so that the same code
decides in both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.acceptance.base import Path
from sim.cost.step_cost import StepCost
from sim.policies.base import Batch, Depths, Int64, Outcome, Policy
from tests.referee.cpu_clock.campaign.plan import DEPTH

MODEL_LEN = 512


class Plugged:
    """One run of a policy. ``paths`` are the requests' claims and luck; of luck it sees nothing.

    ``now_ns`` and ``first_ns`` (the time of each request's first token) are kept by the client.
    """

    def __init__(self, policy: Policy, cost: StepCost, paths: dict[int, Path]) -> None:
        self.policy, self.cost = policy, cost
        self.claims = {request: path.confidence() for request, path in paths.items()}
        self.now_ns = 0
        self.first_ns: dict[int, int] = {}
        self._verified: dict[str, int] = {}
        self._outcome: tuple[list[int], list[int], list[int]] = ([], [], [])

    def before_drafting(self, scheduler: Any, output: Any, emitted: dict[str, int]) -> int:
        """Depth of the drafter's run, given the tokens that the step emits for each request."""
        drafted = {name: len(d) for name, d in output.scheduled_spec_decode_tokens.items()}
        self._outcome = (
            [number(name) for name in emitted],
            [drafted.get(name, 0) for name in emitted],
            [tokens - 1 for tokens in emitted.values()],
        )
        going = [name for name in emitted if _left(scheduler.requests[name]) > emitted[name]]
        batch = self._batch(scheduler, output, emitted, going)
        depths = _capped(self.policy.draft_depths(batch))
        kept = depths
        if self.policy.wants_confidence:
            depths, kept = self._trimmed(batch, depths)
        each = np.broadcast_to(kept, (len(going),)).tolist()
        self._verified = dict(zip(going, each, strict=True))
        return int(np.max(depths, initial=0))

    def trim(self, drafts: Any) -> None:
        """Drop the drafts that are not to be verified."""
        for name, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=True):
            del tokens[self._verified.get(name, 0) :]

    def after_step(self, step_ns: int, prefill_tokens: int) -> None:
        """Tell the policy what became of the step."""
        if self.policy.wants_outcomes:
            requests, drafted, accepted = (_int64(values) for values in self._outcome)
            self.policy.observe(Outcome(step_ns, requests, drafted, accepted, prefill_tokens))

    def _batch(self, scheduler: Any, output: Any, emitted: dict[str, int], going: list[str]) -> Batch:
        requests = [scheduler.requests[name] for name in going]
        produced = _int64([r.num_output_tokens + emitted[n] for n, r in zip(going, requests, strict=True)])
        context = produced + _int64([r.num_prompt_tokens for r in requests])
        numbers = [number(name) for name in going]
        return Batch(
            now_ns=self.now_ns,
            scheduled=len(output.num_scheduled_tokens),
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            step_tokens=output.total_num_scheduled_tokens,
            max_depth=DEPTH,
            request=_int64(numbers),
            class_id=np.zeros(len(going), dtype=np.int64),
            context_tokens=context,
            remaining_tokens=MODEL_LEN - context,
            cost=self.cost,
            output_tokens=produced,
            since_first_ns=_int64([self.now_ns - self.first_ns.get(n, self.now_ns) for n in numbers]),
            tpot_limit_ns=np.zeros(len(going), dtype=np.int64),
            prompt_tokens_ahead=sum(r.num_prompt_tokens for r in scheduler.waiting),
        )

    def _trimmed(self, batch: Batch, depths: Depths) -> tuple[Depths, Depths]:
        """What is proposed and what is verified of ``depths``, by what the drafter claims."""
        assert batch.output_tokens is not None
        places = zip(batch.request.tolist(), batch.output_tokens.tolist(), strict=True)
        claims = np.array([self.claims[r][p] for r, p in places]).reshape(-1, DEPTH)
        depths = _least(self.policy.stop_depths(batch, depths, claims), depths)
        claims *= np.arange(DEPTH) < np.reshape(depths, (-1, 1))
        return depths, _least(self.policy.verify_depths(batch, depths, claims), depths)


def number(name: str) -> int:
    """Number of a request by vLLM's name for it."""
    return int(name.split("-")[1])


def _left(request: Any) -> int:
    return int(request.max_tokens - request.num_output_tokens)


def _capped(depths: Depths) -> Depths:
    return min(depths, DEPTH) if isinstance(depths, int) else np.minimum(depths, DEPTH)


def _least(asked: Depths, most: Depths) -> Depths:
    if isinstance(asked, int) and isinstance(most, int):
        return min(asked, most)
    return np.minimum(asked, most)


def _int64(values: list[int]) -> Int64:
    return np.array(values, dtype=np.int64)
