"""Laws of lengths and classes, and the shipped grids against the traces they come from."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import lognorm, spearmanr

from sim.errors import InputError
from tests.workload.support import ROOT, SHARED, SHORT, build, dispersion, needs_shared

POISSON: dict[str, Any] = {"process": "poisson", "request_rate": "4/s"}
SHIPPED = {"azure-2023-conversation": "azure2023_conv", "azure-2023-code": "azure2023_code"}


def draw(side: Any, count: int = 50_000, seed: int = 1) -> NDArray[np.int64]:
    """Input lengths from one distribution."""
    return build(POISSON, seed, num_requests=count, lengths={"input": side, "output": 5}).prompt_tokens


def test_a_number_is_a_constant_length() -> None:
    """``input: 1024`` gives every request 1024 tokens."""
    assert set(draw(1024, 10).tolist()) == {1024}
    assert np.array_equal(draw(1024, 10), draw({"type": "constant", "tokens": 1024}, 10))


def test_uniform_lengths_reach_both_ends_evenly() -> None:
    """Each of 3..6 has a quarter of the requests, within 4 standard errors."""
    values, counts = np.unique(draw({"type": "uniform", "min": 3, "max": 6}), return_counts=True)
    assert values.tolist() == [3, 4, 5, 6]
    assert np.abs(counts / 50_000 - 0.25).max() < 4 * math.sqrt(0.25 * 0.75 / 50_000)


@pytest.mark.parametrize(
    "given_as",
    [
        {"median": 500, "sigma": 0.9},
        {"mean": 500 * math.exp(0.9**2 / 2), "sigma": 0.9},
        {"p50": 500, "p90": float(lognorm(0.9, scale=500).ppf(0.9))},
    ],
    ids=["median", "mean", "p50-p90"],
)
def test_the_ways_to_give_a_lognormal_agree(given_as: dict[str, float]) -> None:
    """Median, mean and quantiles of one lognormal give its quantiles (scipy's) within 2 %."""
    tokens = draw({"type": "lognormal", **given_as})
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(tokens, q) == pytest.approx(lognorm(0.9, scale=500).ppf(q), rel=0.02)


@given(low=st.integers(1, 400), width=st.integers(0, 400), seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_lengths_stay_within_their_bounds(low: int, width: int, seed: int) -> None:
    """min and max hold for distributions with tails."""
    bounds = {"min": low, "max": low + width}
    for side in (
        {"type": "lognormal", "median": 300, "sigma": 2},
        {"type": "quantiles", "from": "azure-2023-code"},
    ):
        tokens = draw(side | bounds, 100, seed)
        assert tokens.min() >= low
        assert tokens.max() <= low + width


def test_an_inline_grid_is_met_at_its_points() -> None:
    """Half of the draws lie below the grid's median, nine tenths below its p90."""
    tokens = draw({"type": "quantiles", "p": [0, 0.5, 0.9, 1], "tokens": [1, 1000, 3000, 9000]})
    for q, at in ((0.5, 1000), (0.9, 3000)):
        assert abs(np.mean(tokens <= at) - q) < 4 * math.sqrt(q * (1 - q) / 50_000)


def test_lengths_do_not_depend_on_arrivals() -> None:
    """Another process or rate leaves every length as it was."""
    lengths = {"joint": "azure-2023-conversation"}
    one = build(POISSON, num_requests=100, lengths=lengths)
    other = build({"process": "closed", "max_concurrency": 4}, num_requests=100, lengths=lengths)
    assert np.array_equal(one.prompt_tokens, other.prompt_tokens)
    assert np.array_equal(one.output_tokens, other.output_tokens)


def test_the_output_lengths_do_not_depend_on_the_input_distribution() -> None:
    """Each side has a stream of its own."""
    lengths = [{"input": side, "output": {"type": "lognormal", "p50": 100, "p90": 300}} for side in (7, 900)]
    one, other = (build(POISSON, num_requests=50, lengths=given_as) for given_as in lengths)
    assert np.array_equal(one.output_tokens, other.output_tokens)


def test_classes_have_their_shares_and_lengths() -> None:
    """Chat has 70 % of the requests (4 standard errors) and the common lengths; code has its own."""
    kinds = [
        {"name": "chat", "share": "70%"},
        {"name": "code", "share": "30%", "lengths": {"input": 2000, "output": 30}},
    ]
    requests = build(POISSON, num_requests=20_000, lengths=SHORT, classes=kinds)
    chat = requests.class_id == 0
    assert requests.classes == ("chat", "code")
    assert abs(chat.mean() - 0.7) < 4 * math.sqrt(0.21 / 20_000)
    assert set(requests.prompt_tokens[chat].tolist()) == {10}
    assert set(requests.prompt_tokens[~chat].tolist()) == {2000}


def test_more_requests_keep_the_lengths_and_classes_of_the_first() -> None:
    """Prefix stability holds for everything about a request."""
    kinds = [{"name": name, "share": 0.5} for name in "ab"]
    short, long = (
        build(POISSON, num_requests=n, lengths={"joint": "azure-2023-code"}, classes=kinds) for n in (50, 90)
    )
    for name in ("prompt_tokens", "output_tokens", "class_id"):
        assert np.array_equal(getattr(short, name), getattr(long, name)[:50])


@needs_shared
@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_lengths_reproduce_the_trace(name: str, joint: bool) -> None:
    """Means within 1 %, p50, p90, p99 within 1 % (joint outputs 3 %) or one token of the trace.

    The figures are those of ../shared/data/trace_stats.json, computed apart from this project.
    """
    trace = json.loads((SHARED / "trace_stats.json").read_text())[SHIPPED[name]]
    grid = {"type": "quantiles", "from": name}
    lengths = {"joint": name} if joint else {"input": grid, "output": grid}
    requests = build(POISSON, num_requests=400_000, lengths=lengths)
    for side, tokens in (("input", requests.prompt_tokens), ("output", requests.output_tokens)):
        assert tokens.mean() == pytest.approx(trace[side]["mean"], rel=0.01)
        for q in (50, 90, 99):
            within = 0.03 if joint and side == "output" else 0.01
            assert np.percentile(tokens, q) == pytest.approx(trace[side][f"p{q}"], rel=within, abs=1)


def test_joint_lengths_keep_the_correlation_of_the_trace() -> None:
    """Pearson's r of the Azure conversation trace is -0.112 (workload statistics); drawn apart it is 0."""
    name = "azure-2023-conversation"
    together = build(POISSON, num_requests=200_000, lengths={"joint": name})
    r = np.corrcoef(together.prompt_tokens, together.output_tokens)[0, 1]
    assert r == pytest.approx(-0.112, abs=0.02)
    assert spearmanr(together.prompt_tokens, together.output_tokens)[0] > 0.05


@needs_shared
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_rates_reproduce_the_minutes_of_the_trace(name: str) -> None:
    """Over the profile the rate is the trace's within 2 %, the dispersion of minutes within 20 %."""
    trace = json.loads((SHARED / "trace_stats.json").read_text())[SHIPPED[name]]["arrival"]
    arrivals = build({"process": "profile", "from": name}, duration="57min").arrival_ns
    assert len(arrivals) / 3420 == pytest.approx(trace["rate"], rel=0.02)
    assert dispersion(arrivals, 60, 3420) == pytest.approx(trace["IoD60s"], rel=0.2)


@needs_shared
def test_shipped_files_are_what_the_tool_derives(tmp_path: Path) -> None:
    """Deriving again from the traces gives the same bytes."""
    from calibrate.derive_workloads import main

    main(["--azure", str(SHARED / "azure2023"), "--out", str(tmp_path)])
    for name in SHIPPED:
        shipped = ROOT / "scenarios" / "workloads" / f"{name}.json"
        assert (tmp_path / f"{name}.json").read_bytes() == shipped.read_bytes()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files_name_their_source_and_stay_small(name: str) -> None:
    """Source, licence, citation and command are given; the file is under 60 kB."""
    path = ROOT / "scenarios" / "workloads" / f"{name}.json"
    data = json.loads(path.read_text())
    assert data["licence"] == "CC-BY-4.0"
    assert "Splitwise" in data["citation"]
    assert data["source"].startswith("https://")
    assert data["command"].startswith("python -m calibrate.derive_workloads")
    assert path.stat().st_size < 60_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"schema": "leadline.workload/2", "name": "x"}', "schema: Input should be 'leadline.workload/1'"),
        ('{"schema": "leadline.workload/1", "name": "x"}', "has no input grid; add input"),
        (
            '{"schema": "leadline.workload/1", "name": "x", "input": {"p": [0, 1], "tokens": [3, 1]}}',
            "input: tokens must not fall",
        ),
    ],
)
def test_a_damaged_workload_file_is_told(tmp_path: Path, text: str, message: str) -> None:
    """The message names the file, the field and what would be right."""
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        draw({"type": "quantiles", "from": str(path)}, 5)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_workload_file_is_told() -> None:
    """A name that leads nowhere is an InputError, not a traceback."""
    with pytest.raises(InputError, match="cannot be read"):
        draw({"type": "quantiles", "from": "no-such-workload"}, 5)


def test_a_rate_profile_needs_a_rate(tmp_path: Path) -> None:
    """A workload file without a rate cannot serve as a profile."""
    path = tmp_path / "w.json"
    path.write_text('{"schema": "leadline.workload/1", "name": "x"}')
    with pytest.raises(InputError, match="has no rate"):
        build({"process": "profile", "from": str(path)}, num_requests=5)
