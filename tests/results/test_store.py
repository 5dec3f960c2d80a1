"""Records and summaries come back as they were written, in the same bytes for the same data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.results.compare import Cell, Comparison
from sim.results.metrics import measure
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS
from sim.results.run_records import RunRecords
from sim.results.store import SUMMARY_SCHEMA, is_complete, read_json, read_run, summary, write_json, write_run
from tests.results.build import policy, requests, run, steps

_GIVEN = ("arrival_ns", "finish_ns", "start_ns", "end_ns")


def random_run(rows: int, seed: int = 0) -> RunRecords:
    """A run with numbers of every size in every column."""
    rng = np.random.default_rng(seed)
    return run(
        requests(range(rows), range(rows), **_any(rng, REQUEST_COLUMNS, rows)),
        steps(range(rows), range(rows), **_any(rng, STEP_COLUMNS, rows)),
        gaps=([3, 1], [1, 7]),
        unfinished=2,
        classes=("chat", "code"),
    )


def _any(rng: np.random.Generator, names: tuple[str, ...], rows: int) -> dict[str, object]:
    return {name: rng.integers(-(2**62), 2**62, rows) for name in names if name not in _GIVEN}


@settings(max_examples=10, deadline=None)
@given(rows=st.sampled_from([0, 1, 2047, 2048, 2049, 5000]), seed=st.integers(0, 99))
def test_run_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, rows: int, seed: int) -> None:
    """Every array and every scalar survives, rows in their order, across DuckDB's vector size."""
    written = random_run(rows, seed)
    directory = tmp_path_factory.mktemp("run")
    write_run(directory, written)
    read = read_run(directory)
    assert list(read.requests) == list(REQUEST_COLUMNS)
    assert list(read.steps) == list(STEP_COLUMNS)
    for mine, theirs in ((read.requests, written.requests), (read.steps, written.steps)):
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
        assert all(column.dtype == np.int64 for column in mine.values())
    assert [a.tolist() for a in read.chunk_gaps] == [[3, 1], [1, 7], [1, 1]]
    assert (read.unfinished, read.classes, read.last_arrival_ns) == (
        2,
        ("chat", "code"),
        written.last_arrival_ns,
    )
    assert (read.kv_blocks_total, read.max_num_seqs) == (100, 8)


def test_equal_records_give_equal_bytes(tmp_path: Path) -> None:
    """The same records written twice are the same files, over several row groups."""
    for name in ("a", "b"):
        write_run(tmp_path / name, random_run(250_000))
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["chunk_gaps.parquet", "requests.parquet", "run.json", "steps.parquet"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_parquet_is_plain_parquet(tmp_path: Path) -> None:
    """Another reader finds the same columns and values, compressed with zstd."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is the second reader")
    write_run(tmp_path, random_run(3_000))
    table = parquet.read_table(tmp_path / "steps.parquet")
    expected = random_run(3_000).steps
    assert table.column_names == list(STEP_COLUMNS)
    assert all(np.array_equal(table[name].to_numpy(), expected[name]) for name in STEP_COLUMNS)
    group = parquet.ParquetFile(tmp_path / "steps.parquet").metadata.row_group(0)
    assert group.column(0).compression == "ZSTD"


def test_neither_pandas_nor_pyarrow_is_needed(tmp_path: Path) -> None:
    """NumPy and DuckDB alone write and read a run."""
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pandas", "pyarrow"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from pathlib import Path
from sim.results.store import read_run, write_run
from tests.results.build import requests, run, steps
write_run(Path({str(tmp_path)!r}), run(requests([1], [2]), steps([0], [1])))
assert read_run(Path({str(tmp_path)!r})).steps["end_ns"].tolist() == [1]
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_run_is_complete_only_when_written_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory whose writing was interrupted, even over an older run, does not pass for a run."""
    write_run(tmp_path, random_run(3))
    assert is_complete(tmp_path)
    monkeypatch.setattr("os.replace", _fail)
    with pytest.raises(OSError, match="disk full"):
        write_run(tmp_path, random_run(4))
    assert not is_complete(tmp_path)


def _fail(*_: object) -> None:
    raise OSError("disk full")


def test_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the old file or the new one, never a part."""
    path = tmp_path / "summary.json"
    write_json(path, {"schema": "x", "value": 1})
    monkeypatch.setattr("os.replace", _fail)
    with pytest.raises(OSError, match="disk full"):
        write_json(path, {"schema": "x", "value": 2})
    assert read_json(path, "x")["value"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_every_digit(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    """A float written to JSON is read back as itself."""
    path = tmp_path_factory.getbasetemp() / "float.json"
    write_json(path, {"schema": "x", "value": value})
    assert read_json(path, "x")["value"] == value


def test_json_has_no_nan(tmp_path: Path) -> None:
    """What JSON cannot hold is null, at any depth, and keys keep their order."""
    path = tmp_path / "a.json"
    write_json(path, {"b": [float("nan"), {"a": float("inf")}], "a": 0.1})
    assert path.read_text() == '{\n "b": [\n  null,\n  {\n   "a": null\n  }\n ],\n "a": 0.1\n}\n'


COMPARISON = Comparison(
    (
        Cell("2/s", (policy("off", [10.0, 11.0]), policy("static(k=5)", [7.0, 7.5]))),
        Cell("9/s", (policy("off", [10.0, 11.0]), policy("static(k=5)", [7.0, 7.5], unstable=True))),
    ),
    "off",
)


def test_summary_names_the_best_and_hides_unstable_means(tmp_path: Path) -> None:
    """Per load: the best, those even, and per policy mean, seeds and difference of each metric."""
    path = tmp_path / "summary.json"
    write_json(path, summary(COMPARISON))
    read = read_json(path, SUMMARY_SCHEMA)
    low, high = read["cells"]
    assert (low["best"], high["best"]) == ("static(k=5)", "off")
    fast = low["policies"][1]["metrics"]["tpot_mean_ms"]
    assert (fast["mean"], fast["seeds"], fast["against_baseline"]["verdict"]) == (7.25, [7.0, 7.5], "better")
    hidden: dict[str, Any] = high["policies"][1]
    assert hidden["unstable"]
    assert hidden["metrics"]["tpot_mean_ms"]["mean"] is None
    assert hidden["metrics"]["tpot_mean_ms"]["against_baseline"] is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "schema is None"),
        ('{"schema": "leadline.summary/9"}', "reads 'leadline.summary/1'"),
    ],
)
def test_damaged_summary_is_named(tmp_path: Path, content: str, message: str) -> None:
    """A summary that cannot be used raises with its path and what is wrong."""
    path = tmp_path / "summary.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_json(path, SUMMARY_SCHEMA)


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    """A truncated records file raises with its path."""
    write_run(tmp_path, random_run(10))
    (tmp_path / "steps.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"steps\.parquet: cannot be read as Parquet"):
        read_run(tmp_path)


def test_metrics_of_what_was_read_are_those_of_what_was_written(tmp_path: Path) -> None:
    """Nothing that a metric needs is lost on disk."""
    written = run(requests([1, 5], [4, 9]), steps([1, 4], [4, 9], emitted=[1, 1]), gaps=([5], [1]))
    write_run(tmp_path, written)
    assert str(measure(read_run(tmp_path))) == str(measure(written))
