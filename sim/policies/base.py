"""The policy contract: how deep to speculate, decided from what a real engine knows.

A policy is asked up to three times per step. ``draft_depths`` chooses how many drafts to propose for
each sequence, before drafting; ``stop_depths`` where drafting stops, from the drafts' confidences as
they come (default: nowhere); ``verify_depths`` how many of the proposed to verify (default: all).
``observe`` tells it what became of a step. A policy never sees the future: only a policy with
``clairvoyant = True`` (the oracle) receives run lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sim.cost.step_cost import StepCost

Int64 = NDArray[np.int64]
Claims = NDArray[np.float32]
"""Confidences, shape (sequences, max_depth): the claimed acceptance of each draft, given those before."""
Depths = int | Int64
"""One depth for all sequences, or one per sequence (int64, shape (sequences,))."""


@dataclass(slots=True)
class Batch:
    """What the engine knows when it chooses depths; read only for the policy.

    Arrays have one entry per sequence that will carry drafts into the next step. ``scheduled``
    counts all requests of the step just run, prefill chunks included (vLLM's batch key);
    ``running`` those admitted, ``waiting`` those not; ``step_tokens`` are the step's and ``now_ns``
    is its start. ``class_id`` numbers the request classes in the scenario's order.
    ``remaining_tokens`` is what the context limit leaves: an engine does not know when an answer
    will end. Clairvoyant policies get the true number, and in ``run`` the drafts that would be
    accepted; for all others ``run`` is ``None``.

    The last four are given only to policies with ``wants_progress``: tokens produced so far, the time
    since the first of them (0 before it), the TPOT limit of the sequence's class (0: none), and the
    prompt tokens that the next step will compute, as far as the scheduler knows.
    """

    now_ns: int
    scheduled: int
    running: int
    waiting: int
    step_tokens: int
    max_depth: int
    request: Int64
    class_id: Int64
    context_tokens: Int64
    remaining_tokens: Int64
    cost: StepCost
    run: Int64 | None = None
    output_tokens: Int64 | None = None
    since_first_ns: Int64 | None = None
    tpot_limit_ns: Int64 | None = None
    prompt_tokens_ahead: int = 0

    @property
    def sequences(self) -> int:
        """Sequences that will carry drafts."""
        return len(self.request)


@dataclass(slots=True)
class Outcome:
    """What one step did: per sequence that emitted, its request, drafts verified and accepted.

    ``step_ns`` is the whole step's latency; ``prefill_tokens`` were computed in it, too. Arrays are
    int64 of one entry per emitting sequence; ``drafted`` counts the drafts that were verified.
    """

    step_ns: int
    request: Int64
    drafted: Int64
    accepted: Int64
    prefill_tokens: int = 0


@dataclass(frozen=True)
class Tree:
    """Shape of a draft tree: ``depth`` levels, up to ``width`` children a node, ``nodes`` verified."""

    width: int
    depth: int
    nodes: int


class Policy(Protocol):
    """Chooses depths. Stateful policies start afresh for every run (one instance per run)."""

    clairvoyant: bool
    wants_confidence: bool
    wants_outcomes: bool
    wants_progress: bool
    drafts: bool
    """False only for ``off``: no drafter is loaded and none runs."""
    tree: Tree | None
    """Shape of the draft trees, if drafts are no chains; depths then count nodes."""
    acceptance_loss: float
    """Share of acceptance that a sequence loses once it has lived through a step at depth 0."""

    def draft_depths(self, batch: Batch) -> Depths:
        """Drafts to propose per sequence; whole numbers from 0, cut to ``batch.max_depth``."""
        ...

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Drafts really proposed per sequence, at most ``depths``; asked only if ``wants_confidence``.

        Whether draft ``j`` (from 0) is proposed may depend on confidences of drafts before ``j``
        alone: drafting is sequential. Passes that were not run cost nothing.
        """
        ...

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Drafts to verify per sequence, at most ``depths``; asked only if ``wants_confidence``.

        ``confidence`` is 0 for drafts that were not proposed.
        """
        ...

    def observe(self, outcome: Outcome) -> None:
        """Learn from a finished step; called only if ``wants_outcomes``."""
        ...


class PolicyDefaults:
    """Defaults that most policies keep; subclasses override ``draft_depths``."""

    clairvoyant = False
    wants_confidence = False
    wants_outcomes = False
    wants_progress = False
    drafts = True
    tree: Tree | None = None
    acceptance_loss = 0.0

    def stop_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Propose everything that was asked for."""
        return depths

    def verify_depths(self, batch: Batch, depths: Depths, confidence: Claims) -> Depths:
        """Verify everything proposed."""
        return depths

    def observe(self, outcome: Outcome) -> None:
        """Learn nothing."""
