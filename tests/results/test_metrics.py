"""Metrics follow from the records by the formulas of docs/metrics.md."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import SimulationError
from sim.results.metrics import Slo, measure, weighted_percentiles
from sim.results.names import METRICS
from sim.results.run_records import RunRecords
from sim.results.window import RequestsCut
from tests.results.build import queue_run, requests, run, steps

MS = 1_000_000


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 9)), min_size=1, max_size=40))
def test_weighted_percentiles_equal_numpy_on_repeated_values(pairs: list[tuple[int, int]]) -> None:
    """Percentiles of (value, count) pairs are NumPy's of the values written out."""
    values, counts = np.array(pairs, dtype=np.int64).T
    expected = np.percentile(np.repeat(values, counts), (0, 50, 90, 99, 100))
    assert weighted_percentiles(values, counts, (0, 50, 90, 99, 100)) == pytest.approx(expected, rel=1e-12)


@st.composite
def some_run(draw: st.DrawFn) -> RunRecords:
    """A run of an open loop with arbitrary requests that obey causality, and no steps."""
    gaps = draw(st.lists(st.integers(1, 10**9), min_size=1, max_size=30))
    part = st.integers(0, 10**9)
    rows = [(draw(part), draw(part), draw(part), draw(st.integers(1, 50))) for _ in gaps]
    wait, ttft, rest, output = np.array(rows, dtype=np.int64).T
    arrival = np.cumsum(gaps)
    sent = arrival + wait
    first = sent + ttft
    finish = first + np.where(output > 1, rest, 0)
    given_ = {"sent_ns": sent, "first_token_ns": first, "output_tokens": output}
    return run(requests(arrival, finish, **given_))


@given(some_run())
def test_latencies_follow_vllm_bench(records: RunRecords) -> None:
    """TTFT, E2EL and TPOT = (E2EL - TTFT)/(n - 1), request by request, counted from the arrival."""
    rows = list(zip(*(records.requests[n].tolist() for n in _NEEDED), strict=True))
    ttft = [(first - arrival) / MS for arrival, _, first, _, _ in rows]
    e2el = [(finish - arrival) / MS for arrival, _, _, finish, _ in rows]
    tpot = [(e - t) / (n - 1) for e, t, (*_, n) in zip(e2el, ttft, rows, strict=True) if n > 1]
    found = measure(records, "none")
    for name, values in (("ttft", ttft), ("e2el", e2el), ("tpot", tpot)):
        for statistic, expected in _statistics(values).items():
            assert found[f"{name}_{statistic}_ms"] == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
    waits = [(sent - arrival) / MS for arrival, sent, *_ in rows]
    assert found["client_wait_mean_ms"] == pytest.approx(np.mean(waits))


_NEEDED = ("arrival_ns", "sent_ns", "first_token_ns", "finish_ns", "output_tokens")


def _statistics(values: list[float]) -> dict[str, float]:
    if not values:
        return dict.fromkeys(("mean", "p50", "p90", "p99"), np.nan)
    return {"mean": float(np.mean(values))} | {f"p{q}": float(np.percentile(values, q)) for q in (50, 90, 99)}


@given(some_run(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(records: RunRecords, source: random.Random) -> None:
    """Requests may be written down in any order, such as that of their finishing."""
    order = np.random.default_rng(source.randrange(2**32)).permutation(len(records.requests["request"]))
    shuffled = {name: values[order] for name, values in records.requests.items()}
    a, b = measure(records).values, measure(run(shuffled)).values
    assert list(a) == list(b)
    assert np.allclose(list(a.values()), list(b.values()), equal_nan=True, rtol=1e-12)


@given(some_run(), st.integers(1, 10**10))
def test_goodput_is_at_most_throughput(records: RunRecords, limit_ns: int) -> None:
    """Good requests are some of those that finish, and all of them when the limit is far."""
    tight = measure(records, "none", {"default": Slo.model_validate({"e2el": f"{limit_ns}ns"})})
    loose = measure(records, "none", {"default": Slo.model_validate({"ttft": "100h", "tpot": "100h"})})
    assert tight["goodput_per_s"] <= tight["requests_per_s"] == loose["goodput_per_s"]
    assert 0 <= tight["slo_share"] <= loose["slo_share"] == 1


def test_every_metric_has_a_name_in_stable_order() -> None:
    """Metrics come in the order of METRICS, the missing ones as NaN."""
    assert list(measure(run(requests([1, 2], [3, 4]))).values) == list(METRICS)


def test_md1_mean_latency_is_pollaczek_khinchine() -> None:
    """E2EL of an M/D/1 at load 0.7 is 1 + 0.7 / (2 * 0.3) services, and it is busy 0.7 of the time."""
    records = queue_run(np.random.default_rng(12), 100_000, 0.7, "D")
    finish = records.requests["finish_ns"]
    busy = run(
        records.requests, steps(finish - 10**9, finish, sequences=np.ones(100_000), emitted=np.ones(100_000))
    )
    found = measure(busy)
    assert found["e2el_mean_ms"] == pytest.approx(1000 * (1 + 0.7 / 0.6), rel=0.03)
    assert found["busy_share"] == pytest.approx(0.7, rel=0.02)
    assert found["output_tokens_per_s"] == pytest.approx(0.7, rel=0.02)


def test_itl_is_the_step_and_tpot_the_token() -> None:
    """Case U14: 293 tok/s at acceptance length 2.55 are TPOT 3.4 ms and steps of 8.7 ms."""
    rounds, step = 1_000, round(2.55 / 293 * 1e9)
    tokens = 1 + round(rounds * 2.55)
    ends = step * np.arange(1, rounds + 2)
    stream = requests(
        [0], [ends[-1]], first_token_ns=[step], output_tokens=[tokens], rounds=[rounds], accepted=[1_550]
    )
    found = measure(run(stream, steps(ends - step, ends), gaps=([step], [rounds])), "none")
    assert found["tpot_mean_ms"] == pytest.approx(1000 / 293, rel=1e-3)
    assert found["itl_mean_ms"] == found["step_mean_ms"] == pytest.approx(8.7, abs=0.01)
    assert found["acceptance_length"] == 2.55


def test_closed_loop_counts_from_the_sending() -> None:
    """Where every request is wanted at 0, waiting for a place is not latency but client wait."""
    records = run(requests([0, 0], [10 * MS, 30 * MS], sent_ns=[0, 10 * MS]))
    found = measure(records, "none")
    assert found["e2el_mean_ms"] == 15
    assert found["client_wait_mean_ms"] == 5


def test_throughput_counts_tokens_of_steps_that_end_in_the_window() -> None:
    """Neither warm-up nor drain adds tokens: 30 in the 2 s between first kept and last arrival."""
    second = 10**9
    ends = np.array([1, 2, 3, 4]) * second
    records = run(
        requests(np.array([0, 1, 3]) * second, np.array([2, 3, 9]) * second),
        steps(ends - second, ends, emitted=[100, 10, 20, 100]),
    )
    found = measure(records, RequestsCut(requests=1))
    assert found["output_tokens_per_s"] == 15
    assert found["requests_per_s"] == 1
    assert found["window_requests"] == 2


def test_batch_is_weighted_by_time_and_depth_by_step() -> None:
    """A step of 3 ms with 4 sequences and one of 1 ms with 8 make a batch of 5; depths 2 and 1 one of 1.5."""
    work = steps(
        [0, 3 * MS], [3 * MS, 4 * MS], sequences=[4, 8], decodes=[4, 8], drafted=[8, 8], accepted=[6, 2],
        tokens=[12, 16], logits=[12, 16], kv_blocks=[40, 70], preempted=[0, 1], emitted=[10, 10],
    )  # fmt: skip
    found = measure(run(requests([0], [4 * MS]), work), "none", flops_per_step=np.array([30.0, 10.0]))
    assert found["batch_mean"] == 5
    assert found["depth_mean"] == 1.5
    assert found["step_waste_share"] == 8 / 28
    assert found["kv_peak_share"] == 0.7
    assert found["preemptions"] == 1
    assert found["busy_share"] == 1
    assert found["flops_per_token"] == 2
    assert np.isnan(found["bytes_per_token"])


def test_waste_is_the_share_of_verified_drafts_rejected() -> None:
    """100 drafted and 40 accepted in 20 rounds: 60 % wasted, acceptance length 3."""
    found = measure(run(requests([1], [2], rounds=[20], drafted=[100], accepted=[40])), "none")
    assert found["draft_waste_share"] == 0.6
    assert found["acceptance_length"] == 3


def test_without_drafts_a_round_emits_one_token_and_wastes_nothing() -> None:
    """Plain decoding has acceptance length 1 and no waste."""
    found = measure(run(requests([1], [2])), "none")
    assert (found["acceptance_length"], found["draft_waste_share"]) == (1, 0)


def test_each_class_has_its_own_slo() -> None:
    """Chat must answer within 1 ms and misses once; code has no limit and cannot miss."""
    arrivals = [MS, 2 * MS, 3 * MS, 4 * MS]
    records = run(
        requests(
            arrivals,
            [a + 2 * MS - k for a, k in zip(arrivals, (0, MS, 0, 0), strict=True)],
            class_id=[0, 0, 1, 1],
        ),
        classes=("chat", "code"),
    )
    found = measure(records, "none", {"chat": Slo.model_validate({"ttft": "1ms"})})
    assert found["slo_share"] == 0.75


def test_one_token_has_no_tpot_to_miss() -> None:
    """As in vLLM bench, a request of one token meets any TPOT."""
    found = measure(run(requests([1], [5])), "none", {"default": Slo.model_validate({"tpot": "1ns"})})
    assert found["slo_share"] == 1
    assert np.isnan(found["tpot_mean_ms"])


def test_records_without_a_column_are_a_bug() -> None:
    """Missing columns are named at once."""
    broken = requests([1], [2])
    del broken["rounds"]
    with pytest.raises(SimulationError, match="requests lack the columns rounds"):
        run(broken)


def test_large_run_is_measured_in_half_a_second() -> None:
    """10,000 requests, 350,000 steps and 100,000 distinct gaps take under 0.5 s of CPU time."""
    rng = np.random.default_rng(0)
    ends = np.cumsum(rng.integers(5 * MS, 20 * MS, 350_000))
    arrival = np.sort(rng.integers(1, ends[-1], 10_000))
    records = run(
        requests(arrival, arrival + rng.integers(MS, 1000 * MS, 10_000)),
        steps(np.concatenate([[0], ends[:-1]]), ends, decodes=np.ones(350_000), emitted=np.ones(350_000)),
        gaps=(rng.integers(MS, 100 * MS, 100_000).tolist(), [3] * 100_000),
    )
    took = []
    for _ in range(3):
        start = time.process_time()
        measure(records, slos={"default": Slo()})
        took.append(time.process_time() - start)
    assert min(took) < 0.5
