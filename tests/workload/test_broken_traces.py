"""Every broken trace is told with its file, its line, what is wrong and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from sim.errors import InputError, TraceError
from sim.workload.arrival_config import TraceFormat
from sim.workload.readers import READERS
from sim.workload.traces import read_trace
from tests.workload.support import ROOT

FOLDER = ROOT / "tests" / "broken" / "traces"
EXPECTED = sorted(FOLDER.glob("*.expected"))
FORMATS: tuple[TraceFormat, ...] = get_args(TraceFormat)


def format_of(trace: Path) -> TraceFormat:
    """The format is what stands before the first dash of the file's name."""
    return next(name for name in FORMATS if name == trace.name.split("-")[0])


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: str(path.name.removesuffix(".expected")))
def test_a_broken_trace_is_told(expected: Path) -> None:
    """The message contains every fragment of the ``.expected`` file, one per line."""
    trace = expected.with_suffix("")
    with pytest.raises(InputError) as caught:
        read_trace(trace, format_of(trace))
    for fragment in expected.read_text(encoding="utf-8").splitlines():
        assert fragment in str(caught.value)


def test_every_broken_trace_says_what_is_expected() -> None:
    """No trace lies in the folder without its ``.expected``, and there are at least ten."""
    traces = {path for path in FOLDER.iterdir() if path.suffix != ".expected"}
    assert traces == {path.with_suffix("") for path in EXPECTED}
    assert len(traces) >= 10


def test_every_format_has_a_reader_and_a_broken_trace() -> None:
    """The vocabulary of the YAML, the readers and the broken files name the same formats."""
    assert set(FORMATS) == set(READERS) == {format_of(path.with_suffix("")) for path in EXPECTED}


def test_a_trace_error_carries_the_first_place() -> None:
    """Programs find file and line as attributes; the text has them all."""
    with pytest.raises(TraceError) as caught:
        read_trace(FOLDER / "azure-negative-tokens.csv", "azure")
    assert (Path(caught.value.file).name, caught.value.line) == ("azure-negative-tokens.csv", 3)


def test_a_missing_trace_is_told() -> None:
    """A path that leads nowhere is an InputError, not a traceback."""
    with pytest.raises(InputError, match=r"nowhere\.csv: there is no such file; give the path"):
        read_trace(Path("nowhere.csv"), "azure")
