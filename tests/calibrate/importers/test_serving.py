"""Serving logs: a machine with known step times is found again, and what cannot be told is said."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.importers import About, import_profile
from calibrate.profile import Profile, ProfileError
from calibrate.profile_view import round_ns
from tests.calibrate.conftest import SHARED

Abouts = Callable[..., About]
Write = Callable[[str, str], Path]
HEAD = "concurrency,tpot_ms,depth,acceptance_length\n"
STUDY = SHARED / "groundtruth" / "a100_llama31_8b_eagle3_factorial_means.csv"


def _round_ms(profile: Profile, batch: int, depth: int) -> float:
    drafter = next(iter(profile.drafters.values()), None)
    return round_ns(profile, drafter, batch, depth, context=0) / 1e6


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(floor=st.floats(2, 20), per_token=st.floats(0.01, 1), draft=st.floats(0, 2))
def test_a_linear_machine_is_found_again_at_every_depth(
    about: Abouts, write: Write, floor: float, per_token: float, draft: float
) -> None:
    """Step = floor + per_token x tokens + k x draft: runs at depths 0 and 3 predict depth 7."""
    tau = 2.5
    plain = [f"{c},{floor + per_token * c},0,\n" for c in (1, 8, 64)]
    deep = [f"{c},{(floor + per_token * 4 * c + 3 * draft) / tau},3,{tau}\n" for c in (1, 8)]
    profile = import_profile("serving-log", [write("r.csv", HEAD + "".join(plain + deep))], about())
    for batch in (1, 4, 16):
        expected = floor + per_token * 8 * batch + 7 * draft
        assert _round_ms(profile, batch, 7) == pytest.approx(expected, rel=1e-3)
    assert profile.error is not None
    assert profile.error.relative == 0.1


def test_flat_steps_leave_nothing_open_and_steep_ones_much(about: Abouts, write: Write) -> None:
    """Per token against per sequence at depth 3: nothing while flat, (4 - 1) / (4 + 1) when linear."""
    errors = []
    for floor, slope in ((10, 0.001), (0.01, 1)):
        rows = "".join(f"{c},{floor + slope * c},,\n" for c in (1, 8, 64))
        profile = import_profile("serving-log", [write("r.csv", HEAD + rows)], about())
        assert profile.error is not None
        assert any("cannot be told apart" in assumption.why for assumption in profile.assumptions)
        errors.append(profile.error.relative)
    assert errors[0] == 0.1
    assert errors[1] == pytest.approx(0.6, abs=0.02)


def test_speculation_alone_says_that_the_drafter_is_inside(about: Abouts, write: Write) -> None:
    profile = import_profile("serving-log", [write("r.csv", HEAD + "1,4,3,2.5\n8,5,3,2.5\n")], about())
    assert _round_ms(profile, 8, 3) == pytest.approx(12.5)
    assert [a.value for a in profile.assumptions if a.what == "drafters"] == ["no time of their own"]


def test_vllm_bench_results_become_steps(about: Abouts, write: Write) -> None:
    """16 requests/s of 100 tokens of 20 ms: 32 decode (Little's law), prompts of 50 tokens meanwhile."""
    result = {
        "max_concurrency": 64,
        "completed": 160,
        "duration": 10.0,
        "total_input_tokens": 160 * 50,
        "total_output_tokens": 160 * 100,
        "mean_tpot_ms": 20.0,
    }
    slow = {**result, "max_concurrency": 1, "completed": 1, "total_output_tokens": 100, "mean_tpot_ms": 5.0}
    lines = "\n".join(json.dumps(each) for each in (result, slow))
    profile = import_profile("serving-log", [write("r.json", lines)], about())
    busy, idle = (sample.shape for sample in profile.samples)
    assert (busy["sequences"], busy["tokens"]) == (32, 32 + round(16 * 50 * 0.020 * 63 / 64))
    assert (idle["sequences"], idle["tokens"]) == (1, 1)


def test_vllm_bench_with_speculation_counts_its_drafts(about: Abouts, write: Write) -> None:
    plain = {"completed": 10, "duration": 1.0, "total_output_tokens": 1000, "total_input_tokens": 10}
    spec = {
        "spec_decode_num_drafts": 100,
        "spec_decode_draft_tokens": 300,
        "spec_decode_acceptance_length": 2.0,
    }
    runs = [
        {**plain, "max_concurrency": 1, "mean_tpot_ms": 10.0},
        {**plain, "max_concurrency": 4, "mean_tpot_ms": 11.0},
        {**plain, **spec, "max_concurrency": 1, "mean_tpot_ms": 8.0},
    ]
    profile = import_profile("serving-log", [write("r.json", json.dumps(runs))], about(draft_name="eagle3"))
    assert profile.samples[-1].shape["depth"] == 3.0
    assert profile.samples[-1].us == 16_000
    assert _round_ms(profile, 1, 3) == pytest.approx(16.0), "5 ms of drafting"


def test_aiperf_results_become_steps(about: Abouts, write: Write) -> None:
    files = []
    for concurrency, ms in ((1, 5.0), (16, 8.0)):
        data = {
            "input_config": {"loadgen": {"concurrency": concurrency}},
            "inter_token_latency": {"unit": "ms", "avg": ms},
            "output_sequence_length": {"avg": 101},
            "request_throughput": {"avg": concurrency / (101 * ms / 1e3)},
        }
        files.append(write(f"c{concurrency}.json", json.dumps(data)))
    profile = import_profile("serving-log", files, about())
    assert [(s.shape["tokens"], s.us) for s in profile.samples] == [(1, 5000), (16, 8000)]
    assert len(profile.sources) == 2


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("r.csv", HEAD + "1,5,0,\n8,5,0,\n", "tpot: is flat or falls: 5 ms at its first point, 5 ms"),
        ("r.csv", HEAD + "1,5,0,\n1,6,0,\n", "two or more concurrencies"),
        ("r.csv", HEAD + "1,5,0,\n8,-6,0,\n", "line 3: tpot_ms is '-6'"),
        ("r.csv", HEAD + "1,5,3,\n", "line 2: acceptance_length is ''"),
        ("r.json", '{"completed": 3}', "max_concurrency: is None"),
        ("r.json", "[]", "holds no JSON object"),
        ("r.json", '{"completed": 0}', "completed: is 0"),
    ],
)
def test_bad_logs_are_named(about: Abouts, write: Write, name: str, text: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        import_profile("serving-log", [write(name, text)], about())


def test_a_real_deployments_decode_steps_are_within_the_stated_error(about: Abouts, write: Write) -> None:
    """A100 study, HumanEval: mean ITL, prefill inside, gives back the p50 of decode-only steps."""
    if not STUDY.exists():
        pytest.skip("the A100 study is not at ../shared/groundtruth")
    lines = [line for line in STUDY.read_text().splitlines() if not line.startswith("#")]
    rows = [row for row in csv.DictReader(lines) if row["workload"] == "humaneval"]
    text = HEAD
    for row in rows:
        tau = float(row["tau"]) if row["tau"] else 1.0
        depth = 5 if row["tau"] else 0
        text += f"{round(float(row['batch_mean']))},{float(row['itl_mean_ms']) / tau},{depth},{row['tau']}\n"
    profile = import_profile("serving-log", [write("r.csv", text)], about(device="a100", draft_name="eagle3"))
    assert profile.error is not None
    plain = {1: 10.81, 8: 11.05, 30: 13.08, 59: 14.55}
    spec = {1: 13.63, 8: 15.29, 29: 26.79, 59: 44.25}
    errors = [_round_ms(profile, n, 0) / ms - 1 for n, ms in plain.items()]
    errors += [_round_ms(profile, n, 5) / ms - 1 for n, ms in spec.items()]
    assert sum(abs(error) for error in errors) / len(errors) < profile.error.relative
