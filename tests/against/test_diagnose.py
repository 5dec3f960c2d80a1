"""Planted differences: the right suspect is named, and none where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.against.adjust import Adjustment
from sim.against.diagnose import diagnose
from sim.against.finding import Diagnosis
from tests.against.truth import Hidden, bench_of, measured

LOADS = (1, 16)
PLANTED = {
    "step cost": Hidden(Adjustment(verify=1.25)),
    "host overhead": Hidden(Adjustment(overhead_ms=7)),
    "acceptance": Hidden(settings={"acceptance.alpha": 0.55}),
    "queueing": Hidden(settings={"engine.max_num_seqs": 8}),
}


def of(folder: Path, hidden: Hidden, loads: tuple[int, ...] = LOADS) -> Diagnosis:
    path, files = measured(folder, hidden, loads)
    return diagnose(bench_of(path, files, seeds=1))


@pytest.mark.parametrize("culprit", PLANTED)
def test_a_planted_difference_is_named_and_nothing_else(tmp_path: Path, culprit: str) -> None:
    found = of(tmp_path, PLANTED[culprit])
    assert found.culprits == (culprit,)
    named = next(each for each in found.findings if each.suspect == culprit)
    assert named.evidence


def test_no_difference_points_nowhere(tmp_path: Path) -> None:
    found = of(tmp_path, Hidden())
    assert [each.verdict for each in found.findings] == ["looks right"] * 4
    assert found.sentence.startswith("Nothing points anywhere")


def test_a_limit_on_running_sequences_is_found_by_its_size(tmp_path: Path) -> None:
    found = of(tmp_path, PLANTED["queueing"])
    assert "max_num_seqs 8 " in found.findings[-1].text


def test_a_constant_wait_before_the_engine_is_told_from_a_queue(tmp_path: Path) -> None:
    found = of(tmp_path, Hidden(extra_ttft_ms=80))
    assert found.culprits == ("queueing",)
    assert "at every load: time before the engine" in found.findings[-1].text


def test_one_load_cannot_tell_step_cost_from_host_overhead(tmp_path: Path) -> None:
    found = of(tmp_path, Hidden(Adjustment(overhead_ms=7)), (4,))
    assert found.culprits == ()
    undecided = [each for each in found.findings if each.verdict == "cannot tell"]
    assert [set(each.suspect.split(" or ")) for each in undecided] == [{"step cost", "host overhead"}]


def test_other_lengths_than_measured_are_named_first(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(settings={"workload.lengths.output": 120}), (4,))
    found = diagnose(bench_of(path, files, seeds=1, own_workload=True))
    assert found.findings[0].suspect == "lengths"
    assert found.findings[0].verdict == "points here"
    assert "output tokens mean 120 measured" in found.findings[0].evidence[0]
    assert diagnose(bench_of(path, files, seeds=1)).culprits == ()


def test_without_counters_or_chunks_acceptance_cannot_be_told(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("concurrency,requests,input_tokens,output_tokens,tpot_mean_ms\n4,16,48,60,30\n")
    path, _ = measured(tmp_path, Hidden(), ())
    verdicts = {each.suspect: each.verdict for each in diagnose(bench_of(path, [table], seeds=1)).findings}
    assert verdicts["acceptance"] == verdicts["step cost"] == verdicts["queueing"] == "cannot tell"
