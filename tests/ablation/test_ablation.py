"""Ablation: what each mechanism is worth, against the same runs made by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import sim
from sim.ablation.cli import app
from sim.ablation.report import data, page, tables
from sim.ablation.shares import SHOWN, PolicyAblation
from sim.ablation.variants import AS_IT_STANDS, TOGETHER, Change, changes, variants
from sim.ablation.words import felt, footnote, sentence, unfelt, worth
from sim.engine.config import EngineConfig
from sim.errors import InputError
from sim.results.compare import paired_difference
from sim.results.metrics import Metrics
from sim.results.store import json_text
from tests.results.build import metrics

SMALL: dict[str, Any] = {
    "profile": "llama-3.1-8b-h100",
    "drafter": "eagle3",
    "acceptance": {"process": "iid", "alpha": 0.7},
    "workload": {
        "arrival": {"process": "closed", "max_concurrency": 24},
        "lengths": {"input": 200, "output": {"type": "uniform", "min": 10, "max": 60}},
        "num_requests": 60,
    },
    "engine": {"preset": "vllm_v1"},
    "policies": ["off", {"policy": "static", "k": 4, "label": "four"}],
    "run": {"seeds": 3, "warmup": {"requests": 10}},
}
SOME = ("draft_past_end", "capture_sizes", "draft_for_finished")


@pytest.fixture(scope="module")
def ablation() -> sim.Ablation:
    return sim.ablate(SMALL, switches=SOME)


def test_one_switch_is_two_runs_by_hand(ablation: sim.Ablation) -> None:
    engines = {**SMALL["engine"]}, {**SMALL["engine"], "capture_sizes": []}
    runs = [sim.run({**SMALL, "engine": engine}).runs for engine in engines]
    for policy, metric in product(("off", "four"), SHOWN):
        stands, without = (
            [found["base", policy, seed].metrics[metric] for seed in (0, 1, 2)] for found in runs
        )
        entry = ablation.entry(policy)
        assert entry.values(AS_IT_STANDS, metric) == stands
        assert entry.values("capture_sizes", metric) == without
        share = next(each for each in entry.shares(metric).alone if each.switch == "capture_sizes")
        assert share.difference == paired_difference(metric, without, stands, ablation.error)


def test_all_together_is_the_reference_with_the_scenarios_limits() -> None:
    """Every switch as in ``ideal``, and nothing else changed, is the preset ``ideal``."""
    small = {**SMALL, "engine": {"preset": "vllm_v1", "max_num_seqs": 12, "kv_blocks": 300}}
    found = sim.ablate(small, policies=["four"], seeds=1).entry("four")
    ideal = sim.run({**small, "engine": {**small["engine"], "preset": "ideal"}}, policies=["four"], seeds=1)
    for metric in SHOWN:
        assert found.values(TOGETHER, metric) == [ideal.runs["base", "four", 0].metrics[metric]]


def test_parts_and_rest_add_up(ablation: sim.Ablation) -> None:
    """Each alone plus the rest is all together, within every seed and so in the mean."""
    entry = ablation.entry("four")
    for metric in SHOWN:
        shares = entry.shares(metric)
        assert shares.together is not None
        assert shares.rest.difference is not None
        alone = sum(each.difference.mean for each in shares.alone if each.difference is not None)
        assert alone + shares.rest.difference.mean == pytest.approx(shares.together.mean, abs=1e-9)


def test_ideal_against_ideal_has_no_differences() -> None:
    found = sim.ablate(SMALL, {"engine.preset": "ideal"}, seeds=1)
    for entry in found.entries:
        assert entry.changes == ()
        assert list(entry.runs) == [AS_IT_STANDS]
        assert all(entry.shares(metric).together is None for metric in SHOWN)


def test_a_drafter_that_is_not_there_has_no_habits(ablation: sim.Ablation) -> None:
    """Under ``off`` the drafter's switches change nothing at all, not even by chance."""
    for metric in SHOWN:
        for share in ablation.entry("off").shares(metric).alone:
            if share.switch != "capture_sizes":
                assert share.difference is not None
                assert share.difference.mean == 0
                assert share.difference.verdict == "no difference"


def test_differences_within_the_profiles_error_are_none(ablation: sim.Ablation) -> None:
    assert ablation.error > 0
    for entry in ablation.entries:
        for metric in SHOWN:
            for share in entry.shares(metric).alone:
                assert share.difference is not None
                if abs(share.difference.ratio - 1) < ablation.error:
                    assert share.difference.verdict == "no difference"
    assert f"{100 * ablation.error:.1f} %" in footnote(ablation)


def test_the_number_of_workers_changes_nothing(ablation: sim.Ablation) -> None:
    two = sim.ablate(SMALL, switches=SOME, jobs=2)
    assert json_text(data(two)) == json_text(data(ablation))


def test_only_switches_that_differ_are_varied() -> None:
    engine = EngineConfig(preset="vllm_v1", lookahead=False)
    found = changes(engine, "ideal")
    assert "lookahead" not in [each.switch for each in found]
    assert all(each.stands != each.reference for each in found)
    names = [each.switch for each in variants(engine, found)]
    assert names == [AS_IT_STANDS, *(each.switch for each in found), TOGETHER]
    for variant in variants(engine, found)[1:-1]:
        assert [each.switch for each in changes(variant.engine, "ideal")] == [
            each.switch for each in found if each.switch != variant.switch
        ]
    assert changes(engine, "ideal", ["prefill"]) == ()


def test_two_engines_are_taken_apart_the_same_way() -> None:
    """Against another preset than ``ideal`` the mechanisms are those in which the two differ."""
    found = sim.ablate(SMALL, against="vllm_v1_adaptive", policies=["four"], seeds=1).entry()
    assert [each.switch for each in found.changes] == ["pad_new_decodes", "graphs", "varying_depth_graphs"]


def test_unstable_runs_have_no_share() -> None:
    flood = {
        **SMALL,
        "workload": {
            "arrival": {"process": "poisson", "request_rate": "400/s"},
            "lengths": {"input": 100, "output": 60},
            "num_requests": 200,
        },
        "engine": {"preset": "vllm_v1", "max_num_seqs": 8},
        "run": {"seeds": 1, "warmup": "none"},
    }
    found = sim.ablate(flood, switches=["capture_sizes"], policies=["off"]).entry("off")
    assert found.unstable(AS_IT_STANDS)
    shares = found.shares("tpot_mean_ms")
    assert shares.together is None
    assert shares.alone[0].difference is None
    assert math.isnan(shares.alone[0].part)


def test_what_is_no_switch_is_refused() -> None:
    with pytest.raises(InputError, match=r"lookahed.*did you mean 'lookahead'\?\n.*'prefil'.*'prefill'"):
        sim.ablate(SMALL, switches=["lookahed", "prefil"])
    with pytest.raises(InputError, match="no preset 'idea'"):
        sim.ablate(SMALL, against="idea")
    with pytest.raises(InputError, match="jobs is 0"):
        sim.ablate(SMALL, jobs=0)
    with pytest.raises(InputError, match="executor is 'dask'"):
        sim.ablate(SMALL, executor="dask")  # type: ignore[arg-type]


def test_asking_for_what_is_not_there_names_what_is(ablation: sim.Ablation) -> None:
    with pytest.raises(InputError, match="off at base, four at base"):
        ablation.entry("five")
    with pytest.raises(InputError, match="unknown metric 'tpot'"):
        ablation.entry("four").values(AS_IT_STANDS, "tpot")


def test_sentences_name_what_is_felt(ablation: sim.Ablation) -> None:
    entry = ablation.entry("four")
    shares = entry.shares("tpot_mean_ms")
    text = sentence(entry, ablation.against, "tpot_mean_ms")
    assert text.startswith("four at base: TPOT mean ")
    assert worth(shares.together) in text
    for each in shares.alone:
        assert each.difference is not None
        assert (f"{each.switch} " in text) is (each.difference.verdict != "no difference")


def test_the_page_says_what_the_terminal_says(ablation: sim.Ablation) -> None:
    """One table per policy and load: rows of the mechanisms that are felt, the others in its note."""
    report = page(ablation)
    assert len(report.tables) == len(report.verdict) == len(ablation.entries)
    for table, entry in zip(report.tables, ablation.entries, strict=True):
        names = [row[0] for row in table.rows]
        assert names == [AS_IT_STANDS, *felt(entry), "all together", "beyond the sum of each"]
        assert all((each.switch in names) != (each.switch in table.note) for each in entry.changes)
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_what_is_felt_comes_first_and_the_rest_is_named_once() -> None:
    """Mechanisms by size; those without a difference sorted into no change at all and mere noise."""
    entry = made_up({"small": 1.2, "large": 2.0, "same": 1.0, "noise": 1.01})
    assert felt(entry) == ["large", "small"]
    assert unfelt(entry) == (
        "These change nothing here: same. Within the seeds' noise or the profile's error: noise."
    )
    shown = shown_at(140, entry)
    assert shown.index("large") < shown.index("small") < shown.index("all together")


def test_what_is_unstable_is_shown_and_what_it_is_compared_with_must_not_be() -> None:
    entry = made_up({"flooded": math.nan, "large": 2.0})
    assert felt(entry) == ["flooded", "large"]
    stands = replace(entry, runs={**entry.runs, AS_IT_STANDS: entry.runs["flooded"]})
    assert felt(stands) == []
    assert unfelt(stands) == "Unstable as it stands, so that no mechanism can be told apart."


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_a_terminal(width: int) -> None:
    """No name is cut and no figure lost, at 80 columns either."""
    names = {name: 1.5 + i for i, name in enumerate(EngineConfig(preset="sglang").behaviour.model_dump())}
    shown = shown_at(width, made_up(names))
    assert all(name in shown for name in names)
    assert "…" not in shown
    assert shown.count("1 → 2") == len(names)
    figures = [line.split(" %") for line in shown.splitlines() if "±" in line and not line.endswith(".")]
    assert [len(each) for each in figures[: len(names)]] == [len(SHOWN) + 1] * len(names)


def shown_at(width: int, entry: PolicyAblation) -> str:
    """A terminal's text, of so many columns."""
    console = Console(width=width, file=StringIO())
    with console.capture() as found:
        console.print(tables(sim.Ablation("made", "ideal", (0, 1), 0.05, (entry,))))
    return found.get()


def made_up(levels: dict[str, float]) -> PolicyAblation:
    """Metrics that a mechanism makes so many times what they are without it; NaN: unstable without it."""

    def runs(level: float) -> tuple[Metrics, ...]:
        return (metrics(unstable=math.isnan(level), **dict.fromkeys(SHOWN, 1 / level)),) * 2

    return PolicyAblation(
        "base",
        "off",
        "vllm_v1",
        tuple(Change(name, 1, 2) for name in levels),
        {AS_IT_STANDS: runs(1.0), **{name: runs(each) for name, each in levels.items()}, TOGETHER: runs(3.0)},
        error=0.05,
    )


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps({**SMALL, "run": {"seeds": 2, "warmup": "none"}}))
    words = [str(file), "--switches", "capture_sizes, draft_past_end", "--policies", "four", "--jobs", "1"]
    found = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out"), "--report"])
    assert found.exit_code == 0, found.output
    html = (tmp_path / "out" / "ablation.html").read_text(encoding="utf-8")
    assert "capture_sizes" in html
    assert "what each mechanism is worth" in html
    assert "capture_sizes" in found.output
    assert "beyond the sum of each" in found.output
    assert "lookahead" not in found.output
    written = json.loads((tmp_path / "out" / "ablation.json").read_text())
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout) == written
    entry = written["entries"][0]
    assert [each["switch"] for each in entry["changes"]] == ["draft_past_end", "capture_sizes"]
    assert np.isfinite(entry["metrics"]["tpot_mean_ms"]["together"]["mean"])


@pytest.mark.parametrize("words", [[], ["no-such-scenario"], ["depth-by-batch", "--report"]])
def test_the_command_needs_a_scenario_and_a_folder_for_its_page(words: list[str]) -> None:
    assert isinstance(CliRunner().invoke(app, words).exception, InputError)
