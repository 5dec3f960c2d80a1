"""``calibrate.from_steps``: the points come back, whatever is said about how they split."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.from_steps import Point, drafter_of, main, step_points, step_terms, throughput_points
from calibrate.profile import Counted, load_profile
from sim.cost.passes import PassCost
from tests.situations.replay import ROOT

PROFILES = sorted((ROOT / "scenarios" / "situations").glob("*-u[0-9][0-9].json"))
TINY = ["tiny", "--device", "GPU:80:3350:989", "--parameters", "1e9", "--source", "a benchmark"]

sizes = st.sets(st.integers(1, 300), min_size=1, max_size=6)


@st.composite
def rising_points(draw: st.DrawFn) -> tuple[Point, ...]:
    at = sorted(draw(sizes))
    ms = sorted(draw(st.lists(st.floats(0.01, 1e3), min_size=len(at), max_size=len(at))))
    return step_points(list(zip(at, ms, strict=True)))


@given(rising_points(), st.floats(0, 1), st.sampled_from(("tokens", "logits", "sequences")))
def test_plain_steps_take_what_the_points_say(points: tuple[Point, ...], share: float, over: Counted) -> None:
    """A step of n sequences with one token each takes the n-th point's time, however growth is split."""
    cost = PassCost(step_terms(points, "s", over, share), 301)
    for size, ms in points:
        assert cost.ns(size, size, size) == pytest.approx(1e6 * ms, abs=1)


@given(rising_points(), st.floats(0, 1))
def test_drafts_pay_the_share_that_is_not_per_sequence(points: tuple[Point, ...], share: float) -> None:
    """Going from the first point's size to the last in tokens alone costs (1 - share) of the growth."""
    cost = PassCost(step_terms(points, "s", per_sequence=share), 301)
    few, many = points[0], points[-1]
    grown = cost.ns(many.size, few.size, few.size) - cost.ns(few.size, few.size, few.size)
    assert grown == pytest.approx(1e6 * (1 - share) * (many.ms - few.ms), abs=2)


def test_a_throughput_is_a_step_time() -> None:
    """Four clients at 400 tok/s take 10 ms a step."""
    assert throughput_points([(4, 400.0)]) == (Point(4, 10.0),)


def test_context_comes_on_top_of_the_points() -> None:
    """1000 KV tokens at 79 ns."""
    cost = PassCost(step_terms(step_points([(8, 5.0)]), "s", context_ns=79.0), 9)
    assert cost.ns(8, 8, 8, context=1000) - cost.ns(8, 8, 8) == pytest.approx(79_000)


def test_windowed_layers_pay_for_the_tokens_they_see() -> None:
    """302.5 ns for each KV token that lies in the window, and nothing for those beyond."""
    cost = PassCost(step_terms(step_points([(8, 5.0)]), "s", context_ns=30.25, window_ns=302.5), 9)
    near, beyond = cost.window_ns((1000, 0, 0)), cost.ns(8, 8, 8, context=4000) - cost.ns(8, 8, 8)
    assert (float(near), beyond) == pytest.approx((302_500, 121_000))


def test_a_window_needs_its_length(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """``--window-ns`` without ``--window`` is refused, with it the profile says how far layers see."""
    priced = [*TINY, "--steps", "1=7", "--window-ns", "300", "--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        main(priced)
    assert "window_tokens" in capsys.readouterr().err
    assert main([*priced, "--window", "1024"]) == 0
    assert load_profile(tmp_path / "tiny.json").target.work.window_tokens == 1024


def test_a_drafter_without_time_has_no_pass() -> None:
    """Its time is inside the step's."""
    name, drafter = drafter_of("d:eagle:0:0.5:7", "s")
    assert (name, drafter.first, drafter.max_depth) == ("d", (), 7)
    assert [term.fixed_ns for term in drafter.next] == [5e5]


def test_there_are_profiles_to_make_again() -> None:
    assert len(PROFILES) >= 7


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_each_profile_is_what_its_command_makes(path: Path, tmp_path: Path) -> None:
    """The command in the file makes the same file again; only the folder differs."""
    words = shlex.split(load_profile(path).command)
    assert words[:3] == ["python", "-m", "calibrate.from_steps"]
    arguments = words[3:]
    arguments[arguments.index("--out") + 1] = str(tmp_path)
    assert main(arguments) == 0
    made, shipped = load_profile(tmp_path / path.name), load_profile(path)
    assert made.model_copy(update={"command": shipped.command}) == shipped


def test_extrapolation_goes_on_with_the_last_slope() -> None:
    """2 ms per 10 tokens between the last two points, and so beyond them."""
    cost = PassCost(step_terms(step_points([(10, 5.0), (20, 7.0)]), "s"), 101)
    assert np.diff([cost.ns(n, 1, 1) for n in (20, 40, 60)]) == pytest.approx([4e6, 4e6])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "1=7", "1=8"], "x must rise"),
        (["--steps", "1:7"], "COUNT=VALUE"),
        (["--steps", "0=7"], "above 0"),
        (["--throughput", "1=inf"], "above 0"),
        (["--steps", "1=7", "--per-sequence", "1.5"], "from 0 to 1"),
        (["--steps", "1=7", "--drafter", "d:medusa:1"], "KIND one of"),
        (["--steps", "1=7", "--drafter", "d:eagle:x"], "could not convert"),
        (["--steps", "1=7", "--device", "H100"], "NAME:GB"),
        (["--steps", "1=7", "--out", "no/such/folder"], "No such file"),
    ],
)
def test_what_makes_no_profile_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and a message that names what is wrong."""
    with pytest.raises(SystemExit) as stopped:
        main([*TINY, *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
