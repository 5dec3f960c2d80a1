"""The rules by which a comparison is judged, on numbers made by hand."""

from __future__ import annotations

import pytest

from calibrate.validate.compare import Compared, Served, Verdict
from calibrate.validate.measures import COMPARED, JUDGED


def served(policy: str, simulated: float, *runs: float, load: str = "low") -> Served:
    return Served(
        load, policy, dict.fromkeys(COMPARED, simulated), tuple(dict.fromkeys(COMPARED, r) for r in runs)
    )


@pytest.mark.parametrize(
    ("simulated", "runs", "holds"),
    [
        (109.0, (99.0, 101.0), True),  # within a tenth of the mean
        (111.0, (99.0, 101.0), False),
        (129.0, (90.0, 110.0), True),  # within one and a half times what the runs differ by
        (131.0, (90.0, 110.0), False),
        (89.0, (100.0, 100.0), False),
    ],
)
def test_a_cell_holds_within_a_tenth_or_the_spread(
    simulated: float, runs: tuple[float, ...], holds: bool
) -> None:
    assert Compared(simulated, runs).holds is holds


def test_errors_are_relative_to_the_mean_of_the_runs() -> None:
    compared = Compared(105.0, (90.0, 110.0))
    assert (compared.mean, compared.spread) == (100.0, 20.0)
    assert compared.error == pytest.approx(0.05)


def test_a_difference_within_the_noise_orders_nothing() -> None:
    """The engine's means differ by 5 and one of its policies by 6 from run to run."""
    verdict = Verdict((served("a", 200, 100, 106), served("b", 100, 108, 108)))
    assert verdict.orders == []


def test_a_difference_beyond_the_noise_must_have_its_sign() -> None:
    right = Verdict((served("a", 100, 100, 101), served("b", 104, 110, 111)))
    wrong = Verdict((served("a", 100, 100, 101), served("b", 99, 110, 111)))
    assert len(right.orders) == len(wrong.orders) == len(JUDGED)
    assert right.wrong_orders == []
    assert [order.metric for order in wrong.wrong_orders] == list(JUDGED)
    assert not wrong.passed


def test_noise_is_learnt_from_all_cells() -> None:
    """Two runs may agree by chance: others at the same load say how far runs lie apart."""
    calm = (served("a", 100, 100, 100), served("b", 99, 104, 104))
    restless = served("c", 150, 140, 160)
    assert len(Verdict(calm).wrong_orders) == len(JUDGED)
    assert Verdict((*calm, restless)).noise("tpot_mean_ms") == pytest.approx((2 / 15**2 / 3) ** 0.5)
    assert not Verdict((*calm, restless)).wrong_orders


def test_policies_are_compared_within_one_load() -> None:
    verdict = Verdict((served("a", 1, 100, 100), served("b", 2, 300, 300, load="full")))
    assert verdict.orders == []


def test_errors_of_one_sign_fail_though_every_cell_holds() -> None:
    cells = [served(name, 108, 100, 100) for name in "ab"]
    assert Verdict(tuple(cells)).misses == []
    assert not Verdict(tuple(cells)).passed
    assert Verdict((served("a", 108, 100, 100), served("b", 92, 100, 100))).passed
