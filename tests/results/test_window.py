"""The warm-up is cut as stated or by MSER-5, and the drain is never measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.errors import InputError
from sim.results.window import (
    RequestsCut,
    TimeCut,
    Warmup,
    Window,
    common_warmup,
    measured_requests,
    measured_window,
    mser,
    warmup_requests,
)
from tests.results.build import queue_run, requests, run


def plain_mser(values: list[float], batch: int) -> int:
    """MSER by its definition, summing anew for every cut."""
    means = [sum(values[i : i + batch]) / batch for i in range(0, len(values) - batch + 1, batch)]
    best, cut = float("inf"), 0
    for d in range(len(means) // 2 + 1 if len(means) > 1 else 0):
        kept = means[d:]
        centre = sum(kept) / len(kept)
        statistic = sum((y - centre) ** 2 for y in kept) / len(kept) ** 2
        if statistic < best * (1 - 1e-9):
            best, cut = statistic, d
    return cut * batch


@given(st.lists(st.integers(-1000, 1000), max_size=120), st.integers(1, 7))
def test_mser_minimises_its_statistic(values: list[int], batch: int) -> None:
    """The one-pass cut has the least statistic of all cuts in the first half."""
    found = mser(np.array(values, dtype=np.float64), batch)
    expected = plain_mser([float(v) for v in values], batch)
    assert found == expected or _statistic(values, batch, found) == pytest.approx(
        _statistic(values, batch, expected), abs=1e-9
    )


def _statistic(values: list[int], batch: int, cut: int) -> float:
    means = np.array(values[: len(values) // batch * batch], dtype=np.float64).reshape(-1, batch).mean(axis=1)
    kept = means[cut // batch :]
    return float(((kept - kept.mean()) ** 2).sum() / len(kept) ** 2)


def test_mser_cuts_a_start_that_differs() -> None:
    """A hundred values far off at the start of a steady thousand are cut, within one batch."""
    rng = np.random.default_rng(2)
    values = np.concatenate([np.linspace(100, 10, 100), rng.normal(10, 1, 900)])
    assert 85 <= mser(values) <= 105


def test_mser_leaves_a_steady_sequence_nearly_whole() -> None:
    """Of independent values MSER-5 cuts few: under a tenth in the median of 200 sequences."""
    cuts = [mser(np.random.default_rng([4, i]).normal(size=1_000)) for i in range(200)]
    assert np.median(cuts) < 100


def test_open_window_runs_from_the_first_kept_to_the_last_arrival() -> None:
    """What finishes after the last arrival is drain: the window does not reach it."""
    records = run(requests([10, 20, 30, 40], [15, 25, 99, 100]))
    assert measured_window(records, RequestsCut(requests=2)) == Window(30, 40, 2)
    assert measured_window(records, "none") == Window(0, 40, 0)


def test_request_that_arrives_in_the_window_counts_even_if_it_finishes_in_the_drain() -> None:
    """Leaving slow requests out because they finish late would flatter the latency."""
    records = run(requests([10, 20, 30, 40], [15, 25, 99, -1], request=[0, 1, 2, 3]), unfinished=1)
    assert measured_requests(records, Window(20, 40, 1)).tolist() == [1, 2]


def test_closed_window_ends_with_the_last_sending() -> None:
    """After the last sending of a closed loop its concurrency falls."""
    records = run(requests([0, 0, 0], [50, 60, 110], sent_ns=[0, 0, 50]))
    assert measured_window(records, "none") == Window(0, 50, 0)


def test_all_at_once_is_measured_to_the_last_finish() -> None:
    """With every request sent at 0 there is no load to hold steady: the whole run is the window."""
    assert measured_window(run(requests([0, 0], [50, 60])), "none") == Window(0, 60, 0)


def test_time_cut_starts_the_window_at_the_time() -> None:
    """``{time: 30s}`` leaves out the arrivals before it, and their number is reported."""
    second = 10**9
    records = run(requests([10 * second, 31 * second, 60 * second], [70 * second] * 3))
    assert measured_window(records, TimeCut.model_validate({"time": "30s"})) == Window(
        30 * second, 60 * second, 1
    )


@pytest.mark.parametrize("warmup", [RequestsCut(requests=3), TimeCut.model_validate({"time": "1s"})])
def test_warmup_that_leaves_nothing_is_refused(warmup: Warmup) -> None:
    """A stated cut as long as the run raises, naming the cut and the number of requests."""
    with pytest.raises(InputError, match="leaves none of 3 requests"):
        measured_window(run(requests([1, 2, 3], [4, 5, 6])), warmup)


def test_mser_keeps_at_least_half() -> None:
    """However a run drifts, MSER-5 cuts at most its first half."""
    records = queue_run(np.random.default_rng(0), 400, 2.0, "D")
    assert measured_window(records).skipped <= 200


def test_warmup_is_read_from_yaml_values() -> None:
    """The four forms of ``warmup`` validate; a bare number of seconds does not."""
    adapter: TypeAdapter[Warmup] = TypeAdapter(Warmup)
    for value in ("mser5", "none", {"requests": 5}, {"time": "30s"}):
        adapter.validate_python(value)
    with pytest.raises(ValidationError):
        adapter.validate_python({"time": 30})


def test_common_warmup_is_the_longest_of_the_stable_runs() -> None:
    """Policies of one seed are measured over the same requests; an overloaded one does not decide."""
    runs = [queue_run(np.random.default_rng(i), 1_000, 0.8, "M") for i in range(4)]
    overloaded = queue_run(np.random.default_rng(9), 1_000, 2.0, "M")
    longest = max(warmup_requests(records, "mser5") for records in runs)
    assert warmup_requests(overloaded, "mser5") > longest
    assert common_warmup([*runs, overloaded], "mser5") == RequestsCut(requests=longest)
    assert common_warmup([overloaded], "none") == "none"
