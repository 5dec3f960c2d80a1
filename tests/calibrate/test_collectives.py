"""What devices send each other: laws of a ring, and the measured tables."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.compose.collectives import (
    Link,
    Op,
    Times,
    collective,
    dispatch_terms,
    from_link,
    gather_term,
    reduce_term,
)
from calibrate.compose.evaluate import pass_ns
from calibrate.compose.tables import Folders, Ledger, TableError

LINK = Link(50e9, 4_000.0, "a link made up for tests")
devices = st.sampled_from((2, 4, 8))
ops = st.sampled_from(get_args(Op))


@given(ops, devices, st.integers(1, 10**8))
def test_a_ring_sends_its_bytes_at_the_links_rate(op: Op, d: int, numbers: int) -> None:
    """Every device sends (d-1)/d of the whole, in d-1 turns; an all-reduce does so twice."""
    turns = (2 if op == "all_reduce" else 1) * (d - 1)
    ns = float(from_link(LINK, op, d).at(np.array([float(numbers)]))[0])
    assert ns == pytest.approx(turns * 4_000 + turns / d * numbers * 2 / 50e9 * 1e9)


@given(ops, devices, st.integers(0, 10**7), st.integers(1, 10**7))
def test_more_is_never_sooner(op: Op, d: int, n: int, more: int) -> None:
    less, greater = from_link(LINK, op, d).at(np.array([float(n), float(n + more)]))
    assert less < greater


def test_a_dense_pass_sums_twice_a_layer_and_once_after_the_embedding() -> None:
    times = Times("made", "composed", 2, np.array([0.0, 1e6]), np.array([10.0, 1e6 + 10.0]))
    term = reduce_term(times, 1000, 2 * 32 + 1)
    assert pass_ns([term], {"tokens": 64}) == pytest.approx(65 * (64_000 + 10))
    assert pass_ns([term], {"tokens": 0}) == 0


def test_logits_are_gathered_where_they_are_sampled() -> None:
    times = Times("made", "composed", 2, np.array([0.0, 1e9]), np.array([0.0, 1e9]))
    assert pass_ns([gather_term(times, 128_000, "logits")], {"logits": 4, "tokens": 999}) == 4 * 128_000


def test_tokens_of_all_replicas_travel_to_the_experts_and_back() -> None:
    times = Times("made", "composed", 4, np.array([0.0, 1e9]), np.array([0.0, 1e9]))
    terms = dispatch_terms(times, times, 1000, 3)
    assert pass_ns(terms, {"tokens": 16}) == 2 * 3 * 4 * 16 * 1000


def test_a_device_without_a_table_takes_its_link_and_says_so(folders: Folders) -> None:
    found = collective(folders, "no_such_gpu", "all_reduce", 2, Ledger(), LINK)
    assert found.mark == "analytic"
    assert "a link made up for tests" in found.key
    with pytest.raises(TableError, match="no_such_gpu"):
        collective(folders, "no_such_gpu", "all_reduce", 2, Ledger())


@pytest.mark.parametrize(
    ("gpu", "d", "least", "most"),
    [("h100_sxm", 2, 300e9, 450e9), ("h100_sxm", 8, 300e9, 480e9), ("a100_sxm", 2, 180e9, 300e9)],
)
def test_large_all_reduces_run_at_what_the_links_can(
    gpu: str, d: int, least: float, most: float, packaged: Folders
) -> None:
    """NVLink of H100 (450 GB/s a way) and A100 (300): so sizes in the table are numbers of two bytes."""
    times = collective(packaged, gpu, "all_reduce", d, Ledger())
    size = 2.0**28
    rate = 2 * (d - 1) / d * size * 2 / float(times.at(np.array([size]))[0]) * 1e9
    assert least < rate < most


def test_small_all_reduces_take_microseconds(packaged: Folders) -> None:
    for gpu in ("h100_sxm", "a100_sxm", "h200_sxm", "b200_sxm"):
        ns = float(collective(packaged, gpu, "all_reduce", 4, Ledger()).at(np.array([4096.0]))[0])
        assert 3_000 < ns < 9_000
