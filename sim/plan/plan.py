"""All cases planned, and which of them to take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from sim.ahead.notice import adopt, watched
from sim.errors import InputError
from sim.plan.answer import TOLERANCE, Answer, Question, answer
from sim.plan.money import Prices, cost_per_million, kwh_per_million
from sim.plan.what_if import Case


@dataclass(frozen=True)
class Plan:
    """The answers to one question; ``seeds`` is how many the search used."""

    name: str
    question: Question
    prices: Prices
    answers: tuple[Answer, ...]
    seeds: int
    notes: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[Answer, ...]:
        """Answers that may be recommended: there is a fleet, and the policy could be real."""
        return tuple(each for each in self.answers if each.size and not each.bound)

    @property
    def best(self) -> Answer | None:
        """The cheapest fleet (the fewest GPUs, without prices); among equals, most load per cost."""
        ranked = sorted(self.choices, key=lambda each: (self._whole(each), -self._yield(each)))
        return ranked[0] if ranked else None

    @property
    def even(self) -> tuple[Answer, ...]:
        """The best and those whose load per cost differs by less than the larger of their errors."""
        best = self.best
        if best is None:
            return ()
        return tuple(each for each in self.choices if self._differs(best, each) < self.margin(best, each))

    def saves(self, other: Answer) -> bool:
        """Whether the best fleet costs less than another's (has fewer GPUs, without prices)."""
        return self.best is not None and self._whole(self.best) < self._whole(other)

    def margin(self, one: Answer, other: Answer) -> float:
        """Differences under it are none: the profiles' error, or how closely rates are found."""
        return max(one.error, other.error, TOLERANCE)

    def gpus(self, each: Answer) -> int:
        """GPUs of one replica."""
        return self.prices.gpus_per_replica or each.gpus

    def cost(self, each: Answer) -> float | None:
        """Money per million output tokens at the peak, if priced and feasible."""
        price = self.prices.of(each.case.profile)
        if price is None or each.size is None:
            return None
        return cost_per_million(
            each.size.replicas * self.gpus(each), price, each.size.at_peak.output_tokens_per_s
        )

    def kwh(self, each: Answer) -> float | None:
        """Kilowatt hours per million output tokens at the peak, if power is given."""
        watts = self.prices.watts_of(each.case.profile)
        if watts is None or each.size is None:
            return None
        return kwh_per_million(
            each.size.replicas * self.gpus(each), watts, each.size.at_peak.output_tokens_per_s
        )

    def _unit(self, each: Answer) -> float:
        """Cost of one replica: money where all are priced, else GPUs."""
        prices = [self.prices.of(one.case.profile) for one in self.choices]
        price = self.prices.of(each.case.profile) if None not in prices else None
        return self.gpus(each) * (1.0 if price is None else price)

    def _whole(self, each: Answer) -> float:
        return each.size.replicas * self._unit(each) if each.size else float("inf")

    def _yield(self, each: Answer) -> float:
        return each.rate_per_s / self._unit(each)

    def _differs(self, one: Answer, other: Answer) -> float:
        return abs(self._yield(other) / self._yield(one) - 1)


def make_plan(
    name: str,
    cases: Sequence[Case],
    question: Question,
    prices: Prices,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    notes: tuple[str, ...] = (),
) -> Plan:
    """Plan every case, in ``jobs`` worker processes; no answer depends on how many.

    ``progress`` is called with (finished, total). Raises ``InputError`` when a case cannot be set up,
    or a worker dies.
    """
    answers: list[Answer] = []
    progress(0, len(cases))
    with _mapper(min(jobs, len(cases))) as map_all:
        for each in map_all(partial(answer, question=question), cases):
            answers.append(each)
            progress(len(answers), len(cases))
    return Plan(name, question, prices, tuple(answers), len(cases[0].scenario.run.seeds), notes)


_MapAll = Callable[[Callable[[Case], Answer], Sequence[Case]], Iterator[Answer]]


@contextmanager
def _mapper(jobs: int) -> Iterator[_MapAll]:
    """``map`` over cases, here or in worker processes; answers come in the order of the cases."""
    if jobs <= 1:
        yield map
        return
    pool = ProcessPoolExecutor(jobs, initializer=adopt, initargs=(watched(),))
    try:
        yield pool.map
    except BrokenProcessPool:
        raise InputError("a worker died; if memory ran out, take fewer --jobs or fewer --requests") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
