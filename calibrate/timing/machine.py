"""The machine that a calibration runs on, as torch, the driver and the operating system report it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calibrate.datasheets import GPUS
from calibrate.fit.report import Machine
from calibrate.profile import Device
from calibrate.timing.nvml import Nvml, open_nvml

COPY_BYTES = 2**28
"""Copied to measure bandwidth: beyond every last-level cache."""

PRODUCT = {"cpu": 1024, "cuda": 8192}
"""Size of the square matrix product that measures the peak."""

DRESS = {"NVIDIA", "GEFORCE", "AMD", "INSTINCT", "SXM", "SXM4", "SXM5", "SXM6", "HBM3", "HBM3E", "EDITION"}
"""Words of a device's name that do not tell one model from another."""

SIZES = (0.85, 1.15)
"""Memory that torch reports, as a share of the datasheet's: some is kept back, GB are not GiB."""

PROBES = 5
"""Each probe is the best of so many runs."""


def machine_of(device: str, nvml: Nvml | None = None) -> Machine:
    """What runs the passes: driver, CUDA, torch, python, processor, memory clock, revision."""
    import torch

    found = nvml if nvml is not None or device == "cpu" else open_nvml(0)
    board = None if found is None else found.board()
    return Machine(
        driver="" if board is None else board.driver,
        cuda=(torch.version.cuda or "") if device == "cuda" else "",
        torch=str(torch.__version__),
        python=platform.python_version(),
        host_cpu=host_cpu(),
        memory_clock_mhz=(board.memory_clock_mhz or 0.0) if board else 0.0,
        revision=revision(Path(__file__).parent),
    )


def device_of(device: str, dtype: str) -> Device:
    """The device: of the datasheet where it is known by name, else with measured bandwidth and peak."""
    import torch

    if device == "cpu":
        return _measured_device(
            torch, "cpu", f"{host_cpu()} ({torch.get_num_threads()} threads)", _memory(), dtype
        )
    properties = torch.cuda.get_device_properties(0)
    name, memory = properties.name, float(properties.total_memory)
    sheet = datasheet(name, memory)
    if sheet is None:
        return _measured_device(torch, "cuda", name, memory, dtype)
    source = f"{sheet.name}: {sheet.source}"
    return sheet.model_copy(update={"name": name, "memory_bytes": memory, "source": source})


def datasheet(name: str, memory_bytes: float) -> Device | None:
    """The datasheet of a device that calls itself ``name`` ("NVIDIA H200" is "NVIDIA H200 SXM 141GB").

    It says all words of the model and no others: "Ti", "PCIe", "Laptop" or a MIG slice are other devices.
    """
    words = set(_words(name))
    for gpu in GPUS.values():
        known = _words(gpu.device.name)
        model = {word for word in known if word not in DRESS and not re.fullmatch(r"\d+GB", word)}
        size = memory_bytes / gpu.device.memory_bytes
        if model <= words <= {*known, *DRESS} and SIZES[0] < size < SIZES[1]:
            return gpu.device
    return None


def _words(name: str) -> list[str]:
    return name.upper().replace("-", " ").split()


def host_cpu() -> str:
    """The processor's name, as the operating system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def revision(folder: Path) -> str:
    """The git revision of a checkout, "" where there is none."""
    command = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _measured_device(torch: Any, device: str, name: str, memory: float, dtype: str) -> Device:
    kind = getattr(torch, "bfloat16" if dtype.startswith("fp8") else dtype)
    n = PRODUCT[device]
    a, b = (torch.randn(n, n, device=device).to(kind) for _ in range(2))
    source, to = (torch.empty(COPY_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    return Device(
        name=name,
        memory_bytes=memory,
        bandwidth_bytes_per_s=2 * COPY_BYTES / _best(lambda: to.copy_(source), wait),
        peak_flops_per_s=2 * n**3 / _best(lambda: a @ b, wait),
        source=f"measured: a copy of {COPY_BYTES // 2**20} MiB, a {n} x {n} product in {dtype}",
    )


def _best(run: Callable[[], object], wait: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs, after one that does not count."""
    times = []
    for _ in range(1 + PROBES):
        began = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def _nothing() -> None:
    pass


def _memory() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
