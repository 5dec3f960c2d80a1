"""The CPU timer on fake clocks, and once on the real ones."""

from __future__ import annotations

import time

import pytest

from calibrate.timing.cpu import CpuTimer
from calibrate.timing.fake import FakeClock, fake_timer
from calibrate.timing.samples import Limits

US = 1e-6


def test_a_constant_pass_is_measured_exactly() -> None:
    clock = FakeClock()
    samples = fake_timer(clock).measure(lambda: clock.spend(37 * US), Limits())
    assert samples.us == pytest.approx([37] * 6)
    assert samples.other_us == pytest.approx(samples.us)
    assert samples.flags == ()


def test_the_first_cell_warms_up_for_a_second_and_later_ones_settle() -> None:
    clock, limits = FakeClock(), Limits(warmup_s=1.0, settle_s=0.02, window_s=0.002)
    timer = fake_timer(clock)
    timer.measure(lambda: clock.spend(1e-3), limits)
    first = clock.now()
    timer.measure(lambda: clock.spend(1e-3), limits)
    assert 1.0 <= first < 1.6
    assert 0.02 + 6 * 0.002 <= clock.now() - first < 0.06


@pytest.mark.parametrize("us", [0.5, 3, 700, 1999, 2001, 5e4])
def test_a_window_lasts_two_milliseconds_at_least(us: float) -> None:
    clock, runs = FakeClock(), 0

    def run() -> None:
        nonlocal runs
        runs += 1
        clock.spend(us * US)

    timer = fake_timer(clock)
    timer.measure(run, Limits(warmup_s=0.0))
    before, runs, limits = clock.now(), 0, Limits(settle_s=0.0)
    timer.measure(run, limits)
    assert (clock.now() - before) / 6 >= limits.window_s


def test_both_clocks_are_kept_and_the_named_one_gives_the_samples() -> None:
    """A pass that waits as long as it works has half its wall time on the CPU."""
    wall, cpu = FakeClock(), FakeClock()

    def run() -> None:
        wall.spend(20 * US)
        cpu.spend(10 * US)

    by_cpu = CpuTimer("thread_cpu", wall.now, cpu.now).measure(run, Limits())
    by_wall = CpuTimer("wall", wall.now, cpu.now).measure(run, Limits())
    assert (by_cpu.median_us, by_cpu.other_us[0]) == pytest.approx((10, 20))
    assert (by_wall.median_us, by_wall.other_us[0]) == pytest.approx((20, 10))


def test_a_round_is_its_passes_in_order_and_nothing_else() -> None:
    """draft_first 30, two draft_next of 10 each, verify 400: the whole is 450, the host nothing."""
    clock, order = FakeClock(), []

    def passing(name: str, us: float) -> None:
        order.append(name)
        clock.spend(us * US)

    passes = [
        ("draft_first", lambda: passing("draft_first", 30)),
        ("draft_next", lambda: passing("draft_next", 10)),
        ("draft_next", lambda: passing("draft_next", 10)),
        ("verify", lambda: passing("verify", 400)),
    ]
    found = fake_timer(clock).measure_round(passes, Limits())  # type: ignore[arg-type]
    medians = {name: samples.median_us for name, samples in found.items()}
    expected = {"draft_first": 30, "draft_next": 10, "verify": 400, "round": 450, "host": 0.001}
    assert medians == pytest.approx(expected)
    assert order[:4] == ["draft_first", "draft_next", "draft_next", "verify"]
    assert order == order[:4] * (len(order) // 4)


def test_real_clocks_time_real_work() -> None:
    """A busy loop of 2 ms takes 2 ms or a little more, on both clocks."""

    def run() -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass

    samples = CpuTimer().measure(run, Limits(warmup_s=0.02, cap_s=0.1))
    assert 2000 <= samples.median_us < 2500
    assert min(samples.other_us) >= 1900
