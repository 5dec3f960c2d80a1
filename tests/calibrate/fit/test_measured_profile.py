"""From a campaign's cells to a sealed profile: parts, rounds, refusals, edits, versions, modes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from calibrate.cells import Cell, Measured
from calibrate.compose.evaluate import pass_ns
from calibrate.fit.assemble import CampaignAbout, DrafterAbout, make_profile
from calibrate.fit.cells import FitError
from calibrate.fit.check import check, check_profile
from calibrate.fit.report import Machine, Method, Spread
from calibrate.grid import GPU, build_grid, pass_cell
from calibrate.profile import Device, ModelWork, Profile, ProfileError, dump_profile, parse_profile
from sim.cost.passes import PassCost
from sim.cost.step_cost import DraftHabits, StepCost
from tests.calibrate.fit.build import Law, campaign, cell, grid, law, measured

WORK = ModelWork(name="m", parameters=8e9, weight_bytes=16e9, read_bytes=16e9, flops_per_token=16e9)
ABOUT = CampaignAbout(
    name="made-up",
    created="2026-11-29",
    command="leadline calibrate --out made-up.json",
    device=Device(name="d", memory_bytes=1e11, bandwidth_bytes_per_s=4e12, peak_flops_per_s=1e15),
    dtype="bfloat16",
    method=Method(clock="cuda_event", sampling="greedy"),
    machine=Machine(driver="570", sm_clock_mhz=(1900.0, 1950.0, 1980.0)),
)
EAGLE = {"eagle3": DrafterAbout("eagle", max_depth=8)}


def first_law(shape: Mapping[str, float]) -> float:
    return 300 + 2 * shape["tokens"] + 0.001 * shape["context_tokens"]


def next_law(shape: Mapping[str, float]) -> float:
    return 250 + 1.5 * shape["tokens"] + 0.001 * shape["context_tokens"]


def accept_law(shape: Mapping[str, float]) -> float:
    return 40 + 0.5 * shape["logits"]


def host_law(shape: Mapping[str, float]) -> float:
    return 150 + 1.0 * shape["sequences"]


def round_law(at: Cell) -> float:
    """The engine's order: one first pass, width - 2 further ones, verify, accept, host."""
    drafts = 0.0
    if at.width > 1:
        one = cell(at.sequences, 1, at.context).shape
        drafts = first_law(at.shape) + (at.width - 2) * next_law(one)
    return drafts + law(at.shape) + accept_law(at.shape) + host_law(at.shape)


def whole_campaign(noise: float = 0.01, verify: Law = law, drift: float = 1.0) -> list[Measured]:
    """Every pass of a grid, whole rounds with drafter eagle3, a few eager cells, three anchors twice."""
    rows = [at for at in grid() if at.width <= 9]
    named = {
        "verify": (verify, ""),
        "draft_first": (first_law, "eagle3"),
        "draft_next": (next_law, "eagle3"),
        "accept": (accept_law, ""),
        "host": (host_law, ""),
    }
    cells: list[Measured] = []
    for name, (truth, drafter) in named.items():
        at = [row.model_copy(update={"pass_": name, "drafter": drafter}) for row in rows]
        if name == "draft_next":
            at = [row.model_copy(update={"width": 1}) for row in at]
        cells += campaign(dict.fromkeys(at), truth, noise)
    rounds = [at.model_copy(update={"pass_": "round", "drafter": "eagle3" * (at.width > 1)}) for at in rows]
    cells += [measured(at, round_law(at)) for at in rounds]
    cells += campaign([cell(b, 4, 1024, execution="eager") for b in (1, 32)], lambda s: law(s) + 5000, noise)
    anchors = [cell(b, 4, 1024, "round", drafter="eagle3") for b in (1, 16, 64)]
    cells += [
        measured(at, round_law(at) * level, flags=("anchor",)) for level in (1, drift) for at in anchors
    ]
    return cells


@pytest.fixture(scope="module")
def profile() -> Profile:
    return make_profile(whole_campaign(), ABOUT, WORK, EAGLE)


def test_every_part_predicts_its_law(profile: Profile) -> None:
    shape = cell(20, 5, 2000).shape
    target, eagle = profile.target, profile.drafters["eagle3"]
    parts = [
        (target.verify, law),
        (target.exact, law),
        (target.accept, accept_law),
        (target.host, host_law),
        (eagle.first, first_law),
    ]
    for terms, truth in parts:
        assert pass_ns(terms, shape) == pytest.approx(1e3 * truth(shape), rel=0.03)
    assert pass_ns(target.eager_extra, shape) == pytest.approx(5e6, rel=0.1)


def test_whole_rounds_are_the_sum_of_their_parts(profile: Profile) -> None:
    error = profile.fit["round"].in_sample
    assert error is not None
    assert error.mean < 2


def test_a_good_campaign_is_not_refused_and_states_its_error(profile: Profile) -> None:
    assert check(profile) == ()
    assert profile.error is not None
    assert 0 < profile.error.relative < 0.02
    assert profile.max_tokens == 512
    assert [found.level for found in check_profile(profile, "greedy")] == []


def test_the_simulator_prices_a_pass_as_the_fit_does(profile: Profile) -> None:
    """Two evaluators of one formula: the simulator's tables and the checks' plain sum."""
    cost = PassCost(profile.target.verify, 1000)
    for b, w, s in [(1, 1, 256), (7, 3, 1000), (64, 8, 4000), (100, 9, 100)]:
        at = cell(b, w, s).shape
        ns = cost.ns(b * w, b, b * w, at["context_tokens"], at["query_context_tokens"])
        assert ns == pytest.approx(pass_ns(profile.target.verify, at), rel=1e-9)


def test_a_measured_profile_survives_its_file(profile: Profile) -> None:
    text = dump_profile(profile)
    assert parse_profile(json.loads(text), "p.json") == profile
    assert dump_profile(parse_profile(json.loads(text), "p.json")) == text
    assert profile.cells == tuple(whole_campaign())


def test_exact_mode_swaps_the_terms_and_fit_mode_nothing(profile: Profile) -> None:
    exact = profile.in_mode("exact")
    assert exact.target.verify == profile.target.exact
    assert exact.drafters["eagle3"].next == profile.drafters["eagle3"].exact["next"]
    assert exact.target.accept == profile.target.accept
    assert profile.in_mode("fit") is profile
    bare = profile.model_copy(update={"target": profile.target.model_copy(update={"exact": ()})})
    with pytest.raises(ProfileError, match=r"target\.exact: has no exact terms"):
        bare.in_mode("exact")


Edit = Callable[[dict[str, Any]], None]


def _faster(data: dict[str, Any]) -> None:
    data["target"]["verify"][0]["curve"]["ns"][3] *= 0.5


def _fewer_samples(data: dict[str, Any]) -> None:
    data["cells"][5]["samples_us"].pop()


def _no_cells(data: dict[str, Any]) -> None:
    del data["cells"]


def _better_error(data: dict[str, Any]) -> None:
    data["fit"]["verify"]["leave_one_out"]["p90"] = 0.1


def _infinite(data: dict[str, Any]) -> None:
    data["cells"][0]["samples_us"][0] = float("inf")


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (_faster, "target"),
        (_fewer_samples, "cells"),
        (_no_cells, "cells"),
        (_better_error, "fit"),
        (_infinite, "cells"),
    ],
)
def test_an_edited_file_is_refused_with_the_field_that_was_edited(
    profile: Profile, edit: Edit, field: str
) -> None:
    data = json.loads(dump_profile(profile))
    edit(data)
    with pytest.raises(ProfileError, match=r"leadline calibrate --out made-up\.json") as caught:
        parse_profile(data, "p.json")
    assert caught.value.field == field


def test_a_renamed_profile_and_one_without_its_seal_load(profile: Profile) -> None:
    data = json.loads(dump_profile(profile))
    parse_profile({**data, "name": "mine", "notes": "copied"}, "p.json")
    del data["seal"]
    _faster(data)
    parse_profile(data, "p.json")


@pytest.mark.parametrize(("version", "words"), [(0, "An older leadline"), (2, "upgrade leadline")])
def test_another_version_says_how_to_convert(profile: Profile, version: int, words: str) -> None:
    data = {**json.loads(dump_profile(profile)), "schema": f"leadline.profile/{version}"}
    with pytest.raises(ProfileError, match=words) as caught:
        parse_profile(data, "p.json")
    assert "leadline calibrate --out made-up.json" in caught.value.message


def refused(profile: Profile) -> list[str]:
    return [finding.field for finding in check(profile)]


def with_report(profile: Profile, name: str, **update: Any) -> Profile:
    report = profile.fit[name].model_copy(update=update)
    return profile.model_copy(update={"fit": {**profile.fit, name: report}})


def test_a_noisy_campaign_is_refused_by_its_leave_one_out_error() -> None:
    noisy = make_profile(whole_campaign(noise=0.6), ABOUT, WORK, EAGLE)
    findings = check(noisy)
    assert "fit.verify" in [finding.field for finding in findings]
    assert any("p90 leave-one-out error" in f.message and "over 15 %" in f.message for f in findings)


def test_the_limit_of_the_leave_one_out_error_is_fifteen_percent(profile: Profile) -> None:
    at = Spread(mean=5, p90=15.0, max=30, count=90)
    assert refused(with_report(profile, "verify", leave_one_out=at)) == []
    over = at.model_copy(update={"p90": 15.1})
    assert refused(with_report(profile, "verify", leave_one_out=over)) == ["fit.verify"]
    assert refused(with_report(profile, "eagle3.next", leave_one_out=over)) == ["fit.eagle3.next"]
    assert refused(with_report(profile, "host", leave_one_out=over)) == []


@pytest.mark.parametrize(("level", "fields"), [(1.02, []), (1.05, ["fit.verify.drift_percent"])])
def test_drift_over_three_percent_is_refused(level: float, fields: list[str]) -> None:
    assert refused(make_profile(whole_campaign(drift=level), ABOUT, WORK, EAGLE)) == fields


def test_a_table_that_is_flat_over_the_depths_is_refused() -> None:
    flat = make_profile(whole_campaign(verify=lambda shape: 4000.0), ABOUT, WORK, EAGLE)
    (finding,) = check(flat)
    assert finding.field == "target.verify"
    assert "is flat: 64 sequences" in finding.message


def test_few_cells_are_refused_and_none_cannot_be_a_profile() -> None:
    few = make_profile(campaign(grid()[:3], law, 0.01), ABOUT, WORK)
    assert "fit.verify" in refused(few)
    with pytest.raises(FitError, match="no verify cell"):
        make_profile([], ABOUT, WORK)
    with pytest.raises(FitError, match="throttled"):
        make_profile([measured(cell(1, 1, 1), 1.0, flags=("throttled",))], ABOUT, WORK)


def test_prefill_chunks_do_not_hide_steps_that_are_flat_over_the_depths() -> None:
    """10 ms up to 600 tokens on the GPU grid: every decode step; only chunks and sequences of 512 rise."""
    at = [one if one.pass_ != "round" else pass_cell(one, "verify") for one in build_grid(GPU, ["d"]).cells]
    cells = campaign(dict.fromkeys(at), lambda s: 1e4 * max(1, s["tokens"] / 600), noise=0.002)
    (finding,) = [found for found in check(make_profile(cells, ABOUT, WORK)) if "flat" in found.message]
    assert "64 sequences take 10 ms at depth 7" in finding.message


def test_why_a_profile_is_refused_is_sealed_in_it(profile: Profile) -> None:
    assert profile.refused == ()
    flat = make_profile(whole_campaign(verify=lambda shape: 4000.0), ABOUT, WORK, EAGLE)
    (verdict,) = flat.refused
    assert verdict.startswith("target.verify: is flat")
    data = json.loads(dump_profile(flat))
    assert parse_profile(data, "p.json").refused == flat.refused
    del data["refused"]
    with pytest.raises(ProfileError, match="was changed") as caught:
        parse_profile(data, "p.json")
    assert caught.value.field == "refused"


def test_a_drafters_prefill_attention_is_said_to_be_taken_as_none(profile: Profile) -> None:
    (assumption,) = profile.assumptions
    assert (assumption.what, assumption.value) == ("drafter prefill attention", "none")
    assert make_profile(campaign(grid(), law, 0.01), ABOUT, WORK).assumptions == ()


def block_law(shape: Mapping[str, float]) -> float:
    """Of a cell: as many block tokens as fresh ones, 5 us each."""
    return 200 + 10 * shape["tokens"]


@pytest.mark.parametrize(("stated", "block"), [(0, 8), (16, 16)])
def test_a_block_is_priced_whole_whatever_the_step_before_it_was(stated: int, block: int) -> None:
    """Cells have n fresh tokens and a block of n; rounds add up, and the simulator pays for both."""
    rows = [at for at in grid() if 1 < at.width <= 8]
    blocks = [at.model_copy(update={"pass_": "draft_block", "drafter": "dflash"}) for at in rows]
    rounds = [at.model_copy(update={"pass_": "round"}) for at in blocks]
    cells = campaign(grid(), law, noise=0.0) + campaign(blocks, block_law, noise=0.0)
    cells += [measured(at, law(at.shape) + block_law(at.shape)) for at in rounds]
    about = DrafterAbout("parallel", block_tokens=stated)
    profile = make_profile(cells, ABOUT, WORK, {"dflash": about})
    drafter = profile.drafters["dflash"]
    assert (drafter.block_tokens, drafter.max_depth) == (block, min(16, block - 1))
    assert [a.what for a in profile.assumptions] == ["drafters.dflash: block", "drafter prefill attention"]
    assert profile.fit["dflash.first"].domain["tokens"].highest == 1024
    whole = profile.fit["round"].in_sample
    assert whole is not None
    assert whole.max < 1
    cost = StepCost(profile, drafter, 1024, habits=DraftHabits(over_scheduled=True))
    for fresh in (1, 8):
        us = cost.draft_ns(16 * fresh, 16, 16 * 1024, 16 * fresh * 1024, 0, ()) / 1e3
        assert us == pytest.approx(200 + 5 * 16 * (fresh + block), rel=0.01)
    priced = float(cost.drafting_ns(16, 16 * 7, 7, 1024)) / 1e3
    assert priced == pytest.approx(200 + 5 * 16 * (8 + block), rel=0.01)


def test_what_eager_passes_take_more_stays_as_it_is_beyond_the_last_one() -> None:
    """100 us at 4 tokens and 40 at 128: whichever way it went, 8,192 tokens take what 128 do."""
    cells = campaign(grid(), law, noise=0.0)
    extra = {1: 40.0, 32: 100.0}
    cells += [
        measured(at, law(at.shape) + extra[at.sequences])
        for at in (cell(b, 4, 1024, execution="eager") for b in extra)
    ]
    (term,) = make_profile(cells, ABOUT, WORK).target.eager_extra
    shapes = [{"tokens": n} for n in (128, 129, 8192)]
    at_last, after, far = (pass_ns([term], shape) for shape in shapes)
    assert at_last == after == far > 0


def test_another_sampling_mode_is_warned_of(profile: Profile) -> None:
    (finding,) = check_profile(profile, "T=1")
    assert finding.level == "warning"
    assert str(finding).startswith("warning: sampling: measured with greedy, used for T=1")


def test_rounds_that_their_parts_miss_are_warned_of(profile: Profile) -> None:
    off = with_report(profile, "round", in_sample=Spread(mean=6, p90=9, max=20, count=9))
    assert [f.field for f in check_profile(off)] == ["fit.round"]


def test_what_was_not_measured_is_warned_of() -> None:
    bare = make_profile(campaign(grid(others=()), law, 0.01), ABOUT, WORK, EAGLE)
    fields = {finding.field for finding in check_profile(bare)}
    assert {"fit.round", "fit.verify.domain", "target.accept", "target.host"} <= fields
    assert "fit.verify.drift_percent" in fields
    assert bare.drafters == {}
    assert "Drafter eagle3 has no measured pass" in bare.notes


def test_composed_profiles_have_nothing_to_refuse(profile: Profile) -> None:
    composed = profile.model_copy(update={"kind": "composed", "fit": {}, "cells": ()})
    assert check_profile(composed) == ()


def test_a_drafter_whose_further_passes_were_not_timed_goes_no_deeper_than_one() -> None:
    cells = [one for one in whole_campaign() if one.cell.pass_ != "draft_next"]
    assert make_profile(cells, ABOUT, WORK, EAGLE).drafters["eagle3"].max_depth == 1
