"""Whether a run kept up is judged on queues whose stability is known from their load."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.results.stability import Stability, judge_stability
from tests.results.build import departures, queue_run, requests, run


def flagged(law: str, rho: float, count: int, runs: int) -> float:
    """Share of ``runs`` independent queues that are called unstable."""
    found = [
        judge_stability(queue_run(np.random.default_rng([19, i]), count, rho, law)).unstable
        for i in range(runs)
    ]
    return float(np.mean(found))


@pytest.mark.parametrize("law", ["M", "D"])
def test_stable_queue_is_rarely_called_unstable(law: str) -> None:
    """At load 0.7 at most 1 run in 100 of 1,000 requests is called unstable."""
    assert flagged(law, 0.7, 1_000, 300) <= 0.01


@pytest.mark.parametrize("law", ["M", "D"])
def test_busy_queue_is_rarely_called_unstable(law: str) -> None:
    """At load 0.9 at most 1 run in 50 of 5,000 requests is called unstable."""
    assert flagged(law, 0.9, 5_000, 100) <= 0.02


@pytest.mark.parametrize("law", ["M", "D"])
def test_overloaded_queue_is_found(law: str) -> None:
    """At load 1.2 at least 99 runs in 100 of 2,000 requests are called unstable."""
    assert flagged(law, 1.2, 2_000, 300) >= 0.99


def test_slight_overload_needs_a_long_run() -> None:
    """At load 1.1 at least 95 runs in 100 of 5,000 requests are called unstable."""
    assert flagged("M", 1.1, 5_000, 100) >= 0.95


@given(st.integers(0, 10**9))
def test_burst_at_zero_is_a_closed_loop_and_never_unstable(seed: int) -> None:
    """Requests that are all wanted at 0 make no backlog grow, however long they wait."""
    service = np.random.default_rng(seed).exponential(1e9, 200)
    finish = departures(np.zeros(200), service)
    assert not judge_stability(run(requests(np.zeros(200), np.rint(finish)), unfinished=150)).unstable


def test_load_that_rises_within_capacity_is_stable() -> None:
    """With servers for all, more requests in the system are no backlog: nobody waits longer."""
    rng = np.random.default_rng(5)
    rising = np.sort(np.sqrt(rng.uniform(size=5_000))) * 300e9
    finish = rising + rng.exponential(20e9, 5_000)
    judged = judge_stability(run(requests(np.rint(rising), np.rint(finish))))
    assert judged.growth > judged.mean
    assert not judged.unstable


def shared(rate: float, count: int, capacity: int, seed: int) -> Stability:
    """A server with work for ``capacity`` requests at a time, shared by all that are there."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate, count))
    work, finish = rng.exponential(1.0, count), np.zeros(count)
    left, now, coming = dict[int, float](), 0.0, 0
    while coming < count or left:
        speed = min(1.0, capacity / len(left)) if left else 1.0
        first = min(left, key=left.__getitem__, default=-1)
        leaves = now + left[first] / speed if left else np.inf
        arrives = arrival[coming] if coming < count else np.inf
        then = min(leaves, arrives)
        left = {request: rest - (then - now) * speed for request, rest in left.items()}
        now = then
        if leaves <= arrives:
            finish[first] = now
            del left[first]
        else:
            left[coming] = float(work[coming])
            coming += 1
    return judge_stability(run(requests(np.rint(arrival * 1e9), np.rint(finish * 1e9))))


@pytest.mark.parametrize("rate", [80.0, 120.0])
def test_a_short_run_far_over_capacity_is_found(rate: float) -> None:
    """A server for 20: the last of 400 are fast, as the others leave, yet most are left behind."""
    found = [shared(rate, 400, 20, seed) for seed in range(5)]
    assert min(each.slowdown for each in found) < 1.5
    assert all(each.unstable for each in found)


@pytest.mark.parametrize("rate", [5.0, 12.0, 16.0])
def test_a_short_run_within_capacity_is_not(rate: float) -> None:
    assert not any(shared(rate, 400, 20, seed).unstable for seed in range(5))


@pytest.mark.parametrize(("count", "service_s"), [(60, 20), (100, 20), (200, 20), (1000, 200)])
def test_a_system_that_fills_up_is_not_overloaded(count: int, service_s: int) -> None:
    """Ten requests a second, each served at once: the run is just shorter than a few of them."""
    arrival = np.arange(count) * 1e8
    assert not judge_stability(run(requests(arrival, arrival + service_s * 1e9))).unstable


def test_the_late_share_is_what_capacity_leaves_behind() -> None:
    """Of a load rho > 1 there stays 1 - 1/rho, of late arrivals, too."""
    judged = judge_stability(queue_run(np.random.default_rng(3), 20_000, 2.0, "D"))
    assert judged.late_share == pytest.approx(0.5, abs=0.03)


def test_unfinished_requests_make_a_run_unstable() -> None:
    """A run of which more than one request in twenty never finished is unstable, and says so."""
    judged = judge_stability(run(requests([1, 2, 3], [2, 3, 4]), unfinished=1))
    assert judged.unstable
    assert judged.reason == "25% of the requests never finished"


def test_growth_is_the_share_of_arrivals_that_capacity_cannot_serve() -> None:
    """A server of load rho > 1 leaves 1 - 1/rho of the arrivals in the system."""
    judged = judge_stability(queue_run(np.random.default_rng(3), 20_000, 1.25, "D"))
    assert judged.growth_share == pytest.approx(1 - 1 / 1.25, abs=0.02)
    assert "of the arrivals" in judged.reason


def test_number_in_system_is_little_s() -> None:
    """Mean number in an M/D/1 at load 0.7 is rho + rho^2 / (2 (1 - rho)) (Pollaczek-Khinchine)."""
    judged = judge_stability(queue_run(np.random.default_rng(8), 200_000, 0.7, "D"))
    assert judged.mean == pytest.approx(0.7 + 0.49 / 0.6, rel=0.03)


@given(st.permutations(range(60)))
def test_order_of_rows_does_not_matter(order: list[int]) -> None:
    """Shuffling the rows changes no number of the judgement."""
    records = queue_run(np.random.default_rng(1), 60, 1.2, "M")
    shuffled = {name: values[order] for name, values in records.requests.items()}
    assert judge_stability(run(shuffled)) == judge_stability(records)


def test_default_is_stable() -> None:
    """A run with too few requests to judge is not called unstable."""
    assert not Stability().unstable
    assert Stability().reason == ""
