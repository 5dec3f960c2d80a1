"""Whatever a file holds, reading it ends in a scenario or in problems at places that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.scenario.load import load_scenario
from tests.scenario.support import VALID, read

NASTY = [
    *("", "~", "off", "[]", "{}", "[[]]", "{a: b}", "0", "-1", "1e400", ".nan", ".inf", "9" * 5000),
    *("4/s", "1e999s", "1e15h", "99999999999h", "NaN", "1:30", "0x10", "1_000", "true", "2024-01-01"),
    *("'", '"', "\t", "\n", "- ", ": ", "#", "&a ", "*a", "? ", "| ", "> ", "%", "@", "\\", "''", "<<: "),
    *("---\n", "...\n", "\u2028", "\ufeff", "\U0001f600", '"\\uD800"', '"\\0"', "!x ", "!!binary "),
    *("!!python/object:os.system ", "a:b:C", "x.y:Z", "../..", "/", "../../../etc/hosts", "policies"),
    *("process: closed", "sweep", "workload.arrival", "profile.name", "workload.classes.0.share"),
]


def ends_well(path: Path | None, text: str = "") -> None:
    """Read, and check that every problem stands at a line and column of the file."""
    try:
        read(text) if path is None else load_scenario(path)
    except ScenarioError as error:
        found = error.problems
    else:
        return
    lines = sum(text.count(end) for end in ("\n", "\r", "\x85", "\u2028", "\u2029"))
    assert found
    assert all(1 <= problem.line <= lines + 2 and problem.column >= 1 for problem in found)
    assert all(problem.message and "\n" not in problem.message for problem in found)


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """The valid scenario with some stretches replaced by nasty ones."""
    text = VALID
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 0, 1, 2, 5, 12]))
        text = text[:start] + draw(st.sampled_from(NASTY) | st.text(max_size=3)) + text[start + length :]
    return text


@st.composite
def shuffles(draw: st.DrawFn) -> str:
    """Lines of the valid scenario left out, doubled, moved or indented."""
    lines = VALID.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        line = lines.pop(draw(st.integers(0, len(lines) - 1)))
        line = draw(st.sampled_from(["", "  ", "- "])) + line
        for _ in range(draw(st.integers(0, 2))):
            lines.insert(draw(st.integers(0, len(lines))), line)
    return "\n".join(lines)


@st.composite
def replacements(draw: st.DrawFn) -> str:
    """One word of the valid scenario replaced by something else that is valid YAML."""
    words = VALID.replace("{", "{ ").replace("}", " }").split(" ")
    words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(NASTY))
    return " ".join(words)


@settings(max_examples=150, deadline=None)
@given(mutations() | shuffles() | replacements())
def test_mutated_scenarios_end_in_problems_with_places(text: str) -> None:
    ends_well(None, text)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=40), st.integers(0, len(VALID)))
def test_mutated_bytes_end_in_problems_with_places(tmp_path: Path, junk: bytes, at: int) -> None:
    raw = VALID.encode()
    path = tmp_path / "s.yaml"
    path.write_bytes(raw[:at] + junk + raw[at:])
    ends_well(path, path.read_bytes().decode("utf-8", "replace"))


@pytest.mark.parametrize("word", NASTY)
def test_a_word_alone_ends_in_problems(word: str) -> None:
    ends_well(None, word)
