"""What each engine is told: valid by its documented schema, and the table that was asked for."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from calibrate.importers.engines import read_sglang
from calibrate.importers.options import about_from
from sim.errors import InputError
from sim.export import llamacpp, sglang, trtllm, vllm
from sim.export.registry import ENGINES, engine
from sim.export.settings import Rows, Settings, family
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.draft_len_schedule import DraftLenScheduleConfig
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.sglang_ema import SglangEmaConfig
from tests.calibrate.importers.conftest import OPTIONS
from tests.engine.modelled import view
from tests.export.wishes import FAMILIES, ROWS, cost, drafter, flags, policies, policy, schema, wish

MOST = 256


def plain(name: str, settings: Settings) -> Any:
    """Settings as the data that a schema describes."""
    if name == "trtllm":
        return json.loads(json.dumps(yaml.safe_load(settings.text)))
    found = flags(settings.text)
    return json.loads(json.dumps(found["speculative-config"])) if name == "vllm" else found


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", FAMILIES)
def test_settings_are_valid_or_refused_with_a_reason(name: str, kind: str) -> None:
    """For every policy there is."""
    reasons = []
    for of in policies():
        try:
            settings = engine(name).express(wish(of, kind))
        except InputError as error:
            reasons.append(str(error))
            continue
        _check(name, settings)
    assert all(reasons)


def _check(name: str, settings: Settings) -> None:
    jsonschema.validate(plain(name, settings), schema(name))
    for file, content in settings.files.items():
        which = {sglang.ADAPTIVE_FILE: "sglang_adaptive", sglang.SPS_FILE: "sglang_sps"}[file]
        jsonschema.validate(json.loads(content), schema(which))
        assert file in settings.text


@pytest.mark.parametrize("name", ENGINES)
def test_off_says_nothing_about_drafting(name: str) -> None:
    assert "draft" not in engine(name).off().text
    assert engine(name).express(wish(policy("static", k=0))).text == engine(name).off().text


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'vllm'"):
        engine("vlm")


def tables(falling: bool = False) -> st.SearchStrategy[Rows]:
    """Tables whose last row reaches the largest batch; ``falling``: no row is deeper than the first."""

    def build(ends: set[int], depths: list[int]) -> Rows:
        lasts = [*sorted(ends - {MOST}), MOST]
        ks = [depths[i % len(depths)] for i in range(len(lasts))]
        ks[0] = max(1, *ks) if falling else ks[0]
        firsts = [1, *(last + 1 for last in lasts[:-1])]
        return tuple(zip(firsts, lasts, ks, strict=True))

    return st.builds(
        build, st.sets(st.integers(1, MOST), max_size=6), st.lists(st.integers(0, 7), min_size=1, max_size=7)
    ).filter(lambda rows: any(k for _, _, k in rows))


def at(of: PolicyConfig, batch: int) -> int:
    """A policy's depth at one batch size."""
    return int(np.max(of.build(Bounds(16)).draft_depths(view(cost(), batch, 500, max_depth=16))))


def table(rows: Rows) -> PerBatchSizeConfig:
    return PerBatchSizeConfig(policy="per_batch_size", table=rows)


BATCHES = (1, 2, 3, 7, 16, 17, 33, 64, 65, 100, 255, MOST)


@given(tables())
def test_vllm_is_told_the_table_that_was_asked(rows: Rows) -> None:
    """Our own model of vLLM's rule reads the exported rows as the rows that were asked for."""
    settings = vllm.express(wish(policy("goodput"), rows=rows))
    config = plain("vllm", settings)
    told = config.get("num_speculative_tokens_per_batch_size", [[1, MOST, config["num_speculative_tokens"]]])
    assert [at(table(tuple(map(tuple, told))), n) for n in BATCHES] == [at(table(rows), n) for n in BATCHES]
    assert settings.stands_for is not None
    assert [at(settings.stands_for, n) for n in BATCHES] == [at(table(rows), n) for n in BATCHES]


@given(tables())
def test_sglang_is_told_the_table_that_was_asked(rows: Rows) -> None:
    """A batch-size floor with one candidate never moves: our model of SGLang's rule gives the rows."""
    settings = sglang.express(wish(policy("goodput"), rows=rows))
    config = json.loads(settings.files[sglang.ADAPTIVE_FILE])
    slots = {floor: slot for floor, slot in config.items() if floor.isdigit()}
    told = SglangEmaConfig.model_validate({"policy": "sglang_ema", "slots": slots})
    assert [at(told, n) for n in BATCHES] == [at(table(rows), n) for n in BATCHES]


@given(tables(falling=True))
def test_trtllm_is_told_the_table_that_was_asked(rows: Rows) -> None:
    settings = trtllm.express(wish(policy("goodput"), rows=rows))
    config = yaml.safe_load(settings.text)["speculative_config"]
    told: PolicyConfig = policy("static", k=config["max_draft_len"])
    if "draft_len_schedule" in config:
        told = DraftLenScheduleConfig.model_validate(
            {"policy": "draft_len_schedule", "schedule": config["draft_len_schedule"]}
        )
    first = next(row for row in rows if row[2] == max(k for _, _, k in rows))
    after = [n for n in BATCHES if n >= first[0]]
    assert [at(told, n) for n in after] == [at(table(rows), n) for n in after]


@given(tables())
def test_trtllm_stands_for_a_table_that_it_takes(rows: Rows) -> None:
    """The smallest key must hold the largest depth; what that changes is what is simulated."""
    settings = trtllm.express(wish(policy("goodput"), rows=rows))
    config = yaml.safe_load(settings.text)["speculative_config"]
    told = config.get("draft_len_schedule", {MOST: config["max_draft_len"]})
    assert told[min(told)] == config["max_draft_len"] == max(told.values())
    assert settings.stands_for is not None
    schedule = DraftLenScheduleConfig.model_validate({"policy": "draft_len_schedule", "schedule": told})
    assert [at(schedule, n) for n in BATCHES] == [at(settings.stands_for, n) for n in BATCHES]


def test_gaps_of_a_table_keep_the_depth_before_them() -> None:
    """As per_batch_size and vLLM read them: batches 5 to 9 draft 5."""
    gaps = policy("per_batch_size", table=[[1, 4, 5], [10, 20, 2]])
    settings = trtllm.express(wish(gaps))
    told = yaml.safe_load(settings.text)["speculative_config"]["draft_len_schedule"]
    assert told == {9: 5, MOST: 2}
    assert settings.stands_for is None
    assert trtllm.falling(((1, 4, 2), (6, 8, 5), (11, 20, 1))) == ((1, 10, 5), (11, 20, 1))


@pytest.mark.parametrize(
    ("name", "own"), [("vllm", "scheduled"), ("trtllm", "scheduled"), ("sglang", "sampling")]
)
def test_a_table_over_another_batch_than_the_engines_own_stands_for_one_over_its_own(
    name: str, own: str
) -> None:
    for key in ("scheduled", "sampling", "running"):
        asked = policy("per_batch_size", table=[[1, 8, 5], [9, 64, 2]], batch_key=key)
        found = engine(name).express(wish(asked)).stands_for
        assert (found is None) == (key == own)
        assert isinstance(found or asked, PerBatchSizeConfig)
        assert found is None or found.model_dump()["batch_key"] == own


def test_what_an_engine_has_itself_stands_for_nothing_else() -> None:
    same = {
        "vllm": [policy("static"), policy("per_batch_size"), policy("vllm_adaptive")],
        "sglang": [policy("static"), policy("tree"), policy("sglang_ema"), policy("sglang_throughput_aware")],
        "trtllm": [policy("static"), policy("tree"), policy("draft_len_schedule")],
        "llamacpp": [policy("static"), policy("p_min")],
    }
    for name, own in same.items():
        for each in own:
            assert engine(name).express(wish(each)).stands_for is None, (name, each.policy)


def test_llamacpp_has_no_table_and_says_which_depth_stands_for_it() -> None:
    settings = llamacpp.express(wish(policy("goodput"), static=4))
    assert flags(settings.text)["spec-draft-n-max"] == 4
    assert settings.stands_for == policy("static", k=4)
    with pytest.raises(InputError, match="add static or p_min policies"):
        llamacpp.express(wish(policy("goodput"), static=None))


def test_p_min_becomes_llamacpps_own_flags() -> None:
    """k_max, n_min and p_min are --draft-max, --draft-min and --draft-p-min (sim/policies/p_min.py)."""
    found = flags(llamacpp.express(wish(policy("p_min", k_max=6, p_min=0.4, n_min=2))).text)
    assert (found["spec-draft-n-max"], found["spec-draft-n-min"], found["spec-draft-p-min"]) == (6, 2, 0.4)


def test_adaptive_verification_carries_the_context_it_is_profiled_at() -> None:
    text = vllm.express(wish(policy("vllm_adaptive", k_max=5, profile_context=512))).text
    assert text.startswith("VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN=512 ")
    assert '"enable_adaptive_verification": true' in text


def test_sglangs_cost_table_is_one_that_our_importer_reads_back(tmp_path: Path) -> None:
    settings = sglang.express(wish(policy("dspark"), "dspark"))
    (tmp_path / "t.json").write_text(settings.files[sglang.SPS_FILE])
    data = json.loads(settings.files[sglang.SPS_FILE])
    tokens, rates = data["sample_batch_tokens"], data["sample_steps_per_sec"]
    assert all(a < b for a, b in pairwise(tokens))
    assert all(a >= b for a, b in pairwise(rates))
    found = read_sglang([tmp_path / "t.json"], about_from(**OPTIONS))
    ns = found.verify[0].curve.ns if found.verify[0].curve else ()
    for n, each in zip((8, 64, 512), np.interp((8, 64, 512), tokens, ns), strict=True):
        sequences = max(1, n // 8)
        own = float(cost().target_ns(n, sequences, sequences * 2048.0))
        assert each == pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("eagle", "eagle3", "eagle3"),
        ("eagle", "head", "eagle"),
        ("mtp", "mtp", "mtp"),
        ("draft_model", "qwen3-0.6b", "draft_model"),
        ("ngram", "ngram", "ngram"),
        ("ngram", "suffix", "suffix"),
        ("parallel", "dspark-7", "dspark"),
        ("parallel", "block", "dflash"),
    ],
)
def test_drafters_are_named_as_engines_name_them(kind: str, name: str, expected: str) -> None:
    assert family(drafter(kind), name) == expected


def test_rows_used_here_are_a_table() -> None:
    assert table(ROWS).table == ROWS
