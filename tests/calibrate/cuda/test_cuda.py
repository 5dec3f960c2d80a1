"""The real CUDA behind the timers: run with ``pytest -m cuda`` on a machine that has a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibrate.cells import Cell, PassName
from calibrate.timing.cuda_timer import CaptureError, cuda_timers
from calibrate.timing.samples import Limits

torch: Any = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
pytestmark = pytest.mark.cuda

LIMITS = Limits(warmup_s=0.5)


@pytest.fixture(scope="module")
def api() -> Any:
    from calibrate.timing.cuda import TorchCuda

    return TorchCuda()


@pytest.fixture(scope="module")
def product() -> Any:
    """A matrix product of 2 n^3 FLOPs into a buffer of its own."""
    n = 4096
    a, b, c = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    return lambda: torch.mm(a, b, out=c)


def test_a_product_reaches_between_a_tenth_and_all_of_any_gpus_peak(api: Any, product: Any) -> None:
    """137 GFLOP: 20 to 3,000 TFLOP/s."""
    us = cuda_timers(api)["cuda_graph"].measure(product, LIMITS).median_us
    assert 45 < us < 7000


def test_graphs_and_eager_launches_agree_where_the_device_is_the_bottleneck(api: Any, product: Any) -> None:
    timers = cuda_timers(api)
    graph, eager = (timers[name].measure(product, LIMITS).median_us for name in ("cuda_graph", "eager"))
    assert eager == pytest.approx(graph, rel=0.1)


def test_graphs_are_faster_where_launches_are_the_bottleneck(api: Any) -> None:
    x = torch.zeros(16, device="cuda")

    def run() -> None:
        for _ in range(200):
            x.add_(1)

    timers = cuda_timers(api)
    graph, eager = (timers[name].measure(run, LIMITS).median_us for name in ("cuda_graph", "eager"))
    assert graph < 0.8 * eager


def test_device_time_is_not_more_than_wall_time(api: Any, product: Any) -> None:
    samples = cuda_timers(api)["cuda_graph"].measure(product, LIMITS)
    assert samples.median_us <= 1.1 * min(samples.other_us)


def test_passes_and_host_make_up_a_round(api: Any, product: Any) -> None:
    passes: list[tuple[PassName, Any]] = [
        ("draft_first", product),
        ("draft_next", product),
        ("draft_next", product),
        ("verify", product),
    ]
    us = {
        name: s.median_us for name, s in cuda_timers(api)["cuda_graph"].measure_round(passes, LIMITS).items()
    }
    parts = us["draft_first"] + 2 * us["draft_next"] + us["verify"] + us["host"]
    assert parts == pytest.approx(us["round"], rel=0.05)
    assert us["verify"] == pytest.approx(us["draft_next"], rel=0.15)


def test_a_pass_takes_as_long_first_in_a_round_as_behind_another(api: Any, product: Any) -> None:
    timer = cuda_timers(api)["cuda_graph"]
    alone = timer.measure_round([("verify", product)], LIMITS)["verify"]
    behind = timer.measure_round([("draft_first", product), ("verify", product)], LIMITS)["verify"]
    assert alone.median_us == pytest.approx(behind.median_us, rel=0.05)


def test_a_hold_lasts_as_long_as_asked(api: Any) -> None:
    torch.cuda.synchronize()
    began = api.now()
    api.hold(0.01)
    launched = api.now()
    api.synchronize()
    assert launched - began < 0.01 <= api.now() - began < 0.1


def test_what_waits_for_the_device_cannot_be_captured(api: Any) -> None:
    x = torch.zeros(1, device="cuda")
    with pytest.raises(CaptureError):
        api.capture(x.item)
    torch.cuda.synchronize()


def test_clocks_are_read_where_nvml_is(api: Any) -> None:
    clocks = api.clocks()
    if clocks is None:
        pytest.skip("no pynvml, or the driver does not say")
    assert 100 < clocks.sm_mhz < 5000


def test_the_machine_describes_itself() -> None:
    from calibrate.timing.machine import device_of, machine_of

    device, machine = device_of("cuda", "bfloat16"), machine_of("cuda")
    assert device.memory_bytes > 1e9
    assert 1e11 < device.bandwidth_bytes_per_s < 1e14
    assert machine.cuda
    assert machine.torch


def test_a_tiny_campaign_measures_both_regimes_and_every_pass(tmp_path: Path) -> None:
    from calibrate.journal import Journal
    from calibrate.presets import PRESETS
    from calibrate.session import Options, build_parts, run_campaign

    preset = PRESETS["tiny"]
    options = Options("tiny-cuda", preset, preset.drafters, "cuda", "float16", 1, quick=True)
    parts = build_parts(options)
    journal = Journal(tmp_path / "cells.jsonl", options.about(parts.device.name, parts.machine))
    journal.open(resume=False)
    outcome = run_campaign(options, parts, journal, 120, lambda step: None)
    cells: list[Cell] = [m.cell for m in outcome.measured]
    assert {c.execution for c in cells} == {"cuda_graph", "eager"}
    assert {c.pass_ for c in cells} >= {
        "verify",
        "draft_first",
        "draft_next",
        "accept",
        "prefill",
        "mixed",
        "host",
    }
    assert len(outcome.skipped) < len(outcome.finished) / 4, [each.skipped for each in outcome.skipped]
