"""Result files: what a tool writes is what is read, and what cannot be read is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.against.measured import Load, spread
from sim.against.observed import observed
from sim.against.readers import read_file, stated_load, with_poisson
from sim.against.workload import requests_of
from sim.engine.simulate import simulate
from sim.errors import InputError
from sim.policies.config import Bounds
from sim.results.run_records import RunRecords
from sim.scenario.load import load_scenario
from sim.sweep.prepare import prepare
from tests.against import writers
from tests.against.truth import Hidden, scenario_file, served

Writer = Callable[[RunRecords, int], str]

WRITERS: dict[str, Writer] = {
    "vllm-bench": lambda records, c: json.dumps(writers.vllm_bench(records, c)),
    "aiperf": lambda records, c: json.dumps(writers.aiperf(records, c), indent=2),
    "aiperf-records": lambda records, c: writers.lines(writers.aiperf_records(records)),
    "guidellm": lambda records, c: json.dumps(
        writers.guidellm(records, {"type_": "concurrent", "streams": c})
    ),
    "inference-perf": lambda records, c: json.dumps(
        writers.inference_perf(records, {"concurrency": c, "requested_rate": 9.0})
    ),
}


def read(folder: Path, text: str, stated: Load | None = None) -> Any:
    path = folder / "anything.txt"
    path.write_text(text)
    return read_file(path, stated)


@pytest.mark.parametrize("tool", WRITERS)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(clients=st.integers(1, 9), policy=st.sampled_from(["off", "static(k=3)"]), requests=st.integers(3, 12))
def test_a_file_written_from_a_run_gives_back_the_runs_numbers(
    tmp_path: Path, tool: str, clients: int, policy: str, requests: int
) -> None:
    records = served(scenario_file(tmp_path), clients, policy, Hidden(), requests)
    stated = Load(concurrency=clients) if tool == "aiperf-records" else None
    (run,) = read(tmp_path, WRITERS[tool](records, clients), stated)
    seen = observed(records)
    assert run.format == tool
    assert run.load == Load(concurrency=clients)
    assert {"tpot_mean_ms", "ttft_mean_ms", "e2el_mean_ms", "output_tokens_per_s"} <= set(run.metrics)
    for name, value in run.metrics.items():
        assert value == pytest.approx(seen[name], rel=1e-9), name
    assert sum(run.output) == records.requests["output_tokens"].sum()


def test_details_give_lengths_depth_and_times_of_sending(tmp_path: Path) -> None:
    path = scenario_file(tmp_path)
    arrival = {"process": "poisson", "request_rate": "3/s", "max_concurrency": 4}
    scenario = load_scenario(path, {"workload.arrival": arrival, "workload.num_requests": 20})
    setup = prepare(scenario, scenario.policies[1], 5)
    records = simulate(setup, scenario.policies[1].build(Bounds(setup.max_depth)))
    (run,) = read(tmp_path, json.dumps(writers.vllm_bench(records, 4, rate=3.0, detailed=True)))
    assert run.load == Load(concurrency=4, rate_per_s=3.0, normalised=True)
    assert run.depth == 3
    assert run.lengths_recorded
    again = requests_of(run, seed=0)
    first = int(setup.requests.arrival_ns[0])
    assert abs(again.arrival_ns - (setup.requests.arrival_ns - first)).max() <= 1000
    assert (again.output_tokens == setup.requests.output_tokens).all()
    assert again.max_concurrency == 4


def test_appended_results_are_runs_of_their_own(tmp_path: Path) -> None:
    path = scenario_file(tmp_path)
    results = [writers.vllm_bench(served(path, c, "off", Hidden(), 4), c) for c in (1, 2)]
    runs = read(tmp_path, writers.lines(results))
    assert [run.load.concurrency for run in runs] == [1, 2]
    assert runs[1].place.endswith("anything.txt, run 2")


def test_failed_requests_are_left_out(tmp_path: Path) -> None:
    result = writers.vllm_bench(served(scenario_file(tmp_path), 2, "off", Hidden(), 5), 2, detailed=True)
    result["output_lens"][3], result["errors"][3] = 0, "connection reset"
    (run,) = read(tmp_path, json.dumps(result | {"failed": 1}))
    assert len(run.output) == 4
    assert run.notes == ("1 failed requests are left out",)


def test_records_of_aiperf_take_their_load_from_the_summary_beside_them(tmp_path: Path) -> None:
    records = served(scenario_file(tmp_path), 3, "static(k=3)", Hidden(), 6)
    text = WRITERS["aiperf-records"](records, 3)
    with pytest.raises(InputError, match=r"metadata.*give --concurrency or --rate"):
        read(tmp_path, text)
    (tmp_path / "profile_export_aiperf.json").write_text(WRITERS["aiperf"](records, 3))
    (run,) = read(tmp_path, text)
    assert run.load == Load(concurrency=3)
    assert run.metrics["acceptance_length"] == pytest.approx(observed(records)["acceptance_length"])
    assert run.notes == ("2 failed or warm-up records left out",)


def test_guidellm_without_all_requests_reads_its_means(tmp_path: Path) -> None:
    records = served(scenario_file(tmp_path), 2, "off", Hidden(), 6)
    report = writers.guidellm(records, {"type_": "poisson", "rate": 2.5}, listed=False)
    (run,) = read(tmp_path, json.dumps(report))
    assert not run.lengths_recorded
    assert run.load == Load(rate_per_s=2.5)
    assert "tpot_mean_ms" not in run.metrics
    assert run.metrics["tpot_by_token_mean_ms"] == pytest.approx(observed(records)["tpot_by_token_mean_ms"])


LOADS = {
    "guidellm": [
        ({"type_": "synchronous"}, Load(concurrency=1)),
        ({"type_": "throughput", "max_concurrency": 7}, Load(concurrency=7)),
        ({"type_": "constant", "rate": 2.0}, Load(rate_per_s=2.0, burstiness=inf)),
    ],
    "aiperf": [
        ({"loadgen": {"concurrency": 5}}, Load(concurrency=5)),
        ({"loadgen": {"request_rate": 2.0, "request_rate_mode": "poisson"}}, Load(rate_per_s=2.0)),
        (
            {"phases": [{"name": "profiling", "type": "gamma", "rate": 2, "smoothness": 0.5}]},
            Load(rate_per_s=2.0, burstiness=0.5),
        ),
    ],
    "inference-perf": [({"requested_rate": 1.5}, Load(rate_per_s=1.5, burstiness=inf))],
}


@pytest.mark.parametrize(
    ("tool", "given_", "load"), [(t, g, w) for t, cases in LOADS.items() for g, w in cases]
)
def test_every_way_to_state_a_load_is_understood(
    tmp_path: Path, tool: str, given_: dict[str, Any], load: Load
) -> None:
    records = served(scenario_file(tmp_path), 2, "off", Hidden(), 3)
    files: dict[str, dict[str, Any]] = {
        "guidellm": writers.guidellm(records, given_),
        "aiperf": writers.aiperf(records, 2) | {"input_config": given_},
        "inference-perf": writers.inference_perf(records, given_),
    }
    (run,) = read(tmp_path, json.dumps(files[tool]))
    assert run.load == load


def test_arrivals_are_poisson_where_the_user_says_so(tmp_path: Path) -> None:
    records = served(scenario_file(tmp_path), 2, "off", Hidden(), 3)
    runs = read(tmp_path, json.dumps(writers.inference_perf(records, {"requested_rate": 1.5})))
    assert with_poisson(runs)[0].load == Load(rate_per_s=1.5)
    assert stated_load(None, None) is None


TABLE = """\
# by hand
concurrency,requests,input_tokens,output_tokens,depth,tpot_mean_ms,acceptance_length
8,160,900,256.5,0,11.9,
8,160,900,256,5,6.6,2.88
"""


def test_a_table_holds_one_run_per_row(tmp_path: Path) -> None:
    plain, drafted = read(tmp_path, TABLE)
    assert (plain.depth, drafted.depth) == (0, 5)
    assert drafted.metrics["acceptance_length"] == 2.88
    assert "acceptance_length" not in plain.metrics
    assert (len(plain.output), sum(plain.output)) == (160, 41040)
    assert plain.place.endswith("row 1")


@given(mean=st.floats(1, 5000), count=st.integers(1, 300))
def test_spread_lengths_have_the_mean_and_are_next_to_each_other(mean: float, count: int) -> None:
    lengths = spread(mean, count)
    assert len(lengths) == count
    assert abs(sum(lengths) - mean * count) <= 0.5
    assert max(lengths) - min(lengths) <= 2


BAD = {
    "no metric": (
        lambda good: good | {"output_throughput": None},
        r"output_throughput is missing; record with",
    ),
    "no number": (lambda good: good | {"mean_tpot_ms": "fast"}, r"mean_tpot_ms is 'fast', not a number"),
    "negative": (lambda good: good | {"request_throughput": -1.0}, r"request_throughput is -1.0"),
    "no requests": (lambda good: good | {"completed": 0}, r"completed is 0: no request was answered"),
    "lists of words": (lambda good: good | {"latencies": ["x"]}, r"latencies holds 'x'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_field_is_named_with_file_and_fix(tmp_path: Path, case: str) -> None:
    spoil, message = BAD[case]
    good = writers.vllm_bench(served(scenario_file(tmp_path), 1, "off", Hidden(), 3), 1)
    with pytest.raises(InputError, match=message) as raised:
        read(tmp_path, json.dumps(spoil(good)))
    assert str(raised.value).startswith(str(tmp_path / "anything.txt"))


@pytest.mark.parametrize("text", ["", "{}", "hello", "[1, 2]", "a,b\n1,2\n"])
def test_an_unknown_file_is_answered_with_the_known_formats(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="is none of the known results"):
        read(tmp_path, text)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    good = json.dumps(writers.vllm_bench(served(scenario_file(tmp_path), 1, "off", Hidden(), 3), 1))
    with pytest.raises(InputError, match=r"anything\.txt:2: is not JSON"):
        read(tmp_path, f"{good}\n{good[:50]}\n")
