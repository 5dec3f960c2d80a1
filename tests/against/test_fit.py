"""Hidden parameters come back within their stated errors, and on runs that the fit has not seen."""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pytest
import yaml

from calibrate.profile import load_profile
from sim.acceptance.build import expected_survival
from sim.against.adjust import Adjustment, draft_scaled, shifted, verify_scaled
from sim.against.bench import make_bench
from sim.against.fit import Fit, fit, split
from sim.against.readers import read_files
from sim.against.write import write
from sim.cost.step_cost import StepCost
from sim.errors import InputError
from sim.scenario.catalogue import shipped
from sim.scenario.load import load_scenario
from tests.acceptance.helpers import configure
from tests.against.truth import Hidden, at_depths, bench_of, measured

TRUTH = Hidden(Adjustment(overhead_ms=5, verify=1.2), {"acceptance.alpha": 0.6})
SHIFT = log(0.6 / 0.4) - log(0.7 / 0.3)


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Fit]:
    path, files = measured(tmp_path_factory.mktemp("fit"), TRUTH, (1, 4, 16))
    return path, fit(bench_of(path, files, seeds=2))


def test_three_hidden_parameters_are_recovered(recovered: tuple[Path, Fit]) -> None:
    found = {each.name: each for each in recovered[1].parameters}
    assert found["verify"].value == pytest.approx(1.2, abs=0.05)
    assert found["overhead"].value == pytest.approx(5, abs=2)
    assert found["acceptance"].value == pytest.approx(SHIFT, abs=0.1)
    hidden = {"verify": 1.2, "overhead": 5, "acceptance": SHIFT}
    assert all(abs(each.value - hidden[name]) < 2 * each.error for name, each in found.items())


def test_a_load_that_was_held_out_is_met(recovered: tuple[Path, Fit]) -> None:
    found = recovered[1]
    assert [found.bench.runs[n].load.concurrency for n in found.held_out] == [4]
    assert found.error("tpot_mean_ms", found.held_out, adjusted=False) > 0.2
    for metric in ("tpot_mean_ms", "e2el_mean_ms", "output_tokens_per_s"):
        assert found.error(metric, found.held_out, adjusted=True) < 0.04, metric


def test_a_fit_gives_the_same_numbers_again(tmp_path: Path) -> None:
    path, files = measured(tmp_path, TRUTH, (2, 8))
    once, again = (fit(bench_of(path, files, seeds=1), ["verify"]) for _ in range(2))
    assert once.parameters == again.parameters


def test_the_written_scenario_runs_as_the_fit_did(recovered: tuple[Path, Fit], tmp_path: Path) -> None:
    source, found = recovered
    scenario_path, profile_path = write(found, source, tmp_path / "new" / "fitted.yaml", "leadline fit")
    files = [Path(run.place) for run in found.bench.runs]
    again = make_bench(scenario_path, read_files(files), {}, "static(k=3)", seeds=2)
    for number in range(len(files)):
        then, now = found.bench.simulated(number, found.adjustment).mean, again.simulated(number).mean
        assert now == pytest.approx(then, rel=1e-5)
    profile = load_profile(profile_path)
    assert profile.kind == "composed"
    assert {term.mark for term in profile.target.verify} == {"composed"}
    assert [source.file for source in profile.sources if source.name == "leadline-fit"] == [
        files[0].name,
        files[2].name,
    ]
    assert profile.error is not None
    assert profile.error.relative < 0.04
    kept = yaml.safe_load(scenario_path.read_text())
    assert kept["workload"]["num_requests"] == 64
    assert load_scenario(scenario_path).labels == ("off", "static(k=3)")


def test_the_scenario_itself_is_not_overwritten(recovered: tuple[Path, Fit]) -> None:
    source, found = recovered
    with pytest.raises(InputError, match="the scenario itself"):
        write(found, source, source, "leadline fit")


def test_loads_alternate_policy_by_policy_and_repetitions_stay_together(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(), (1, 2, 3), ("off", "static(k=3)"))
    runs = at_depths(read_files(files), (0, 0, 0, 3, 3, 3))
    twice = make_bench(path, (*runs, *runs), {})
    fitted, held_out = split(twice)
    assert fitted == (0, 2, 3, 5, 6, 8, 9, 11)
    assert held_out == (1, 4, 7, 10)


def test_one_depth_leaves_the_drafter_alone_and_one_load_holds_nothing_out(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(), (4,))
    found = fit(bench_of(path, files, seeds=1))
    assert [each.name for each in found.parameters] == ["overhead", "verify", "acceptance"]
    notes = " ".join(found.notes)
    assert "cannot be told apart" in notes
    assert "nothing is held out" in notes
    assert "draft is left" in notes


def test_parameters_that_the_runs_say_nothing_about_are_refused(tmp_path: Path) -> None:
    path, files = measured(tmp_path, Hidden(), (2,), ("off",))
    bench = bench_of(path, files, "off", seeds=1)
    with pytest.raises(InputError, match="say nothing about acceptance"):
        fit(bench, ["acceptance"])
    with pytest.raises(InputError, match="'speed' is none of overhead"):
        fit(bench, ["speed"])


# -- adjustments -----------------------------------------------------------------------------------


def test_scaled_passes_cost_the_factor_and_other_terms_stay() -> None:
    profile = load_profile(shipped("profile")["llama-3.1-8b-a100"])
    drafter = profile.drafters["eagle3"]
    base = StepCost(profile, drafter, 512)
    scaled = StepCost(verify_scaled(profile, 1.3), draft_scaled(drafter, 0.5), 512)
    assert scaled.verify.ns(64, 16, 64, 9000) == pytest.approx(1.3 * base.verify.ns(64, 16, 64, 9000))
    assert scaled.draft_ns(64, 16, 0, 0, 0, [(2, 16, 9000)]) == pytest.approx(
        0.5 * base.draft_ns(64, 16, 0, 0, 0, [(2, 16, 9000)]), abs=2
    )
    assert scaled.host.ns(64, 16, 64) == base.host.ns(64, 16, 64)


PROCESSES: list[dict[str, object]] = [
    {"process": "iid", "alpha": 0.6},
    {"process": "per_position", "unconditional": [0.6, 0.36, 0.216]},
    {"process": "mean_length", "acceptance_length": 1 + 0.6 + 0.36 + 0.216, "depth": 3},
]


@pytest.mark.parametrize("config", PROCESSES)
def test_a_shift_moves_the_odds_of_every_rate(config: dict[str, object]) -> None:
    """Odds 0.6 / 0.4 times e^0.5 are odds 2.473, a rate of 0.7121."""
    moved = shifted(configure(**config), 0.5)
    assert expected_survival(moved, 3) == pytest.approx(np.cumprod([0.71206] * 3), rel=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        {"process": "beta", "a": 3, "b": 2},
        {"process": "latent", "mean": 0.6, "spread": 1.0},
        {"process": "markov", "good": 0.8, "bad": 0.3, "leave_good": 0.1, "leave_bad": 0.2},
    ],
)
def test_a_shift_there_and_back_changes_nothing(config: dict[str, object]) -> None:
    start = configure(**config)
    back = shifted(shifted(start, 0.7), -0.7)
    assert expected_survival(back, 3) == pytest.approx(expected_survival(start, 3), rel=1e-9)
    assert expected_survival(shifted(start, 0.7), 3)[0] > expected_survival(start, 3)[0]


def test_a_recorded_trace_cannot_be_shifted() -> None:
    with pytest.raises(InputError, match="a recorded trace has no rate to adjust"):
        shifted(configure(process="trace", path="x.jsonl"), 0.1)
