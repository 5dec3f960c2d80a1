"""Tables of step times: each format means what its maker's own look-up makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.importers import About, import_profile
from calibrate.profile import Profile, ProfileError, dump_profile, load_profile, save_profile
from tests.calibrate.conftest import SHARED

Abouts = Callable[..., About]
Write = Callable[[str, str], Path]
B300 = SHARED / "groundtruth" / "vllm_dspark_cost_tables_dsv4flash_B300_TP4.csv"


def _ms(profile: Profile, tokens: int, sequences: int = 1) -> float:
    shape = {"tokens": tokens, "sequences": sequences, "logits": tokens}
    return pass_ns(profile.target.verify, shape) / 1e6


def _survives_a_file(profile: Profile, folder: Path) -> None:
    path = folder / "p.json"
    save_profile(profile, path)
    assert dump_profile(load_profile(path)) == dump_profile(profile)


def test_a_plain_table_is_straight_between_the_medians_of_its_rows(
    about: Abouts, write: Write, tmp_path: Path
) -> None:
    path = write("t.csv", "# one GPU\nn_tokens,ms\n8,10\n1,5.0\n1,5.2\n1,9.9\n")
    profile = import_profile("csv", [path], about())
    assert _ms(profile, 1) == pytest.approx(5.2)
    assert _ms(profile, 4) == pytest.approx(5.2 + (10 - 5.2) * 3 / 7)
    assert profile.max_tokens == 8
    assert profile.error is not None
    assert profile.error.relative == pytest.approx((0.2 + 0.0 + 4.7) / 5.2 / 3, abs=1e-4)
    assert [sample.us for sample in profile.samples] == [10_000, 5000, 5200, 9900]
    assert profile.sources[0].file == "t.csv"
    _survives_a_file(profile, tmp_path)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("n_tokens,ms\n1,5\n2,nan\n", "line 3", "ms is 'nan'; give a number above 0"),
        ("n_tokens,ms\n1.5,5\n", "line 2", "n_tokens is '1.5'; give a whole number"),
        ("n_tokens,ms\n\n# x\n0,5\n", "line 4", "n_tokens is '0'"),
        ("n_tokens,ms\n1,5,7\n", "line 2", "has 3 values and the header 2"),
        ("tokens,ms\n1,5\n", "line 1", "has no column 'n_tokens'"),
        ("n_tokens;ms\n1;5\n", "line 1", "it has semicolons: separate values by commas"),
        ("n_tokens\tms\n1\t5\n", "line 1", "it has tabs: separate values by commas"),
        ("n_tokens,ms\n", "file", "no rows"),
        ("", "file", "no rows"),
    ],
)
def test_a_bad_row_is_named_by_its_line(
    about: Abouts, write: Write, text: str, place: str, words: str
) -> None:
    path = write("t.csv", text)
    with pytest.raises(ProfileError) as raised:
        import_profile("csv", [path], about())
    assert (raised.value.file, raised.value.field) == (str(path), place)
    assert words in raised.value.message


def test_vllm_pads_up_to_the_next_captured_size(about: Abouts, write: Write, tmp_path: Path) -> None:
    rows = "verify_ms,1,5\nverify_ms,1,6\nverify_ms,8,6\nverify_ms,8,7\nverify_ms,16,7\n"
    rows += "draft_ms,4,1\ndraft_ms,8,2\n"
    profile = import_profile("vllm-cost", [write("t.csv", "curve,x,ms\n" + rows)], about(draft_name="dspark"))
    assert [_ms(profile, n) for n in (1, 2, 8, 9, 16)] == pytest.approx([5, 6, 6, 7, 7])
    first = profile.drafters["dspark"].first
    assert [pass_ns(first, {"sequences": n}) / 1e6 for n in (1, 4, 5, 8)] == pytest.approx([1, 1, 2, 2])
    pairs = {"verify": [[1, 5.0], [8, 6.0], [16, 7.0]], "draft": [[4, 1.0], [8, 2.0]], "cudagraph_limit": 16}
    same = import_profile("vllm-cost", [write("t.json", json.dumps(pairs))], about(draft_name="dspark"))
    assert same.target.verify == profile.target.verify
    assert same.drafters == profile.drafters
    _survives_a_file(profile, tmp_path)


def test_vllms_published_table_falls_out_of_its_graphs_at_1025_tokens(about: Abouts) -> None:
    """vLLM blog, DeepSeek-V4-Flash on 4 x B300: 20.6 ms at 1,008 tokens, 104.5 ms beyond 1,025."""
    if not B300.exists():
        pytest.skip("the table is not at ../shared/groundtruth")
    profile = import_profile("vllm-cost", [B300], about(draft_name="dspark"))
    assert _ms(profile, 1) == pytest.approx(5.11)
    assert _ms(profile, 1009) == pytest.approx(20.63)
    assert _ms(profile, 1026) == pytest.approx(104.49)
    assert pass_ns(profile.drafters["dspark"].first, {"sequences": 256}) / 1e6 == pytest.approx(5.38)


def test_a_vllm_row_of_no_curve_or_out_of_order_is_refused(about: Abouts, write: Write) -> None:
    with pytest.raises(ProfileError, match="line 2: curve is 'target'; give a curve that begins with"):
        import_profile("vllm-cost", [write("a.csv", "curve,x,ms\ntarget,1,5\n")], about())
    with pytest.raises(ProfileError, match="line 3: x is '1'; x must not fall"):
        import_profile("vllm-cost", [write("b.csv", "curve,x,ms\nverify,8,5\nverify,1,5\n")], about())
    with pytest.raises(ProfileError, match=r"verify\[1\]: is 8; give whole numbers that rise"):
        import_profile("vllm-cost", [write("c.json", '{"verify": [[8, 5], [8, 6]]}')], about())


def test_sglangs_steps_per_second_are_inverted(about: Abouts, write: Write, tmp_path: Path) -> None:
    table = {
        "sample_batch_tokens": [8, 16, 32],
        "sample_steps_per_sec": [200.0, 100.0, 50.0],
        "max_batch_tokens": 64,
    }
    profile = import_profile("sglang-sps", [write("t.json", json.dumps(table))], about(draft_kind="parallel"))
    assert [_ms(profile, n) for n in (8, 16, 24, 32)] == pytest.approx([5, 10, 15, 20])
    assert profile.max_tokens == 64
    assert any(assumption.what == "drafters" for assumption in profile.assumptions)
    _survives_a_file(profile, tmp_path)


def test_sglangs_additive_table_adds_up(about: Abouts, write: Write) -> None:
    """Its loader: bias + interpolated alpha(requests) + interpolated theta(tokens), in seconds."""
    table = {
        "bias_seconds": 0.004,
        "bs_probes": [1, 9],
        "alpha_seconds": [0.0, 0.008],
        "m_probes": [1, 101],
        "theta_seconds": [0.0, 0.010],
    }
    profile = import_profile("sglang-sps", [write("t.json", json.dumps(table))], about())
    assert _ms(profile, 51, 5) == pytest.approx(4 + 4 + 5)


@pytest.mark.parametrize(
    "rows",
    ["1,5\n64,5\n", "1,5\n8,9\n64,4\n", "1,5\n", "1,5\n1,6\n64,5.9\n"],
    ids=["flat", "falling", "one point", "within the spread of repeats"],
)
def test_a_plain_table_that_does_not_rise_is_refused(about: Abouts, write: Write, rows: str) -> None:
    path = write("t.csv", f"n_tokens,ms\n{rows}")
    with pytest.raises(ProfileError, match=r"t\.csv: ms: is flat or falls"):
        import_profile("csv", [path], about())


def test_vllms_table_that_falls_is_refused(about: Abouts, write: Write) -> None:
    with pytest.raises(ProfileError, match="verify: is flat or falls"):
        import_profile("vllm-cost", [write("t.json", '{"verify": [[1, 5], [8, 4]]}')], about())


def test_a_file_of_another_encoding_says_what_to_do(about: Abouts, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n_tokens,ms\n1,5\n8,6\n", encoding="utf-16")
    with pytest.raises(ProfileError, match="is not UTF-8 text; save it as UTF-8"):
        import_profile("csv", [path], about())
    path.write_text("n_tokens,ms\n1,5\n8,6\n", encoding="utf-8-sig")
    assert import_profile("csv", [path], about()).max_tokens == 8


@pytest.mark.parametrize("name", ["sglang-sps", "trtllm-cost"])
def test_a_flat_table_is_refused(about: Abouts, write: Write, name: str) -> None:
    """SGLang's uninitialised table is one step per second; TensorRT-LLM calls such a table flat."""
    table = {
        "sample_batch_tokens": [1],
        "sample_steps_per_sec": [1.0],
        "token_counts": [1, 64],
        "step_time_ms": [3.0, 3.0],
    }
    with pytest.raises(ProfileError, match="is flat"):
        import_profile(name, [write("t.json", json.dumps(table))], about())


TRTLLM = {
    "token_counts": [8, 32, 64],
    "step_time_ms": [1.0, 2.0, 5.0],
    "fixed_overhead_ms": 6.0,
    "batch_sizes": [4, 8],
    "batch_overhead_ms": [0.0, 1.0],
    "_meta": {
        "cells": [{"batch_size": 8, "verify_len": 11, "total_verify_tokens": 96, "step_time_ms": 12.1}],
        "fit": {"max_rel_residual": 0.013},
    },
}


def test_tensorrt_llms_staircase_holds_until_the_next_entry(
    about: Abouts, write: Write, tmp_path: Path
) -> None:
    profile = import_profile("trtllm-cost", [write("t.json", json.dumps(TRTLLM))], about())
    expected = {1: 7, 8: 7, 31: 7, 32: 8, 63: 8, 64: 11, 96: 11, 200: 11}
    assert {n: _ms(profile, n, 4) for n in expected} == pytest.approx(expected)
    assert _ms(profile, 64, 8) == pytest.approx(12)
    assert profile.error is not None
    assert profile.error.relative == 0.013
    assert [(s.shape, s.us) for s in profile.samples] == [({"tokens": 96, "sequences": 8}, 12_100)]
    _survives_a_file(profile, tmp_path)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"step_time_ms": [1.0, 2.0]}, "step_time_ms"),
        ({"step_time_ms": [1.0, -2.0, 5.0]}, "step_time_ms[1]"),
        ({"token_counts": [8, 8, 64]}, "token_counts[1]"),
        ({"token_counts": None}, "token_counts"),
        ({"batch_overhead_ms": [0.0]}, "batch_overhead_ms"),
    ],
)
def test_a_damaged_cost_table_is_refused_by_field(
    about: Abouts, write: Write, change: dict[str, object], place: str
) -> None:
    with pytest.raises(ProfileError) as raised:
        import_profile("trtllm-cost", [write("t.json", json.dumps({**TRTLLM, **change}))], about())
    assert raised.value.field == place


def test_text_that_is_not_json_is_named_by_its_line(about: Abouts, write: Write) -> None:
    with pytest.raises(ProfileError, match="line 2: is not JSON"):
        import_profile("sglang-sps", [write("t.json", '{\n"a": }')], about())


def test_attention_stays_inside_a_table_of_one_context(about: Abouts, write: Write) -> None:
    profile = import_profile("csv", [write("t.csv", "n_tokens,ms\n1,5\n8,6\n")], about())
    near, far = (pass_ns(profile.target.verify, decode_shape(8, context)) for context in (0, 100_000))
    assert near == far
    assert "context" in profile.assumptions[0].what


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
VLLM_BENCH = {
    "max_concurrency": 4,
    "completed": 10,
    "duration": 1.0,
    "total_output_tokens": 1000,
    "mean_tpot_ms": 9.0,
    "spec_decode_num_drafts": 100,
    "spec_decode_draft_tokens": 300,
    "spec_decode_acceptance_length": 2.0,
}
AIPERF = {
    "input_config": {"loadgen": {"concurrency": 4}},
    "inter_token_latency": {"avg": 5.0},
    "request_throughput": {"avg": 1.0},
}
SGLANG = {"sample_batch_tokens": [8, 16], "sample_steps_per_sec": [200.0, 100.0], "max_batch_tokens": 64}
VLLM = {"verify": [[1, 5.0], [8, 6.0]], "draft": [[4, 1.0]]}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(
    made=st.sampled_from(
        [
            ("trtllm-cost", TRTLLM),
            ("sglang-sps", SGLANG),
            ("vllm-cost", VLLM),
            ("serving-log", VLLM_BENCH),
            ("serving-log", AIPERF),
        ]
    ),
    data=st.data(),
    value=JSON,
)
def test_whatever_one_field_holds_the_answer_is_a_profile_or_names_the_file(
    about: Abouts,
    write: Write,
    made: tuple[str, dict[str, object]],
    data: st.DataObject,
    value: object,
) -> None:
    name, table = made
    key = data.draw(st.sampled_from(sorted(table)))
    path = write("t.json", json.dumps({**table, key: value}))
    other = write("o.json", json.dumps({**VLLM_BENCH, "max_concurrency": 1, "spec_decode_num_drafts": 0}))
    files = [path, other] if name == "serving-log" else [path]
    profile, blamed = _tried(name, files, about)
    if profile is None:
        assert blamed in (str(path), "imported")
    else:
        assert _ms(profile, 8) >= 0


def _tried(name: str, files: list[Path], about: Abouts) -> tuple[Profile | None, str]:
    try:
        return import_profile(name, files, about()), ""
    except ProfileError as error:
        return None, error.file
