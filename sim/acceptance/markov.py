"""Good and bad stretches: a two-state chain along the output, and what rounds over a chain accept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.spans import Spans

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Markov:
    """Acceptance ``good`` or ``bad`` by the state at each output position.

    A chain starts in its stationary law, so every position has it.
    """

    seed: int
    good: float
    bad: float
    leave_good: float
    leave_bad: float

    def __call__(self, spans: Spans, /) -> Floats:
        """Draw acceptance at every output position, flat."""
        return np.where(self.states(spans), self.good, self.bad)

    def states(self, spans: Spans) -> Bools:
        """Whether each position is good, flat; those of a prefix are a prefix.

        Each draw is a map of the two states: below both leave probabilities it swaps them, between
        the two it sends both to one state, above both it changes nothing. So a state is that of the
        last such meeting, swapped as often as maps since then swap. Every request begins with one.
        """
        draw = spans.uniforms(self.seed, "acceptance/markov")
        low, high = sorted((self.leave_good, self.leave_bad))
        begins = spans.starts[spans.counts > 0]
        meets, swaps = (draw >= low) & (draw < high), draw < low
        meets[begins], swaps[begins] = True, False
        state = np.full(len(draw), self.leave_bad > self.leave_good)
        state[begins] = draw[begins] < good_share(self.leave_good, self.leave_bad)
        met = np.maximum.accumulate(np.where(meets, np.arange(len(draw)), 0))
        swapped = np.cumsum(swaps)
        return np.asarray(state[met] ^ ((swapped - swapped[met]) % 2 == 1))

    @property
    def rates(self) -> Floats:
        """Acceptance in the good and in the bad state, shape (2,)."""
        return np.array([self.good, self.bad])

    @property
    def transition(self) -> Floats:
        """Probability of the next position's state, by row of this one's, shape (2, 2)."""
        return np.array([[1 - self.leave_good, self.leave_good], [self.leave_bad, 1 - self.leave_bad]])


def good_share(leave_good: float, leave_bad: float) -> float:
    """Share of positions in the good state."""
    return leave_bad / (leave_good + leave_bad)


def survival_from(start: Floats, rates: Floats, transition: Floats, by_depth: Floats) -> Floats:
    """Probability that a round accepts at least 1, 2, ... drafts, shape as ``by_depth``.

    ``start`` is the law of the state at the round's first position.
    """
    state, survival = start, np.empty(len(by_depth))
    for depth, factor in enumerate(by_depth.tolist()):
        state = state * rates * factor
        survival[depth] = state.sum()
        state = state @ transition
    return survival


def survival_in_walks(rates: Floats, transition: Floats, by_depth: Floats) -> Floats:
    """Probability that a round accepts at least 1, 2, ... drafts in long generations at one depth.

    A round that starts at position p and accepts a drafts is followed by one at p + a + 1. Its first
    state then depends on why this round ended: rounds start behind a rejection, so more often in
    bad stretches, the deeper they are. Exact; ``by_depth`` has one factor per draft of the round.
    """
    states = len(rates)
    alive, onward = np.eye(states), np.zeros((states, states))
    for factor in by_depth.tolist():
        accepted = alive * (rates * factor)
        onward += (alive - accepted) @ transition
        alive = accepted @ transition
    onward += alive @ transition
    return survival_from(stationary(onward), rates, transition, by_depth)


def stationary(transition: Floats) -> Floats:
    """The law that a step of the chain leaves as it is."""
    size = len(transition)
    system = np.vstack([transition.T - np.eye(size), np.ones(size)])
    law = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
    return np.asarray(law)
