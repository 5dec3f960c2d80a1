"""How many experts tokens reach: laws of coverage, and the published expert layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.compose.moe import ROUTINGS, moe_term
from calibrate.compose.routing import Routing
from calibrate.compose.tables import Folders, Ledger
from calibrate.profile import Term
from calibrate.shapes import Moe
from calibrate.sharding import Split

QWEN = Moe(2048, 768, 128, 8, layers=48)
experts = st.sampled_from(((8, 2), (64, 6), (128, 4), (128, 8), (256, 8)))
skews = st.floats(0.0, 2.5)
tokens = st.integers(0, 4096)
devices = st.sampled_from((1, 2, 4, 8))


@given(experts, skews, tokens)
def test_no_more_experts_are_reached_than_there_are_or_than_tokens_ask_for(
    size: tuple[int, int], skew: float, n: int
) -> None:
    covered = Routing(*size, skew).covered(n)
    assert 0 <= covered <= min(size[0], size[1] * n) * (1 + 1e-9)


@given(experts, skews, st.integers(0, 1000), st.integers(1, 1000))
def test_more_tokens_reach_more(size: tuple[int, int], skew: float, n: int, more: int) -> None:
    routing = Routing(*size, skew)
    assert routing.covered(n) <= routing.covered(n + more) + 1e-9


@given(experts, skews, tokens)
def test_skew_reaches_no_more_than_even_routing(size: tuple[int, int], skew: float, n: int) -> None:
    assert Routing(*size, skew).covered(n) <= Routing(*size).covered(n) + 1e-9


@given(experts, tokens)
def test_even_routing_is_the_published_formula(size: tuple[int, int], n: int) -> None:
    e, k = size
    assert Routing(e, k).covered(n) == pytest.approx(e * (1 - (1 - k / e) ** n))


@given(experts, skews)
def test_a_token_chooses_its_number_of_experts(size: tuple[int, int], skew: float) -> None:
    q = Routing(*size, skew).popularity()
    assert q.sum() == pytest.approx(size[1])
    assert q.max() <= 1 + 1e-12
    assert np.all(np.diff(q) <= 1e-12)


@given(experts, skews, tokens)
def test_one_device_has_them_all(size: tuple[int, int], skew: float, n: int) -> None:
    routing = Routing(*size, skew)
    assert routing.reached(n) == pytest.approx(routing.covered(n))
    assert routing.here(n) == n
    assert routing.imbalance() == pytest.approx(1.0)


@given(experts, skews, tokens, devices)
def test_the_fullest_device_has_at_least_its_share_and_at_most_its_experts(
    size: tuple[int, int], skew: float, n: int, d: int
) -> None:
    routing = Routing(*size, skew, devices=d)
    assert routing.covered(n) / d <= routing.reached(n) + 1e-9
    assert routing.reached(n) <= size[0] / d
    assert routing.imbalance() >= 1 - 1e-9
    assert routing.here(n) <= n


@given(experts, st.integers(0, 500), st.integers(1, 500), devices)
def test_more_tokens_fill_the_fullest_device(size: tuple[int, int], n: int, more: int, d: int) -> None:
    routing = Routing(*size, devices=d)
    assert routing.reached(n) <= routing.reached(n + more) + 1e-9


@given(tokens)
def test_two_replicas_with_n_tokens_each_reach_what_one_with_twice_as_many_does(n: int) -> None:
    both, one = Routing(128, 8, devices=2, dp=2), Routing(128, 8, devices=2)
    assert both.reached(n) == one.reached(2 * n)


def test_a_routing_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="not a routing"):
        Routing(8, 9)
    with pytest.raises(ValueError, match="cannot be dealt to 3"):
        Routing(128, 8, devices=3)


def _ns(term: Term) -> dict[int, float]:
    assert term.curve is not None
    return dict(zip(term.curve.x, term.curve.ns, strict=True))


def test_measured_experts_follow_the_coverage_of_their_routing(folders: Folders) -> None:
    """Below the ridge an expert layer reads what its tokens reach: H100, 8 of 128 experts.

    Balanced routing reaches as many as there can be; the power laws lie below independent even
    choices from 4 to 32 tokens (0.60 and 0.93 of all experts' time against 0.40 and 0.87).
    """
    times = {name: _ns(moe_term(folders, "h100_sxm", QWEN, Ledger(), name)) for name in ROUTINGS}
    for n in (4, 8, 16, 32):
        assert times["power_law_1.2"][n] <= 1.02 * times["power_law_1.01"][n] <= 1.04 * times["balanced"][n]
    even = Routing(128, 8)
    for n in (2, 4, 8, 16, 32):
        share = times["power_law_1.01"][n] / times["power_law_1.01"][128]
        assert share == pytest.approx(even.covered(n) / even.covered(128), abs=0.13)


@pytest.mark.parametrize("split", [Split(4), Split(4, ep=4), Split(8, ep=8)])
def test_experts_over_several_devices_cost_less_than_on_one_and_more_than_their_share(
    split: Split, folders: Folders
) -> None:
    one = _ns(moe_term(folders, "h100_sxm", QWEN, Ledger()))
    over = _ns(moe_term(folders, "h100_sxm", QWEN, Ledger(), split=split))
    for n in (64, 256, 1024):
        assert one[n] / split.tp < over[n] < one[n]


def test_replicas_that_share_experts_pay_for_each_others_tokens(folders: Folders) -> None:
    """Four replicas of one device: a replica's n tokens meet those of three others."""
    alone = _ns(moe_term(folders, "h100_sxm", QWEN, Ledger(), split=Split(4, ep=4)))
    joined = _ns(moe_term(folders, "h100_sxm", QWEN, Ledger(), split=Split(ep=4, dp=4)))
    assert joined[16] == alone[64]
    assert joined[64] == alone[256]
