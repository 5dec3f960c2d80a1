"""The tables fit the terminal, mark the winner, and never show a mean of an unstable policy."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sim.results.compare import Cell, Comparison, PolicyResult, paired_difference
from sim.results.names import METRICS
from sim.results.terminal import engineering, number, render, share
from sim.results.words import percent, verdict
from tests.results.build import metrics, policy

TPOT = "tpot_mean_ms"


def full(label: str, tpot_ms: Sequence[float], unstable: bool = False) -> PolicyResult:
    """A policy that has every metric, of usual and of large size."""
    every = dict.fromkeys(METRICS, 123.4) | {"e2el_mean_ms": 12_345.6, "output_tokens_per_s": 12_345.6}
    rates = {"flops_per_token": 5.4e10, "bytes_per_token": 3.2e9, "draft_waste_share": 0.43}
    return PolicyResult(label, tuple(metrics(unstable, **every | rates | {TPOT: ms}) for ms in tpot_ms))


LABELS = ("off", "static(k=5)", "disable_by_batch_size(32)", "per_batch_size([[1,8,5],[9,32,3],[33,999,0]])")
CELL = Cell("16/s", tuple(full(label, [20 - i, 21 - i]) for i, label in enumerate(LABELS)))
COMPARISON = Comparison((CELL, CELL), "off", error=0.01)


def printed(comparison: Comparison, wide: bool = False, width: int = 100) -> str:
    """What the terminal shows."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(comparison, wide, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("wide", [False, True])
def test_nothing_is_cut_off(width: int, wide: bool) -> None:
    """Every column heading and value is there in full; what does not fit goes into a further table."""
    text = printed(COMPARISON, wide, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for value in ("TPOT", "depth", "batch", "off", "static(k=5)") + (
        ("FLOPs", "54.0 G", "43 %") if wide else ()
    ):
        assert value in text


@pytest.mark.parametrize(("width", "wide"), [(100, False), (160, True)])
def test_usual_widths_need_one_table(width: int, wide: bool) -> None:
    """The narrow table fits 100 columns and the wide one 160."""
    assert printed(Comparison((CELL,), "off"), wide, width).count("load 16/s") == 1


def test_metrics_that_no_run_has_take_no_column() -> None:
    """Without an SLO there is no goodput to show."""
    assert "good" not in printed(Comparison((Cell("1/s", (policy("off", [1.0, 2.0]),)),), "off"), wide=True)


def test_unstable_policy_shows_the_word_and_no_number() -> None:
    """Its row holds its name and "unstable", nothing else."""
    cell = Cell("64/s", (full("off", [10.0, 11.0]), full("deep", [5.0, 6.0], unstable=True)))
    (row,) = (
        line for line in printed(Comparison((cell,), "off")).splitlines() if line.strip().startswith("deep")
    )
    assert row.split() == ["deep", "unstable"]


def test_winner_and_those_even_with_it_are_marked() -> None:
    """A star before the best, an equals sign before what no difference separates from it."""
    cell = Cell("8/s", (OFF, FAST, EVEN))
    rows = [line.split()[:2] for line in printed(Comparison((cell,), "off")).splitlines()]
    assert ["★", "fast"] in rows
    assert ["=", "even"] in rows


OFF = policy("off", [20.0, 21.0, 22.0])
FAST = policy("fast", [10.0, 10.5, 11.1])
EVEN = policy("even", [10.1, 10.4, 11.1])
SAME = policy("same", [20.0, 21.0, 22.0])
SLOW = policy("deep", [22.0, 23.1, 24.2])
BROKEN = policy("broken", [1.0, 1.0, 1.0], unstable=True)
ORACLE = policy("oracle", [10.0, 10.5, 11.0], bound=True)


@pytest.mark.parametrize(
    ("policies", "sentence"),
    [
        ((OFF, FAST), "2/s: fast is best: TPOT mean -49.8 ± 0.7 % against off."),
        ((OFF, SLOW), "2/s: off is best; deep is 10.0 % slower."),
        ((OFF, SAME), "2/s: no difference between off and same."),
        ((OFF, BROKEN), "2/s: off is best. Unstable: broken."),
        ((OFF, ORACLE), "2/s: off is best. Bound: oracle -50.0 ± 0.0 %."),
    ],
)
def test_verdict_reads(policies: tuple[PolicyResult, ...], sentence: str) -> None:
    """The verdict names the best, its gain, the losers' loss, the unstable and the bound."""
    cell = Cell("2/s", policies)
    assert verdict(cell, Comparison((cell,), "off")) == sentence


def test_even_group_is_named_whole() -> None:
    """Policies that chance cannot tell apart are named together, with the gain of the best."""
    cell = Cell("4/s", (OFF, FAST, EVEN))
    text = verdict(cell, Comparison((cell,), "off"))
    assert text.startswith("4/s: no difference between fast and even: TPOT mean -49.")


def test_no_stable_policy_is_said_with_the_reason() -> None:
    """Where everything is unstable the verdict says why."""
    cell = Cell("64/s", (BROKEN,))
    expected = "64/s: no policy is stable (under broken: 50% of the requests never finished)."
    assert verdict(cell, Comparison((cell,), "broken")) == expected


def test_one_seed_is_said() -> None:
    """With one seed the footnote says that there is no interval, and none is shown."""
    cell = Cell("2/s", (policy("off", [10.0]), policy("fast", [9.0])))
    text = printed(Comparison((cell,), "off"))
    assert "one seed, so no interval" in text
    assert "-10.0 %" in text
    assert "±" not in text


def test_percent_carries_its_interval() -> None:
    """Half width of the ratio of (10, 12) to (11, 11): residuals ∓1, t = 12.71, so 115 %."""
    assert percent(paired_difference(TPOT, [11.0, 11.0], [12.1, 12.1])) == "+10.0 ± 0.0 %"
    assert percent(paired_difference(TPOT, [11.0, 11.0], [10.0, 12.0])) == "+0.0 ± 115.5 %"


@given(st.floats(0.01, 1e9))
def test_number_keeps_three_digits(value: float) -> None:
    """Reading the text back gives the value to within half a unit of its third digit."""
    shown = float(number(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=5.01e-3, abs=5.01e-4)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.1234, "0.123"), (9.996, "10.0"), (99.96, "100"), (12345.6, "12,346"), (float("nan"), "-")],
)
def test_number_reads(value: float, text: str) -> None:
    """Rounding up a digit does not add one."""
    assert number(value) == text


def test_prefixes_and_shares_read() -> None:
    """Large numbers carry a decimal prefix, shares are in percent, and NaN is a dash."""
    assert [engineering(v) for v in (0.0, 54.2e9, 1.2e14)] == ["0", "54.2 G", "120 T"]
    assert (share(0.425), share(np.nan), engineering(np.nan)) == ("42 %", "-", "-")
