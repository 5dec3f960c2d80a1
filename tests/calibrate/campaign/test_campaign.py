"""A campaign on a fake machine: order, drift, resumption, budget, interruption, lack of memory."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from calibrate.campaign import Campaign, Outcome, Step
from calibrate.cells import Cell
from calibrate.grid import CPU, Grid, build_grid, small
from calibrate.journal import Journal, JournalError
from calibrate.passes.contract import OutOfMemory
from calibrate.timing.fake import FakeBench, FakeClock, fake_timer
from calibrate.timing.samples import Limits

GRID = build_grid(small(CPU, 48, 256), ["draft"])
ABOUT = {"model": "fake"}


def cost(cell: Cell) -> float:
    """A memory floor, a part per token and a part per token of context, in microseconds."""
    if cell.pass_.startswith("draft"):
        return 200 + 3 * cell.tokens
    return 1000 + 20 * cell.tokens + 0.01 * cell.sequences * cell.context if cell.pass_ != "accept" else 30


class Rig:
    """A campaign with everything fake; ``again`` is the same campaign in a new process."""

    def __init__(self, path: Path, grid: Grid = GRID, noise: float = 0.0, **more: object) -> None:
        self.path, self.grid = path / "cells.jsonl", grid
        self.clock = FakeClock()
        self.bench = FakeBench(cost, self.clock, noise=noise, seed=1)
        self.steps: list[str] = []
        self.more = more

    def campaign(self, resume: bool = False, **more: object) -> Campaign:
        journal = Journal(self.path, ABOUT)
        journal.open(resume)
        return Campaign(
            bench=self.bench,
            timers={"cpu": fake_timer(self.clock)},
            grid=self.grid,
            journal=journal,
            now=self.clock.now,
            watch=lambda step: self.steps.append(step.text),
            **{"limits": Limits(warmup_s=0.1), **self.more, **more},  # type: ignore[arg-type]
        )


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def _done(outcome: Outcome) -> Counter[tuple[str, int, Cell]]:
    return Counter(each.key for each in outcome.finished)


def test_every_cell_is_measured_in_every_pass_and_anchors_first_middle_and_last(rig: Rig) -> None:
    outcome = rig.campaign().run()
    slots = [each.slot for each in outcome.finished]
    assert outcome.stopped == "finished"
    assert set(_done(outcome).values()) == {1}
    assert Counter(slots) == {"grid": 2 * len(GRID.cells), "first": 3, "middle": 3, "last": 3}
    assert slots[:3] == ["first"] * 3
    assert slots[-3:] == ["last"] * 3
    assert slots[3 + len(GRID.cells) :][:3] == ["middle"] * 3


def test_without_noise_every_pass_is_measured_exactly(rig: Rig) -> None:
    passes = [m for m in rig.campaign().run().measured if m.cell.pass_ not in ("round", "host")]
    assert {m.cell.pass_ for m in passes} >= {
        "verify",
        "draft_first",
        "draft_next",
        "accept",
        "prefill",
        "mixed",
    }
    for m in passes:
        assert m.median_us == pytest.approx(cost(m.cell))


def test_the_order_is_shuffled_by_the_seed_and_differs_between_passes(rig: Rig) -> None:
    order = list(rig.campaign().order())
    half = len(GRID.cells)
    assert order == list(rig.campaign(resume=True).order())
    assert [c for _, c in order[:half]] != [c for _, c in order[half:]]
    assert {c for _, c in order[:half]} == {c for _, c in order[half:]} == set(GRID.cells)
    assert order != list(rig.campaign(resume=True, seed=1).order())
    assert [c for _, c in order[:half]] != list(GRID.cells)


def test_anchors_show_how_far_the_machine_drifted(tmp_path: Path) -> None:
    """A machine that gets 10 % slower from the first anchors to the last drifts by 10 %."""
    rig = Rig(tmp_path)
    campaign = rig.campaign()
    steady = rig.bench.cost
    rig.bench.cost = lambda cell: steady(cell) * (1.1 if campaign._known and _slot(campaign) >= 2 else 1.0)
    assert campaign.run().drift == pytest.approx(0.10, abs=1e-6)


def _slot(campaign: Campaign) -> int:
    """0 before the middle anchors are done, 1 after, 2 once the whole grid is."""
    slots = Counter(each.slot for each in campaign.journal.finished)
    return 2 if slots["grid"] == 2 * len(GRID.cells) else min(slots["middle"] // 3, 1)


def test_a_steady_machine_does_not_drift(rig: Rig) -> None:
    assert rig.campaign().run().drift == pytest.approx(0, abs=1e-9)


def test_a_campaign_killed_anywhere_loses_nothing_that_finished(rig: Rig) -> None:
    """Killed in the 20th cell, in the middle of writing a line: 19 cells are on the disk, and stay."""
    _interrupt(rig, 20, SystemExit)
    with pytest.raises(SystemExit):
        rig.campaign().run()
    with rig.path.open("a") as file:
        file.write('{"slot": "grid", "cell": {"pass": "ver')
    assert len(rig.campaign(resume=True).journal.finished) == 19


def test_a_resumed_campaign_repeats_nothing(rig: Rig) -> None:
    _interrupt(rig, 20, SystemExit)
    with pytest.raises(SystemExit):
        rig.campaign().run()
    before = list(rig.bench.prepared)
    rig.bench.fails = lambda cell: None
    outcome = rig.campaign(resume=True).run()
    fresh = Counter(each.slot for each in outcome.finished[len(before) :])
    assert set(_done(outcome).values()) == {1}
    assert fresh["resumed"] == 3, "the anchors show what changed in the break"
    assert sum(each.slot == "grid" for each in outcome.finished) == 2 * len(GRID.cells)
    assert len(rig.bench.prepared) == len(outcome.finished)


def test_resuming_what_is_finished_measures_nothing(rig: Rig) -> None:
    first = rig.campaign().run()
    rig.bench.prepared.clear()
    assert rig.campaign(resume=True).run().finished == first.finished
    assert rig.bench.prepared == []


def test_an_interrupt_keeps_the_finished_cells_and_returns_them(rig: Rig) -> None:
    _interrupt(rig, 30, KeyboardInterrupt)
    outcome = rig.campaign().run()
    assert outcome.stopped == "interrupted"
    assert len(outcome.finished) == 29
    assert len(outcome.measured) > 29


def _interrupt(rig: Rig, at: int, error: type[BaseException]) -> None:
    """Raise ``error`` when the ``at``-th cell is prepared."""

    def fails(cell: Cell) -> None:
        if len(rig.bench.prepared) == at - 1:
            raise error

    rig.bench.fails = fails


def test_there_is_no_starting_over_a_journal_by_accident(rig: Rig) -> None:
    rig.campaign().run()
    with pytest.raises(JournalError, match="--resume"):
        rig.campaign()


def test_a_journal_of_something_else_is_refused_with_the_field(rig: Rig) -> None:
    rig.campaign()
    with pytest.raises(JournalError, match="model is 'fake' there and 'other' now"):
        Journal(rig.path, {"model": "other"}).open(resume=True)


def test_an_edited_line_is_refused_with_its_number(rig: Rig) -> None:
    rig.campaign().run()
    lines = rig.path.read_text().splitlines()
    broken = json.loads(lines[4])
    broken["cell"]["sequences"] = -1
    rig.path.write_text("\n".join([*lines[:4], json.dumps(broken), *lines[5:]]) + "\n")
    with pytest.raises(JournalError, match=r"line 5: cell\.sequences"):
        Journal(rig.path, ABOUT).open(resume=True)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("samples_us", [1.0, -2.0], "every sample must be above 0"),
        ("samples_us", [0.0], "every sample must be above 0"),
        ("median_us", 1e9, "median_us is 1e"),
        ("ci_us", [2e9, 1.0], "does not enclose"),
    ],
)
def test_samples_that_no_timer_gives_are_refused_with_file_and_line(
    rig: Rig, field: str, value: object, message: str
) -> None:
    rig.campaign().run()
    lines = rig.path.read_text().splitlines()
    broken = json.loads(lines[4])
    broken["measured"][0][field] = value
    rig.path.write_text("\n".join([*lines[:4], json.dumps(broken), *lines[5:]]) + "\n")
    with pytest.raises(JournalError, match=rf"cells\.jsonl: line 5: measured.*{message}"):
        Journal(rig.path, ABOUT).open(resume=True)


def test_a_cell_that_is_there_twice_counts_once(rig: Rig) -> None:
    outcome = rig.campaign().run()
    lines = rig.path.read_text().splitlines()
    rig.path.write_text("\n".join([*lines, *lines[4:9]]) + "\n")
    journal = Journal(rig.path, ABOUT)
    journal.open(resume=True)
    assert journal.finished == list(outcome.finished)


@pytest.mark.parametrize("breaks", [1, 2])
def test_every_resumption_has_its_own_anchors_at_both_ends(rig: Rig, breaks: int) -> None:
    """It slows down by a fifth within the last session, which only that one's last anchors can show."""
    for session in range(breaks):
        assert rig.campaign(resume=session > 0, deadline=rig.clock.now() + 1.5).run().stopped == "budget"
    campaign, steady = rig.campaign(resume=True), rig.bench.cost
    before = len(campaign.journal.finished)
    rig.bench.cost = lambda cell: steady(cell) * (1.2 if len(campaign.journal.finished) > before + 20 else 1)
    outcome = campaign.run()
    slots = Counter(each.slot for each in outcome.finished[before:])
    assert (slots["resumed"], slots["last"]) == (3, 3)
    assert outcome.finished[-1].slot == "last"
    assert outcome.drift == pytest.approx(0.2, abs=1e-6)
    assert rig.campaign(resume=True).run().finished == outcome.finished


@pytest.mark.parametrize("budget", [1.0, 2.0, 4.0])
def test_the_budget_is_kept_and_the_last_anchors_are_measured_within_it(rig: Rig, budget: float) -> None:
    outcome = rig.campaign(deadline=budget).run()
    slots = Counter(each.slot for each in outcome.finished)
    assert outcome.stopped == "budget"
    assert rig.clock.now() <= budget
    assert rig.clock.now() >= 0.5 * budget
    assert slots["last"] == 3
    assert 0 < slots["grid"] < 2 * len(GRID.cells)


def test_a_cell_that_does_not_fit_is_skipped_and_said_so(rig: Rig) -> None:
    def fails(cell: Cell) -> None:
        if cell.sequences > 16:
            raise OutOfMemory(cell)

    rig.bench.fails = fails
    outcome = rig.campaign().run()
    large = {c for c in (*GRID.cells, *GRID.anchors) if c.sequences > 16}
    assert {each.cell for each in outcome.skipped} == large
    assert all("out of memory" in each.skipped and not each.measured for each in outcome.skipped)
    assert any("skipped" in text and "32 x 1" in text for text in rig.steps)
    assert outcome.stopped == "finished"


def test_what_was_skipped_is_not_tried_again_on_resumption(rig: Rig) -> None:
    def fails(cell: Cell) -> None:
        if cell.sequences > 16:
            raise OutOfMemory(cell)

    rig.bench.fails = fails
    rig.campaign().run()
    rig.bench.fails = _never
    assert rig.campaign(resume=True).run().skipped


def _never(cell: Cell) -> None:
    raise AssertionError(f"{cell} was prepared again")


def test_cells_that_the_fit_misses_are_measured_again_with_cells_beside_them(rig: Rig) -> None:
    missed = next(c for c in GRID.cells if c.pass_ == "round" and c.width == 1 and c.sequences == 16)

    def off(cell: Cell) -> float:
        wrong = (cell.sequences, cell.width, cell.context, cell.chunk) == (16, 1, missed.context, 0)
        return cost(cell) * (1.2 if wrong else 1.03)

    outcome = rig.campaign().run(lambda measured: off)
    extra = [each.cell for each in outcome.finished if each.slot == "adaptive"]
    alike = {c.sequences for c in GRID.cells if c.width == 1 and c.context == missed.context and not c.chunk}
    assert extra[0] == missed
    assert [c.width for c in extra] == [1, 1, 1][: len(extra)]
    assert len(extra) >= 2
    assert not {c.sequences for c in extra[1:]} & alike
    assert outcome.finished[-1].slot == "last"


def test_flags_of_the_bench_and_of_anchors_are_on_every_sample(rig: Rig) -> None:
    rig.bench.flags = ("layers",)
    outcome = rig.campaign().run()
    for each in outcome.finished:
        for m in each.measured:
            assert "layers" in m.flags
            assert ("anchor" in m.flags) == (each.slot in ("first", "middle", "last"))


def test_a_journal_holds_both_clocks_and_every_sample(rig: Rig) -> None:
    outcome = rig.campaign().run()
    read = Journal(rig.path, ABOUT)
    read.open(resume=True)
    assert read.finished == list(outcome.finished)
    measured = [each for each in read.finished if each.measured]
    assert all(set(each.other_us) == {m.cell.pass_ for m in each.measured} for each in measured)


def test_progress_counts_up_to_the_plan(rig: Rig) -> None:
    steps: list[Step] = []
    campaign = rig.campaign()
    campaign.watch = steps.append
    campaign.run()
    assert [step.done for step in steps] == list(range(len(steps)))
    assert steps[-1].done == steps[-1].planned - 1
