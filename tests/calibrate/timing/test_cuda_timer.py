"""Every CUDA-only branch, on a fake stream: graphs and eager launches, clocks, throttling."""

from __future__ import annotations

from itertools import count

import pytest

from calibrate.cells import PassName
from calibrate.timing.cuda_timer import CudaTimer, cuda_timers
from calibrate.timing.samples import Limits
from calibrate.timing.timer import Run
from tests.calibrate.timing.fake_cuda import FakeCuda

US = 1e-6
ROUND: list[tuple[PassName, float]] = [
    ("draft_first", 90),
    ("draft_next", 40),
    ("draft_next", 40),
    ("verify", 800),
    ("accept", 20),
]


def _round(cuda: FakeCuda, kernels: int = 1) -> list[tuple[PassName, Run]]:
    return [(name, lambda us=us: cuda.launch(us * US, kernels)) for name, us in ROUND]  # type: ignore[misc]


def test_a_replayed_graph_shows_device_time_whatever_the_launch_costs() -> None:
    """25 us on the device; the host needs 5 us per replay and stays ahead of it."""
    cuda = FakeCuda(launch_s=5 * US)
    samples = CudaTimer(cuda).measure(lambda: cuda.launch(25 * US, kernels=40), Limits())
    assert samples.us == pytest.approx([25] * 6)
    assert (cuda.captures, cuda.launches) == (1, 0)
    assert cuda.replays > 1000, "the warm-up alone is a second"


def test_eager_launches_show_the_slower_of_host_and_device() -> None:
    """40 kernels at 5 us per launch are 200 us on the host; 25 us on the device is hidden, 300 us is not."""
    cuda = FakeCuda(launch_s=5 * US)
    bound = CudaTimer(cuda, "eager").measure(lambda: cuda.launch(25 * US, kernels=40), Limits())
    busy = CudaTimer(cuda, "eager").measure(lambda: cuda.launch(300 * US, kernels=40), Limits())
    assert bound.median_us == pytest.approx(200)
    assert busy.median_us == pytest.approx(300, rel=1e-3)
    assert (cuda.captures, cuda.replays) == (0, 0)


@pytest.mark.parametrize("execution", ["cuda_graph", "eager"])
def test_without_launch_cost_a_round_is_recovered_exactly(execution: str) -> None:
    cuda = FakeCuda()
    found = cuda_timers(cuda)[execution].measure_round(_round(cuda), Limits())  # type: ignore[index]
    medians = {name: samples.median_us for name, samples in found.items()}
    assert medians == pytest.approx({**dict(ROUND), "round": 990, "host": 0.001}, abs=1e-6)


@pytest.mark.parametrize(("kernels", "launch"), [(1, 5), (30, 2), (50, 9)])
@pytest.mark.parametrize("execution", ["cuda_graph", "eager"])
def test_passes_and_host_make_up_the_round(execution: str, kernels: int, launch: float) -> None:
    cuda = FakeCuda(launch_s=launch * US)
    found = cuda_timers(cuda)[execution].measure_round(_round(cuda, kernels), Limits())  # type: ignore[index]
    us = {name: samples.median_us for name, samples in found.items()}
    parts = us["draft_first"] + 2 * us["draft_next"] + us["verify"] + us["accept"] + us["host"]
    assert parts == pytest.approx(us["round"], abs=0.01)
    assert all(us[name] >= cost - 1e-6 for name, cost in ROUND)


@pytest.mark.parametrize("launch_us", [0, 5, 300])
def test_a_pass_takes_as_long_first_in_a_round_as_behind_another(launch_us: float) -> None:
    """The launch on an idle device is the host's, however long it takes."""
    cuda = FakeCuda(launch_s=launch_us * US)

    def run() -> None:
        cuda.launch(1000 * US)

    alone = CudaTimer(cuda).measure_round([("verify", run)], Limits())
    behind = CudaTimer(cuda).measure_round([("draft_first", run), ("verify", run)], Limits())
    for found in (alone, behind):
        assert found["verify"].median_us == pytest.approx(1000)
        assert found["host"].median_us == pytest.approx(max(launch_us, 0.001), abs=1e-3)
    assert behind["draft_first"].median_us == pytest.approx(1000)
    assert alone["round"].median_us == pytest.approx(1000 + launch_us)


def test_every_pass_of_a_round_is_a_graph_of_its_own() -> None:
    cuda = FakeCuda()
    CudaTimer(cuda).measure_round(_round(cuda), Limits())
    assert cuda.captures == len(ROUND)
    assert cuda.replays % len(ROUND) == 0
    assert cuda.launches == 0


def test_clocks_before_and_after_are_kept() -> None:
    ramp = count(1200.0, 300.0)
    cuda = FakeCuda(sm_mhz=lambda: next(ramp))
    assert CudaTimer(cuda).measure(lambda: cuda.launch(US), Limits()).clock_mhz == (1200, 1500)


def test_without_nvml_there_are_no_clocks_and_no_flags() -> None:
    cuda = FakeCuda()
    samples = CudaTimer(cuda).measure(lambda: cuda.launch(US), Limits())
    assert (samples.clock_mhz, samples.flags) == (None, ())


def test_a_hot_device_is_flagged_as_throttled_and_a_power_cap_as_what_it_is() -> None:
    hot = FakeCuda(sm_mhz=lambda: 900.0, reasons=("hw_thermal", "sw_power_cap"))
    capped = FakeCuda(sm_mhz=lambda: 1700.0, reasons=("sw_power_cap",))
    assert CudaTimer(hot).measure(lambda: hot.launch(US), Limits()).flags == (
        "throttled",
        "hw_thermal",
        "sw_power_cap",
    )
    assert CudaTimer(capped).measure(lambda: capped.launch(US), Limits()).flags == ("sw_power_cap",)


def test_both_regimes_have_a_timer() -> None:
    timers = cuda_timers(FakeCuda())
    assert {name: timer.execution for name, timer in timers.items()} == {
        "cuda_graph": "cuda_graph",
        "eager": "eager",
    }
    assert {timer.clock for timer in timers.values()} == {"cuda_event"}
