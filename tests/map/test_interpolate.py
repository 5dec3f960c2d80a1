"""Reading a map: simulated values at simulated points, between their neighbours elsewhere."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.map.explorer import MOST_BYTES, data_of, page
from sim.map.interpolate import Reading, enough, reading
from sim.map.model import At, Map

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NUMBERS = ("mean", "depth", "breadth", "step_ms", "acceptance_length")


def test_at_simulated_points_a_reading_is_the_point(small: Map) -> None:
    for point in small.points:
        seen = reading(small, point.at)
        assert seen.computed
        assert repr(seen.policies) == repr(dict(point.policies))
        assert seen.best == point.policy.best
        assert seen.even == point.policy.even
        assert enough(small, seen) == min(
            (small.depth_of(label) or 0 for label in point.depth.even), default=None
        )


def test_at_a_simulated_point_the_enough_depth_is_the_points_own(small: Map) -> None:
    found = _deep(small)
    assert {enough(found, reading(found, point.at)) for point in found.points} == {3}


def _deep(found: Map) -> Map:
    """The map with depth 3 as every simulated point's own choice, whatever its figures say."""
    label = found.depths[3]
    points = (replace(p, depth=replace(p.depth, best=label, even=(label,))) for p in found.points)
    return replace(found, points=tuple(points))


@given(share=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_between_points_a_reading_lies_between_its_neighbours(small: Map, share: tuple[float, float]) -> None:
    at = place(small, share)
    seen = reading(small, at)
    cells = [cell for cell in small.cells if _inside(small, cell, at)]
    for label, figures in seen.policies.items():
        for name in NUMBERS:
            values = [getattr(small.points[i].policies[label], name) for cell in cells for i in cell]
            value = getattr(figures, name)
            if not any(map(math.isnan, values)):
                assert min(values) - 1e-9 <= value <= max(values) + 1e-9


def test_outside_the_axes_a_reading_is_that_of_the_edge(small: Map) -> None:
    assert repr(reading(small, (0.01, 2.0))) == repr(reading(small, (1.0, 0.9)))


def test_the_page_is_small_and_fetches_nothing(small: Map) -> None:
    text = page(small)
    assert len(json.dumps(data_of(small))) < MOST_BYTES
    assert not re.search(r"(src|href)\s*=", text)
    assert set(re.findall(r"https?://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}


def test_text_of_the_map_is_never_markup(small: Map) -> None:
    bad = "</script><script>alert(1)</script>"
    named = {bad if label == "goodput" else label: label for label in small.policies}
    points = [_renamed(point, bad) for point in small.points]
    text = page(Map(**{**vars(small), "policies": tuple(named), "points": tuple(points)}))
    assert bad not in text


def _renamed(point, bad):  # type: ignore[no-untyped-def]
    return replace(point, policies={bad if k == "goodput" else k: v for k, v in point.policies.items()})


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_reads_the_map_as_python_does(small: Map, tmp_path: Path) -> None:
    found = _deep(small)
    shares = [(i / 7, j / 5) for i in range(8) for j in range(6)]
    places = [place(small, share) for share in shares] + [point.at for point in small.points]
    seen = _in_chromium(found, places, tmp_path)
    for at, theirs in zip(places, seen, strict=True):
        ours = reading(found, at)
        assert [theirs["points"], theirs["best"], theirs["even"]] == _numbers(small, ours), at
        assert theirs["enough"] == enough(found, ours), at
        for label, figures in zip(small.policies, theirs["policies"], strict=True):
            expected = [getattr(ours.policies[label], name) for name in NUMBERS]
            assert figures == pytest.approx(expected, rel=1e-4)


def _in_chromium(found: Map, places: list[At], folder: Path) -> list[dict[str, object]]:
    """What the page's own script reads at the places; fails on an error in its console."""
    picked = "[0, 2, 3, 4, 5].map((i) => p[i])"
    script = (
        f"const found = {json.dumps(places)}.map((at) => {{ const seen = window.leadlineReading(at);"
        f" return {{ ...seen, policies: seen.policies.map((p) => {picked}) }}; }});"
        "const out = document.createElement('pre'); out.id = 'out';"
        "out.textContent = JSON.stringify(found); document.body.append(out);"
    )
    path = folder / "page.html"
    path.write_text(page(found).replace("</main>", f"</main><script>{script}</script>"), encoding="utf-8")
    assert CHROMIUM is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    flags += [
        "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder}/user",
    ]
    ran = subprocess.run(
        [CHROMIUM, *flags, path.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    assert "CONSOLE" not in ran.stderr
    assert 'data-ready="true"' in ran.stdout
    inside = re.search(r'<pre id="out">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert inside is not None
    return list(json.loads(inside[1]))


def _numbers(found: Map, seen: Reading) -> list[object]:
    best = None if seen.best is None else found.policies.index(seen.best)
    return [seen.points, best, [found.policies.index(label) for label in seen.even]]


def place(found: Map, share: tuple[float, float]) -> At:
    """A place by its share of the way along each axis."""
    ends = [(axis.place(axis.values[0]), axis.place(axis.values[-1]), axis.log) for axis in found.axes]
    values = [low + t * (high - low) for (low, high, _), t in zip(ends, share, strict=True)]
    return tuple(math.exp(v) if log else v for v, (_, _, log) in zip(values, ends, strict=True))


def _inside(found: Map, cell: tuple[int, ...], at: At) -> bool:
    at = tuple(min(max(v, axis.values[0]), axis.values[-1]) for v, axis in zip(at, found.axes, strict=True))
    low, high = found.points[cell[0]].at, found.points[cell[-1]].at
    return all(a <= value <= b for a, value, b in zip(low, at, high, strict=True))
