"""Readers against published statistics and small examples; export and replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sim.errors import InputError
from sim.workload.arrival_config import TraceFormat
from sim.workload.requests import Requests
from sim.workload.traces import read_trace, write_trace
from tests.workload.support import SHARED, build, dispersion, locate, needs_shared, same

MS = 1_000_000
PUBLISHED: list[tuple[str, TraceFormat, str]] = [
    ("azure2023_code", "azure", "azure2023/AzureLLMInferenceTrace_code.csv"),
    ("azure2023_conv", "azure", "azure2023/AzureLLMInferenceTrace_conv.csv"),
    ("mooncake_conversation", "mooncake", "mooncake/conversation_trace.jsonl"),
    ("mooncake_synthetic", "mooncake", "mooncake/synthetic_trace.jsonl"),
]


def replay(path: Path, trace_format: str, seed: int = 1, **keys: Any) -> Requests:
    """The requests of a trace as the YAML would have it; num_requests and duration go beside it."""
    rest = {name: keys.pop(name) for name in ("num_requests", "duration", "classes") if name in keys}
    return build({"process": "trace", "format": trace_format, "path": str(path), **keys}, seed, **rest)


def rows(requests: Requests) -> list[tuple[int, int, int]]:
    """Arrival, prompt and output of every request."""
    columns = (requests.arrival_ns, requests.prompt_tokens, requests.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@needs_shared
@pytest.mark.parametrize(("name", "trace_format", "file"), PUBLISHED, ids=[name for name, _, _ in PUBLISHED])
def test_readers_reproduce_the_statistics_of_public_traces(
    name: str, trace_format: TraceFormat, file: str
) -> None:
    """Count, span, gap CV and lengths equal ../shared/data/trace_stats.json to its printed digits."""
    stats = json.loads((SHARED / "trace_stats.json").read_text())[name]
    requests = read_trace(SHARED / file, trace_format)
    gaps = np.diff(requests.arrival_ns) / 1e9
    assert len(requests) == stats["arrival"]["n"]
    assert requests.arrival_ns[-1] / 1e9 == pytest.approx(stats["arrival"]["span_s"], abs=0.051)
    assert gaps.std() / gaps.mean() == pytest.approx(stats["arrival"]["iat_cv"], abs=0.0051)
    for side, tokens in (("input", requests.prompt_tokens), ("output", requests.output_tokens)):
        assert tokens.mean() == pytest.approx(stats[side]["mean"], abs=0.051)
        assert tokens.max() == stats[side]["max"]
        for q in (1, 50, 99):
            assert np.percentile(tokens, q) == pytest.approx(stats[side][f"p{q}"], abs=1)
    r = np.corrcoef(requests.prompt_tokens, requests.output_tokens)[0, 1]
    assert r == pytest.approx(stats["corr_io"], abs=0.00051)


@needs_shared
def test_jitter_removes_the_clumps_of_a_coarse_clock() -> None:
    """Mooncake's conversation clock ticks every 3 s: jittered, the dispersion per second is 1 to 3, not 8.

    A minute is a whole number of ticks, so its dispersion (2.89 in trace_stats.json) is real and stays.
    """
    path = SHARED / "mooncake" / "conversation_trace.jsonl"
    raw, jittered = replay(path, "mooncake"), replay(path, "mooncake", jitter="3s")
    assert dispersion(raw.arrival_ns, 1, 3500) > 7
    assert 1 < dispersion(jittered.arrival_ns, 1, 3500) < 3
    assert dispersion(jittered.arrival_ns, 60, 3480) == pytest.approx(2.89, abs=0.4)


def test_azure_reads_seven_digits_and_time_zones(tmp_path: Path) -> None:
    """2023 writes 7 digits and no zone, 2024 6 digits and +00:00, or no fraction; all are exact."""
    path = tmp_path / "t.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2024-05-10 00:00:00+00:00,1,2\r\n"
        "2024-05-10 00:00:00.009930+00:00,3,4\r\n"
        "2024-05-10 02:00:00.0000001+02:00,5,6\r\n"
        "2024-05-10T00:00:01.0000001Z,7,8\r\n"
        "2024-05-10 00:00:01.1234567,9,10\r\n"
    )
    expected = [(0, 1, 2), (100, 5, 6), (9_930_000, 3, 4), (1_000_000_100, 7, 8), (1_123_456_700, 9, 10)]
    assert rows(read_trace(path, "azure")) == expected


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            "{},ChatGPT,{},{},9,API log",
        ),
        (
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
            "{},,1.5,GPT-4,{},{},9,API log",
        ),
    ],
    ids=["first releases", "third release"],
)
def test_burstgpt_columns_go_by_name(tmp_path: Path, header: str, row: str) -> None:
    """The third release inserts two columns; the first rows of BurstGPT_1 read the same either way."""
    path = tmp_path / "t.csv"
    first = [(5, 472, 18), (45, 1087, 230), (118.5, 417, 276)]
    path.write_text("\ufeff" + "\n".join([header, *(row.format(*values) for values in first)]) + "\n")
    assert rows(read_trace(path, "burstgpt")) == [
        (0, 472, 18),
        (40_000 * MS, 1087, 230),
        (113_500 * MS, 417, 276),
    ]


def test_failed_requests_are_dropped_or_count_one_token(tmp_path: Path) -> None:
    """Rows without output are left out; with drop_failed false they keep one token, for their prefill."""
    path = tmp_path / "t.jsonl"
    mooncake(path, [(0, 9, 0), (1, 8, 4), (2, 0, 3)])
    assert rows(replay(path, "mooncake")) == [(0, 8, 4)]
    kept = rows(replay(path, "mooncake", drop_failed=False))
    assert kept == [(0, 9, 1), (1 * MS, 8, 4), (2 * MS, 1, 3)]


def mooncake(path: Path, values: list[tuple[int, int, int]]) -> None:
    """Write a Mooncake trace of (ms, input, output)."""
    lines = [json.dumps({"timestamp": t, "input_length": i, "output_length": o}) for t, i, o in values]
    path.write_text("\n".join(lines) + "\n\n")


def test_rows_out_of_order_are_sorted_and_ties_keep_file_order(tmp_path: Path) -> None:
    """Sorting is stable and times count from the earliest row."""
    path = tmp_path / "t.jsonl"
    mooncake(path, [(7, 1, 1), (3, 2, 2), (7, 3, 3), (3, 4, 4)])
    assert rows(replay(path, "mooncake")) == [(0, 2, 2), (0, 4, 4), (4 * MS, 1, 1), (4 * MS, 3, 3)]


def bench(path: Path, **keys: Any) -> Path:
    """A detailed result of vllm bench serve with three requests, one failed."""
    run = {
        "max_concurrency": 2,
        "input_lens": [100, 200, 300],
        "output_lens": [10, 0, 30],
        "start_times": [1000.5, 1001.0, 1003.0],
        "queue_times": [0.0, 0.0, 1.5],
        "errors": ["", "boom", ""],
    }
    path.write_text(json.dumps(run | keys, indent=keys.pop("indent", None)))
    return path


def test_vllm_bench_arrivals_are_before_the_client_queue(tmp_path: Path) -> None:
    """Intended arrival = start_times - queue_times; the failed request is dropped, the bound kept."""
    requests = replay(bench(tmp_path / "t.json"), "vllm_bench")
    assert rows(requests) == [(0, 100, 10), (1_000 * MS, 300, 30)]
    assert requests.max_concurrency == 2


def test_vllm_bench_reads_older_results_and_pretty_ones(tmp_path: Path) -> None:
    """Without queue_times, errors or a bound, and spread over many lines."""
    path = bench(tmp_path / "t.json", queue_times=None, errors=None, max_concurrency=None, indent=1)
    assert rows(replay(path, "vllm_bench")) == [(0, 100, 10), (2_500 * MS, 300, 30)]


def test_time_scale_stretches_and_request_rate_sets_the_mean(tmp_path: Path) -> None:
    """time_scale multiplies times; request_rate makes (n-1)/span the given rate."""
    path = tmp_path / "t.jsonl"
    mooncake(path, [(0, 1, 1), (100, 1, 1), (400, 1, 1)])
    assert replay(path, "mooncake", time_scale=0.5).arrival_ns.tolist() == [0, 50 * MS, 200 * MS]
    assert replay(path, "mooncake", request_rate="10/s").arrival_ns.tolist() == [0, 50 * MS, 200 * MS]


def test_a_rate_for_simultaneous_requests_is_refused(tmp_path: Path) -> None:
    """No stretching gives a burst at one instant a rate."""
    path = tmp_path / "t.jsonl"
    mooncake(path, [(0, 1, 1), (0, 1, 1)])
    with pytest.raises(InputError, match="no request_rate fits"):
        replay(path, "mooncake", request_rate="10/s")


def test_limit_duration_and_num_requests_cut_a_trace(tmp_path: Path) -> None:
    """limit cuts while reading, num_requests and duration after scaling."""
    path = tmp_path / "t.jsonl"
    mooncake(path, [(100 * i, 1 + i, 1) for i in range(10)])
    assert len(replay(path, "mooncake", limit=4)) == 4
    assert len(replay(path, "mooncake", num_requests=3)) == 3
    assert len(replay(path, "mooncake", time_scale=2, duration="1s")) == 5
    with pytest.raises(InputError, match="has 10 requests; num_requests asks for 11"):
        replay(path, "mooncake", num_requests=11)


def test_limit_reads_no_further(tmp_path: Path) -> None:
    """A mistake beyond the limit is not met."""
    path = tmp_path / "t.jsonl"
    mooncake(path, [(0, 1, 1), (1, 1, 1)])
    path.write_text(path.read_text() + "broken\n")
    assert len(replay(path, "mooncake", limit=2)) == 2


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_jitter_delays_by_less_than_the_quantum_and_keeps_the_requests(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Each request moves by 0 to the quantum; together they stay the same requests."""
    path = tmp_path_factory.getbasetemp() / "jitter.jsonl"
    mooncake(path, [(1000 * (i // 5), 1 + i, 1) for i in range(50)])
    jittered = replay(path, "mooncake", seed, jitter="3s")
    assert sorted(jittered.prompt_tokens.tolist()) == list(range(1, 51))
    delay = jittered.arrival_ns - 1000 * MS * ((jittered.prompt_tokens - 1) // 5)
    assert delay.min() >= 0
    assert delay.max() < 3000 * MS


def test_classes_of_an_unlabelled_trace_go_by_share(tmp_path: Path) -> None:
    """A trace without classes gets them like a drawn workload."""
    path = tmp_path / "t.jsonl"
    mooncake(path, [(i, 1, 1) for i in range(400)])
    kinds = [{"name": "chat", "share": 0.75}, {"name": "code", "share": 0.25}]
    requests = replay(path, "mooncake", classes=kinds)
    assert requests.classes == ("chat", "code")
    assert 40 < requests.class_id.sum() < 160


def test_classes_of_a_labelled_trace_are_its_own(tmp_path: Path) -> None:
    """Names are matched whatever their order; one that the scenario lacks is refused."""
    path = tmp_path / "t.jsonl"
    write_trace(path, a_few(classes=("code", "chat")))
    kinds = [{"name": "chat", "share": 0.5}, {"name": "code", "share": 0.5}]
    requests = replay(path, "leadline", classes=kinds)
    assert requests.class_id.tolist() == [1, 0, 1]
    with pytest.raises(InputError, match=r"has the class 'code'; workload.classes has chat"):
        replay(path, "leadline", classes=[{"name": "chat", "share": 1}])


def a_few(classes: tuple[str, ...] = ("default", "other"), bound: int | None = None) -> Requests:
    """Three requests of two classes, not starting at 0, two of them at once."""
    columns = [[5, 5, 9_007_199_254_740_993], [3, 1, 4], [1, 5, 9], [0, 1, 0]]
    return from_columns(np.array(columns, dtype=np.int64), classes, bound)


def from_columns(columns: NDArray[np.int64], classes: tuple[str, ...], bound: int | None) -> Requests:
    """Requests of four rows: arrival, prompt, output, class."""
    return Requests(columns[0], columns[1], columns[2], columns[3], classes, bound)


@given(
    requests=st.lists(
        st.tuples(st.integers(0, 2**61), st.integers(1, 2**39), st.integers(1, 2**39), st.integers(0, 2)),
        min_size=1,
        max_size=50,
    ),
    bound=st.none() | st.integers(1, 1000),
)
@settings(deadline=None)
def test_export_and_replay_give_every_request_back(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, int, int, int]], bound: int | None
) -> None:
    """write_trace then replay is the identity, to the nanosecond, classes and bound included."""
    path = tmp_path_factory.getbasetemp() / "round-trip.jsonl"
    columns = np.array(sorted(requests, key=lambda row: row[0]), dtype=np.int64).T
    original = from_columns(columns, ("chat", 'quo"ted', "cöde"), bound)
    write_trace(path, original)
    assert same(replay(path, "leadline"), original)


@pytest.mark.parametrize("process", ["poisson", "closed"])
def test_a_drawn_workload_survives_export_and_replay(tmp_path: Path, process: str) -> None:
    """Replaying a run's own trace is the same workload, open or closed."""
    arrival: dict[str, Any] = {"process": process}
    arrival |= {"request_rate": "4/s"} if process == "poisson" else {"max_concurrency": 7}
    drawn = build(arrival, num_requests=500, lengths={"joint": "azure-2023-code"})
    write_trace(tmp_path / "t.jsonl", drawn)
    assert same(replay(tmp_path / "t.jsonl", "leadline"), drawn)


def test_the_export_begins_with_its_schema(tmp_path: Path) -> None:
    """The header line says what the file is; rows are integer nanoseconds."""
    write_trace(tmp_path / "t.jsonl", a_few())
    header, first, *_ = (json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines())
    assert header["schema"] == "leadline.trace/1"
    assert first == {"arrival_ns": 5, "prompt_tokens": 3, "output_tokens": 1, "class": "default"}


def test_a_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    """Writing is atomic: an error half way changes nothing and leaves no litter."""
    path = tmp_path / "t.jsonl"
    path.write_text("old")
    with pytest.raises(IndexError):
        write_trace(path, a_few(classes=("default",)))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_bound_in_the_scenario_replaces_the_one_of_the_trace(tmp_path: Path) -> None:
    """max_concurrency given with the trace wins over the file's."""
    write_trace(tmp_path / "t.jsonl", a_few(bound=3))
    assert replay(tmp_path / "t.jsonl", "leadline").max_concurrency == 3
    assert replay(tmp_path / "t.jsonl", "leadline", max_concurrency=9).max_concurrency == 9


def test_names_that_are_no_shipped_file_are_paths() -> None:
    """The tests' own locate finds shipped workloads by name and leaves paths alone."""
    assert locate("azure-2023-code").is_file()
    assert locate("some/where.csv") == Path("some/where.csv")
