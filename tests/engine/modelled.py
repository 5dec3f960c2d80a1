"""Small builders for engine tests: profiles with stated step costs, paths with stated luck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrate.profile import Device, Drafter, ModelWork, Profile, Target, Term
from sim.cost.step_cost import StepCost
from sim.policies.base import Batch
from sim.workload.requests import Requests


def linear_profile(
    fixed_ms: float = 20.0,
    per_token_ms: float = 0.5,
    per_context_ms: float = 0.0,
    draft: tuple[float, float, float] | None = (2.0, 0.05, 1.5),
    kind: str = "draft_model",
) -> Profile:
    """A profile of straight lines.

    A step takes ``fixed + per_token * tokens + per_context * context``; with ``draft`` = (d0, d1,
    d2), the drafter's first pass takes d0 + d1 * tokens and each further pass d2 (all ms).
    """
    work = ModelWork(
        name="m",
        parameters=1e9,
        weight_bytes=2e9,
        read_bytes=2e9,
        flops_per_token=2e9,
        kv_bytes_per_token=1e5,
    )
    verify = Term(
        name="linear",
        mark="analytic",
        source="test",
        fixed_ns=fixed_ms * 1e6,
        per_ns={"tokens": per_token_ms * 1e6, "context_tokens": per_context_ms * 1e6},
    )
    drafters = {}
    if draft is not None:
        first = Term(
            name="d",
            mark="analytic",
            source="test",
            fixed_ns=draft[0] * 1e6,
            per_ns={"tokens": draft[1] * 1e6},
        )
        further = Term(name="d", mark="analytic", source="test", fixed_ns=draft[2] * 1e6)
        drafters["d"] = Drafter(kind=kind, first=(first,), next=(further,))  # type: ignore[arg-type]
    return Profile(
        schema="leadline.profile/1",
        name="linear",
        kind="analytic",
        created="2026-11-29",
        command="none",
        device=Device(name="x", memory_bytes=8e10, bandwidth_bytes_per_s=2e12, peak_flops_per_s=3e14),
        dtype="bf16",
        max_tokens=8192,
        target=Target(work=work, verify=(verify,)),
        drafters=drafters,
    )


def requests(
    arrival_s: ArrayLike,
    prompt: ArrayLike,
    output: ArrayLike,
    max_concurrency: int | None = None,
) -> Requests:
    """Requests from plain lists (seconds, tokens); scalars repeat."""
    arrivals = np.round(np.asarray(arrival_s, dtype=float) * 1e9).astype(np.int64)
    n = len(arrivals)
    return Requests(
        arrival_ns=arrivals,
        prompt_tokens=np.broadcast_to(np.asarray(prompt, dtype=np.int64), n).copy(),
        output_tokens=np.broadcast_to(np.asarray(output, dtype=np.int64), n).copy(),
        class_id=np.zeros(n, dtype=np.int64),
        max_concurrency=max_concurrency,
    )


def view(cost: StepCost, sequences: int, context: int, **given: Any) -> Batch:
    """What a policy sees of ``sequences`` equal sequences, nothing waiting."""
    n = sequences
    plain: dict[str, Any] = {
        "now_ns": 0,
        "scheduled": n,
        "running": n,
        "waiting": 0,
        "step_tokens": n,
        "max_depth": 7,
        "request": np.arange(n),
        "class_id": np.zeros(n, dtype=np.int64),
        "context_tokens": np.full(n, context),
        "remaining_tokens": np.full(n, 100),
    }
    return Batch(**(plain | given), cost=cost)


@dataclass(frozen=True)
class FixedPath:
    """A path given as a list."""

    run: NDArray[np.uint8]
    found: None = None

    def confidence(self) -> NDArray[np.float32]:
        """No claims."""
        return np.zeros((len(self.run), 1), dtype=np.float32)


@dataclass(frozen=True)
class RecordedAcceptance:
    """Acceptance process whose run lengths are listed per request."""

    runs: Sequence[Sequence[int]]
    max_depth: int = 64

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> FixedPath:
        """The listed path."""
        return FixedPath(np.asarray(self.runs[request][:output_tokens], dtype=np.uint8))

    def expected_tokens_per_round(self, depth: int) -> float:
        """Not known."""
        return float("nan")
