"""Clients that give up: who is counted, when places are free again, and that nobody vanishes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.off import Off
from sim.results.metrics import Slo, measure
from sim.results.run_records import RunRecords
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests

S = 1_000_000_000


def run(
    arrival_s: list[float], output: list[int], timeout_s: float, most: int | None = None, **engine: int
) -> RunRecords:
    """Steps of 10 ms whatever they hold; one prompt token each."""
    n = len(arrival_s)
    plain = requests(arrival_s, 1, output, most)
    profile = linear_profile(10.0, 0.0, draft=None)
    return simulate(
        Setup(
            replace(plain, timeout_ns=round(timeout_s * S)),
            profile,
            None,
            EngineConfig(preset="ideal", kv_blocks=1000, **engine),
            (RecordedAcceptance([[0] * 1000] * n),),
            0,
        ),
        Off(),
    )


def test_an_answer_that_takes_longer_than_its_client_waits_is_given_up() -> None:
    """40 tokens take 0.4 s and are in time; 60 are not."""
    records = run([0.0, 0.0], [40, 60], 0.5)
    assert records.requests["request"].tolist() == [0]
    assert (records.timed_out, records.unfinished) == (1, 0)
    assert (records.timed_out_share, records.unfinished_share) == (0.5, 0.0)
    assert records.steps["end_ns"][-1] == round(0.5 * S)
    assert measure(records, "none")["timed_out_share"] == 0.5


def test_an_answer_that_ends_at_the_instant_is_in_time() -> None:
    assert run([0.0], [50], 0.5).timed_out == 0


def test_waiting_counts_from_the_intended_arrival() -> None:
    """One place at the client: the second request is sent at 0.4 s and has 0.1 s left; the third, none."""
    records = run([0.0, 0.0, 0.0, 0.6], [40, 20, 1, 5], 0.5, most=1)
    assert records.requests["request"].tolist() == [0, 3]
    assert records.timed_out == 2


def test_in_a_closed_loop_it_counts_from_sending() -> None:
    """Three answers of 0.4 s one after the other, each in time."""
    assert run([0.0, 0.0, 0.0], [40, 40, 40], 0.5, most=1).timed_out == 0


def test_those_who_give_up_meet_no_limit() -> None:
    """Half of the requests meet a generous limit when the other half is given up."""
    records = run([0.0, 0.0], [40, 60], 0.5)
    assert measure(records, "none", {"default": Slo.model_validate({"ttft": "60s"})})["slo_share"] == 0.5


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.03, 0.2, 0.9]), min_size=1, max_size=12),
    st.sampled_from([0.05, 0.3, 2.0]),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([1, 4]),
)
def test_every_request_is_finished_or_timed_out(
    gaps: list[float], timeout_s: float, most: int | None, seqs: int
) -> None:
    """No request is in both, and who finished was in time, but for the step that ran."""
    n = len(gaps)
    records = run(
        np.cumsum(gaps).tolist(), [3 + 7 * (i % 5) for i in range(n)], timeout_s, most, max_num_seqs=seqs
    )
    assert len(records.requests["request"]) + records.timed_out == n
    assert records.unfinished == 0
    spent = records.requests["finish_ns"] - records.origin_ns
    assert np.all(spent < round(timeout_s * S) + 10_000_000)
