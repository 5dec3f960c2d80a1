"""The host's part of a step: what it costs beyond the profile's terms, and how much of it shows."""

from __future__ import annotations

import numpy as np

from sim.engine.batch import CLASS, Int64, RunningBatch
from sim.engine.config import EngineConfig
from sim.engine.plan import Plan


class Host:
    """Host time of one replica beside the profile's: grammars, depth 0 with a drafter, hiding.

    ``structured`` says of each request class whether its answers follow a grammar; ``drafts`` whether a
    drafter is loaded. ``more`` names the step columns that ``record`` fills.
    """

    def __init__(
        self, engine: EngineConfig, batch: RunningBatch, drafts: bool, structured: tuple[bool, ...] = ()
    ) -> None:
        self.engine, self.batch = engine, batch
        self.overlap = engine.behaviour.overlap_host
        self.structured = np.array(structured or (False,))
        self.masks = bool(self.structured.any()) and bool(
            engine.grammar_overhead or engine.grammar_overhead_per_draft
        )
        idle = engine.depth_zero_overhead or engine.depth_zero_overhead_per_sequence
        self.idles = drafts and bool(idle)
        names = ("hidden_ns", self.overlap), ("grammar_ns", self.masks), ("depth_zero_ns", self.idles)
        self.more = tuple(name for name, used in names if used)
        self.grammar_ns = self.depth_zero_ns = self.hidden_ns = 0
        self._device_before_ns = 0

    def extra_ns(self, plan: Plan) -> int:
        """Host time of the step beside the profile's terms and the engine's constant."""
        self.grammar_ns = self._grammar_ns(plan) if self.masks else 0
        self.depth_zero_ns = self._depth_zero_ns(plan) if self.idles else 0
        return self.grammar_ns + self.depth_zero_ns

    def shown_ns(self, host_ns: int, device_ns: int) -> int:
        """Host time that the step waits for, given the device time of the same step.

        With overlap the host prepares a step while the one before it runs (vllm/v1/engine/core.py,
        ``step_with_batch_queue``, 0.32); what is longer than that step shows.
        """
        if self.overlap:
            self.hidden_ns = min(host_ns, self._device_before_ns)
            self._device_before_ns = device_ns
            return host_ns - self.hidden_ns
        return host_ns

    def rest(self) -> None:
        """Nothing runs: the next step has nothing to hide behind."""
        self._device_before_ns = 0

    def record(self) -> tuple[int, ...]:
        """Values of the columns ``more`` for the step just timed."""
        return tuple(getattr(self, name) for name in self.more)

    def _grammar_ns(self, plan: Plan) -> int:
        """One mask for every structured sequence that samples, and one for each of its drafts."""
        classes: Int64 = self.batch.row(CLASS)
        at = self.structured[classes if plan.emitters is None else classes[plan.emitters]]
        masks = int(np.count_nonzero(at)) * self.engine.grammar_overhead
        return masks + int(plan.verified[at].sum()) * self.engine.grammar_overhead_per_draft

    def _depth_zero_ns(self, plan: Plan) -> int:
        """What a loaded drafter costs the host in a decode step without drafts."""
        if not plan.decodes or plan.logits > len(plan.verified) + plan.ghosts:
            return 0
        each = self.engine.depth_zero_overhead_per_sequence
        return self.engine.depth_zero_overhead + each * plan.decodes
