"""Two ranks in lock-step: whatever their clocks, noise and memory, both run the same passes equally often."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, TypeVar

import pytest

from calibrate.campaign import Campaign, Outcome, follow
from calibrate.cells import Cell, Execution, PassName
from calibrate.grid import CPU, build_grid, small, with_collectives
from calibrate.journal import Journal
from calibrate.passes.contract import OutOfMemory, Unsupported
from calibrate.timing.cpu import CpuTimer
from calibrate.timing.cuda_timer import CaptureError, CudaTimer
from calibrate.timing.fake import FakeBench, FakeClock
from calibrate.timing.peers import ALONE, PeerLost, led, together
from calibrate.timing.samples import Limits
from calibrate.timing.timer import Run, Timer
from tests.calibrate.timing.fake_cuda import FakeCuda

T = TypeVar("T")
PLAN = small(CPU, 8, 64)
GRID = with_collectives(build_grid(PLAN, ["draft"]), PLAN)


class Meeting:
    """Where the threads that stand for ranks exchange values; waiting for long is a failure."""

    def __init__(self, size: int = 2) -> None:
        self.values: list[Any] = [None] * size
        self.door = Barrier(size)

    def wait(self) -> None:
        try:
            self.door.wait(timeout=10)
        except BrokenBarrierError:
            raise PeerLost("the other rank is elsewhere") from None


class Rank:
    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.size, self.meeting = rank, 2, meeting

    def share(self, mine: T) -> list[T]:
        self.meeting.values[self.rank] = mine
        self.meeting.wait()
        found = list(self.meeting.values)
        self.meeting.wait()
        return found


def _both(work: Callable[[Rank], T]) -> tuple[T, T]:
    """What two ranks return that do ``work`` at once."""
    meeting = Meeting()
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(work, [Rank(rank, meeting) for rank in range(2)])
    return first, second


def test_alone_there_is_nothing_to_agree_on() -> None:
    assert ALONE.share("x") == ["x"]
    assert led(ALONE, 3) == 3
    assert together(ALONE, lambda: 4) == 4


def test_the_first_rank_leads() -> None:
    assert _both(lambda peers: led(peers, 10 + peers.rank)) == (10, 10)


@pytest.mark.parametrize("failing", [0, 1])
def test_what_fails_on_one_rank_fails_on_all_with_its_reason(failing: int) -> None:
    def make(rank: int) -> int:
        if rank == failing:
            raise MemoryError("no room")
        return rank

    def reason(peers: Rank) -> str:
        with pytest.raises((MemoryError, Unsupported)) as caught:
            together(peers, lambda: make(peers.rank))
        return str(caught.value)

    found = _both(reason)
    assert found[failing] == "no room"
    assert found[1 - failing] == f"rank {failing}: no room"


@pytest.mark.parametrize("seed", range(6))
def test_ranks_of_unlike_speed_and_noise_run_as_often_and_take_as_many_windows(seed: int) -> None:
    """Alone, the one would settle at six windows and the other be stopped by the cap."""

    def measure(peers: Rank) -> tuple[int, int, tuple[str, ...]]:
        noise, clock, runs = random.Random(f"{seed}/{peers.rank}"), FakeClock(), 0
        noisy = peers.rank == seed % 2

        def run() -> None:
            nonlocal runs
            runs += 1
            clock.spend(1e-3 * (2 + peers.rank) * (noise.lognormvariate(0, 0.3) if noisy else 1))

        timer = CpuTimer("wall", clock.now, clock.now, peers)
        samples = timer.measure(run, Limits(warmup_s=0.1))
        return runs, len(samples.us), samples.flags

    first, second = _both(measure)
    assert first == second
    assert first[2] == (("capped",) if seed % 2 == 0 else ())


def test_ranks_replay_the_passes_of_a_round_equally_often() -> None:
    def measure(peers: Rank) -> tuple[int, int]:
        cuda = FakeCuda(launch_s=(4 + 3 * peers.rank) * 1e-6)
        passes: list[tuple[PassName, Run]] = [
            ("verify", lambda: cuda.launch(3e-4)),
            ("accept", lambda: cuda.launch(1e-5)),
        ]
        return len(CudaTimer(cuda, peers=peers).measure_round(passes, Limits())["round"].us), cuda.replays

    first, second = _both(measure)
    assert first == second


def test_a_pass_that_one_rank_cannot_capture_is_run_by_none() -> None:
    def measure(peers: Rank) -> tuple[str, int]:
        cuda = FakeCuda(refuses="not permitted" if peers.rank else "")
        with pytest.raises((CaptureError, Unsupported)) as caught:
            CudaTimer(cuda, peers=peers).measure(lambda: cuda.launch(1e-5), Limits())
        return str(caught.value), cuda.replays

    assert _both(measure) == (("rank 1: not permitted", 0), ("not permitted", 0))


Told = tuple[list[Cell], Outcome | None]


def _campaign(
    path: Path, fails: Callable[[Cell], None] = lambda cell: None, **more: Any
) -> tuple[Told, Told]:
    """The cells that each rank prepared, and the first one's outcome; ``fails`` on the second alone."""

    def work(peers: Rank) -> Told:
        clock = FakeClock()
        bench = FakeBench(
            lambda cell: 500 + 20 * cell.tokens, clock, noise=0.01 * peers.rank, seed=peers.rank
        )
        timers: dict[Execution, Timer] = {"cpu": CpuTimer("wall", clock.now, clock.now, peers)}
        if peers.rank:
            bench.fails = fails
            follow(bench, timers, peers)
            return bench.prepared, None
        journal = Journal(path / "cells.jsonl", {})
        journal.open(resume=(path / "cells.jsonl").exists())
        campaign = Campaign(
            bench, timers, GRID, journal, Limits(warmup_s=0.1), now=clock.now, peers=peers, **more
        )
        return bench.prepared, campaign.run()

    return _both(work)


def test_the_others_measure_every_cell_that_the_first_takes_up_and_then_end(tmp_path: Path) -> None:
    (first, outcome), (second, _) = _campaign(tmp_path)
    assert first == second
    assert outcome is not None
    assert outcome.stopped == "finished"
    assert len(outcome.finished) == len(first) == 2 * len(GRID.cells) + 3 * len(GRID.anchors)
    assert {m.cell.tokens for m in outcome.measured if m.cell.pass_ == "collective"} == {1, 2, 3, 4, 6, 8}


def test_the_first_rank_s_budget_ends_all(tmp_path: Path) -> None:
    (first, outcome), (second, _) = _campaign(tmp_path, deadline=1.5)
    assert outcome is not None
    assert outcome.stopped == "budget"
    assert first == second
    assert 0 < len(first) < 2 * len(GRID.cells)


def test_a_resumed_campaign_repeats_nothing_on_any_rank(tmp_path: Path) -> None:
    (begun, _), _ = _campaign(tmp_path, deadline=1.5)
    (first, outcome), (second, _) = _campaign(tmp_path)
    assert outcome is not None
    assert first == second
    assert len(begun) + len(first) == len(outcome.finished)


def test_a_cell_that_one_rank_has_no_memory_for_is_skipped_on_all(tmp_path: Path) -> None:
    def fails(cell: Cell) -> None:
        if cell.sequences == 4:
            raise OutOfMemory(cell, "there")

    (_, outcome), (second, _) = _campaign(tmp_path, fails)
    assert outcome is not None
    assert outcome.stopped == "finished"
    assert {each.cell for each in outcome.skipped} == {c for c in GRID.cells if c.sequences == 4}
    assert all(
        each.skipped.startswith("rank 1: ") and "out of memory there" in each.skipped
        for each in outcome.skipped
    )
    assert not [c for c in second if c.sequences == 4]


def test_adaptive_cells_are_the_first_rank_s_choice(tmp_path: Path) -> None:
    """A fit that expects twice the time of everything misses every cell."""

    def work(peers: Rank) -> list[Cell]:
        clock = FakeClock()
        bench = FakeBench(lambda cell: 500 + 20 * cell.tokens, clock)
        timers: dict[Execution, Timer] = {"cpu": CpuTimer("wall", clock.now, clock.now, peers)}
        if peers.rank:
            follow(bench, timers, peers)
            return bench.prepared
        journal = Journal(tmp_path / "cells.jsonl", {})
        journal.open(resume=False)
        campaign = Campaign(
            bench, timers, GRID, journal, Limits(warmup_s=0.1), passes=1, now=clock.now, peers=peers
        )
        outcome = campaign.run(lambda measured: lambda cell: 2.0 * (500 + 20 * cell.tokens))
        assert [each for each in outcome.finished if each.slot == "adaptive"]
        return bench.prepared

    first, second = _both(work)
    assert first == second


def test_a_rank_whose_leader_is_gone_says_so() -> None:
    class Gone:
        rank, size = 1, 2

        def share(self, mine: T) -> list[T]:
            raise RuntimeError("Connection closed by peer\n[more]")

    with pytest.raises(PeerLost, match=r"rank 1 stopped: Connection closed by peer$"):
        follow(FakeBench(lambda cell: 1.0, FakeClock()), {}, Gone())
