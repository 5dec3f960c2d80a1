"""A CUDA stream that takes the time it is told to: launches, events, graphs, clocks, on a fake host clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from calibrate.timing.cuda_timer import CaptureError, Clocks
from calibrate.timing.fake import FakeClock
from calibrate.timing.timer import Run


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.at: float | None = None

    def record(self) -> None:
        self.at = self._cuda.stream_now()

    def elapsed_ms(self, later: FakeEvent) -> float:
        assert self.at is not None
        assert later.at is not None
        assert later.at <= self._cuda.clock.seconds, "an event was read before the device reached it"
        return 1e3 * (later.at - self.at)


@dataclass
class FakeCuda:
    """``launch_s`` is what the host spends on every launch, of a kernel or of a whole graph."""

    launch_s: float = 0.0
    clock: FakeClock = field(default_factory=FakeClock)
    sm_mhz: Callable[[], float | None] = lambda: None
    reasons: tuple[str, ...] = ()
    refuses: str = ""
    captures: int = 0
    replays: int = 0
    launches: int = 0
    free_at: float = 0.0
    _recording: list[float] | None = None

    def launch(self, seconds: float, kernels: int = 1) -> None:
        """A pass of ``kernels`` kernels that take ``seconds`` on the device together."""
        if self._recording is not None:
            self._recording.append(seconds)
            return
        for _ in range(kernels):
            self.launches += 1
            self._enqueue(seconds / kernels)

    def _enqueue(self, seconds: float) -> None:
        self.clock.spend(self.launch_s)
        self.free_at = self.stream_now() + seconds

    def stream_now(self) -> float:
        return max(self.free_at, self.clock.seconds)

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def capture(self, run: Run) -> Run:
        if self.refuses:
            raise CaptureError(self.refuses)
        self.captures += 1
        recorded: list[float] = []
        self._recording = recorded
        run()
        self._recording = None

        def replay() -> None:
            self.replays += 1
            self._enqueue(sum(recorded))

        return replay

    def hold(self, seconds: float) -> None:
        self._enqueue(seconds)

    def synchronize(self) -> None:
        self.clock.seconds = self.stream_now()

    def clocks(self) -> Clocks | None:
        mhz = self.sm_mhz()
        return None if mhz is None else Clocks(mhz, self.reasons)

    def now(self) -> float:
        return self.clock.seconds
