"""Clocks from a fake NVML, and drift between occasions of the anchors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.timing.drift import drift
from calibrate.timing.nvml import open_nvml


class FakeNvmlError(Exception):
    pass


class FakePynvml:
    """The few getters that are called; whatever else is asked for does not exist (no setter can be)."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, reasons: int = 0, driver: bool = True, knows_uuid: bool = True) -> None:
        self.reasons, self.driver, self.knows_uuid = reasons, driver, knows_uuid
        self.handles: list[Any] = []

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise FakeNvmlError

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        self.handles.append(index)
        return f"handle {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if not self.knows_uuid:
            raise FakeNvmlError
        self.handles.append(uuid)
        return f"handle {uuid}"

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:  # noqa: N802
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetMaxClockInfo(self, handle: str, which: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:  # noqa: N802
        return self.reasons

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:  # noqa: N802
        return 700_000

    def nvmlDeviceGetName(self, handle: str) -> bytes:  # noqa: N802
        return b"NVIDIA H200"

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.1"

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:  # noqa: N802
        raise FakeNvmlError


def test_the_board_is_read_and_what_the_driver_does_not_say_is_left_open() -> None:
    nvml = open_nvml(0, module=FakePynvml())
    assert nvml is not None
    board = nvml.board()
    assert (board.name, board.driver, board.power_limit_w, board.memory_clock_mhz) == (
        "NVIDIA H200",
        "580.1",
        700,
        3201,
    )
    assert not board.mig


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x1, ()),
        (0x4, ("sw_power_cap",)),
        (0x68, ("hw_slowdown", "sw_thermal", "hw_thermal")),
        (0x80, ("hw_power_brake",)),
    ],
)
def test_reasons_are_named_by_their_bits_and_idling_is_none(bits: int, names: tuple[str, ...]) -> None:
    nvml = open_nvml(0, module=FakePynvml(bits))
    assert nvml is not None
    clocks = nvml.clocks()
    assert clocks is not None
    assert (clocks.sm_mhz, clocks.reasons) == (1980, names)


def test_the_device_is_found_by_uuid_where_that_is_known_else_by_index() -> None:
    known, unknown = FakePynvml(), FakePynvml(knows_uuid=False)
    open_nvml(3, "GPU-1", known)
    open_nvml(3, "GPU-1", unknown)
    assert (known.handles, unknown.handles) == (["GPU-1"], [3])


def test_without_a_driver_there_is_no_nvml() -> None:
    assert open_nvml(0, module=FakePynvml(driver=False)) is None


@given(st.dictionaries(st.text(max_size=3), st.floats(1, 1e5), min_size=1, max_size=4), st.floats(0.8, 1.25))
def test_a_machine_that_slows_down_between_occasions_drifts_by_that_much(
    anchors: dict[str, float], factor: float
) -> None:
    occasions = {
        "first": list(anchors.items()),
        "middle": [(name, us * factor**0.5) for name, us in anchors.items()],
        "last": [(name, us * factor) for name, us in anchors.items()],
    }
    assert drift(occasions) == pytest.approx(max(factor, 1 / factor) - 1, abs=1e-9)


def test_noise_of_one_anchor_counts_for_its_share_only() -> None:
    """One of three anchors up by 3 %: the machine moved by 1.03^(1/3)."""
    first = [("a", 10.0), ("b", 100.0), ("c", 1000.0)]
    last = [("a", 10.3), ("b", 100.0), ("c", 1000.0)]
    assert drift({"first": first, "last": last}) == pytest.approx(1.03 ** (1 / 3) - 1)


def test_one_occasion_shows_no_drift() -> None:
    assert drift({"first": [("a", 1.0)]}) == 0
    assert drift({}) == 0
