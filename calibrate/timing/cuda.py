"""The real CUDA behind ``CudaApi``: torch's events and graphs, NVML's clocks. Reads, never sets."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from calibrate.timing.cuda_timer import CaptureError, Clocks
from calibrate.timing.nvml import Nvml, open_nvml
from calibrate.timing.timer import Run

LEAD_RUNS = 3
"""Runs on a side stream before a capture, as torch's documentation of CUDA graphs asks for."""

FASTEST_HZ = 3e9
"""No SM clock is faster."""


class TorchEvent:
    """``torch.cuda.Event`` with timing."""

    def __init__(self) -> None:
        torch: Any = import_module("torch")
        self._event: Any = torch.cuda.Event(enable_timing=True)

    def record(self) -> None:
        """Put the mark on the current stream."""
        self._event.record()

    def elapsed_ms(self, later: TorchEvent) -> float:
        """Milliseconds to a later event."""
        return float(self._event.elapsed_time(later._event))


class TorchCuda:
    """One CUDA device of this process."""

    def __init__(self, index: int = 0, nvml: Nvml | None = None) -> None:
        self._torch: Any = import_module("torch")
        self._index = index
        self._nvml = nvml if nvml is not None else open_nvml(index, self._uuid())

    def _uuid(self) -> str | None:
        """The device's UUID, as ``CUDA_VISIBLE_DEVICES`` renumbers what NVML does not."""
        found = getattr(self._torch.cuda.get_device_properties(self._index), "uuid", None)
        return None if found is None else f"GPU-{found}"

    def event(self) -> TorchEvent:
        """A new event that can be timed."""
        return TorchEvent()

    def capture(self, run: Run) -> Run:
        """A CUDA graph of ``run``, after a few runs on a side stream."""
        try:
            replay: Run = self._graph(run).replay
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            self._torch.cuda.empty_cache()
            if isinstance(error, self._torch.cuda.OutOfMemoryError):
                raise MemoryError(f"graph capture: {reason}") from None
            raise CaptureError(f"cannot be captured in a graph: {reason}") from None
        return replay

    def _graph(self, run: Run) -> Any:
        torch = self._torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(LEAD_RUNS):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # NCCL's own thread may look at its events meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            run()
        return graph

    def hold(self, seconds: float) -> None:
        """A kernel that spins; longer than asked where the clock is below ``FASTEST_HZ``."""
        self._torch.cuda._sleep(int(seconds * FASTEST_HZ))

    def synchronize(self) -> None:
        """Wait for the device."""
        self._torch.cuda.synchronize(self._index)

    def clocks(self) -> Clocks | None:
        """SM clock and reasons from NVML."""
        return None if self._nvml is None else self._nvml.clocks()

    def now(self) -> float:
        """Seconds on the host's wall clock."""
        return time.perf_counter()
