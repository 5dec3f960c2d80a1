"""What the engine writes down: the rows of the simulator's records, as plain data.

Names and meanings are those of ``sim.results.records``; ``calibrate.validate`` makes records of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from calibrate.reference.drafting import Drafted
from calibrate.reference.plan import Plan
from calibrate.reference.sequence import Sequence


@dataclass
class Journal:
    """Rows of requests and steps, and gaps between streamed chunks as (gap in ns, how often, when).

    With ``pad_queries`` the queries of unequal rows are counted as wide as the widest.
    """

    pad_queries: bool
    requests: list[dict[str, int]] = field(default_factory=list)
    steps: list[dict[str, int]] = field(default_factory=list)
    gaps: list[tuple[int, int, int]] = field(default_factory=list)

    def step(self, plan: Plan, drafted: Drafted, start_ns: int, spent: dict[str, int], slots: int) -> int:
        """Append the row of a step; returns its end."""
        times = {f"{name}_ns": spent.get(name, 0) for name in ("verify", "accept", "draft", "host")}
        end = start_ns + sum(times.values())
        self.steps.append(
            {
                "start_ns": start_ns,
                "end_ns": end,
                **plan.sums(self.pad_queries),
                **drafted.columns(),
                **times,
                "accepted": sum(row.accepted for row in plan.emitters),
                "emitted": sum(row.emitted for row in plan.emitters),
                "kv_blocks": slots,
                "preempted": 0,
                "graph": 1,
            }
        )
        return end

    def stamp(self, plan: Plan, end_ns: int) -> None:
        """Note when the step's chunks were streamed."""
        for row in plan.emitters:
            sequence = row.sequence
            if sequence.first_token_ns < 0:
                sequence.first_token_ns = end_ns
            else:
                self.gaps.append((end_ns - sequence.last_emit_ns, 1, end_ns))
            sequence.last_emit_ns = end_ns

    def finish(self, sequence: Sequence, end_ns: int) -> None:
        """Append the row of a finished request."""
        request = sequence.request
        self.requests.append(
            {
                "request": request.number,
                "class_id": request.class_id,
                "arrival_ns": request.arrival_ns,
                "sent_ns": sequence.sent_ns,
                "scheduled_ns": sequence.scheduled_ns,
                "first_token_ns": sequence.first_token_ns,
                "finish_ns": end_ns,
                "prompt_tokens": len(request.prompt),
                "output_tokens": request.output_tokens,
                "rounds": sequence.rounds,
                "drafted": sequence.drafted,
                "accepted": sequence.accepted,
                "preemptions": 0,
            }
        )
