"""An NVIDIA device's clocks, limits and name from NVML, when ``pynvml`` is there. Only getters are called."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from calibrate.timing.cuda_timer import Clocks

REASONS = {
    0x0000000000000004: "sw_power_cap",
    0x0000000000000008: "hw_slowdown",
    0x0000000000000020: "sw_thermal",
    0x0000000000000040: "hw_thermal",
    0x0000000000000080: "hw_power_brake",
}
"""Bits that mean a slower clock than asked for (NVML API reference, nvmlClocksEventReasons)."""


@dataclass(frozen=True)
class Board:
    """What does not change while measuring."""

    name: str
    driver: str
    power_limit_w: float | None
    memory_clock_mhz: float | None
    largest_sm_mhz: float | None
    mig: bool


class Nvml:
    """One device, read through the ``pynvml`` module that is passed in."""

    def __init__(self, module: Any, handle: Any) -> None:
        self._nvml, self._handle = module, handle

    def clocks(self) -> Clocks | None:
        """SM clock in MHz and the reasons that hold it down; None when the driver does not say."""
        nvml = self._nvml
        try:
            mhz = float(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
        except nvml.NVMLError:
            return None
        return Clocks(mhz, self._reasons())

    def _reasons(self) -> tuple[str, ...]:
        nvml = self._nvml
        newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        get = newer or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        try:
            bits = int(get(self._handle))
        except nvml.NVMLError:
            return ()
        return tuple(name for bit, name in REASONS.items() if bits & bit)

    def board(self) -> Board:
        """Name, driver, power limit, memory clock and MIG mode; None for what the driver does not say."""
        nvml, handle = self._nvml, self._handle
        watts = self._ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)
        return Board(
            name=_text(self._ask(lambda: nvml.nvmlDeviceGetName(handle)) or "unknown"),
            driver=_text(self._ask(nvml.nvmlSystemGetDriverVersion) or "unknown"),
            power_limit_w=watts,
            memory_clock_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            largest_sm_mhz=self._ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            mig=bool((self._ask(lambda: nvml.nvmlDeviceGetMigMode(handle)) or (0,))[0]),
        )

    def _ask(self, get: Any) -> Any:
        try:
            return get()
        except self._nvml.NVMLError:
            return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def open_nvml(index: int, uuid: str | None = None, module: Any = None) -> Nvml | None:
    """The device by UUID, else by index; None without ``pynvml`` or without a driver."""
    if module is None:
        try:
            module = import_module("pynvml")
        except ImportError:
            return None
    try:
        module.nvmlInit()
        return Nvml(module, _handle(module, index, uuid))
    except module.NVMLError:
        return None


def _handle(module: Any, index: int, uuid: str | None) -> Any:
    if uuid is not None:
        try:
            return module.nvmlDeviceGetHandleByUUID(uuid)
        except module.NVMLError:
            pass
    return module.nvmlDeviceGetHandleByIndex(index)
