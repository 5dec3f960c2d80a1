"""The crossover table of docs/crossover.md, from the shipped measured profile.

``python -m tests.docs.crossover`` writes the page again; a test keeps it true.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from calibrate.cells import Cell
from calibrate.compose.evaluate import pass_ns
from calibrate.profile import Profile, load_profile

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "crossover.md"
START, END = "<!-- table -->", "<!-- /table -->"
NAME = "cpu-small-88m"


def measured_ms(profile: Profile, sequences: int, width: int) -> float:
    """Median over all cells of one shape at the base context."""
    found = [
        m.median_us / 1e3
        for m in profile.cells
        if (m.cell.pass_, m.cell.sequences, m.cell.width, m.cell.context) == ("verify", sequences, width, 256)
    ]
    return median(found)


def fitted_ms(profile: Profile, sequences: int, width: int) -> float:
    """The profile's verify pass at one shape."""
    cell = Cell.model_validate({"pass": "verify", "sequences": sequences, "width": width, "context": 256})
    return pass_ns(profile.target.verify, cell.shape) / 1e6


def table() -> str:
    """Measured and fitted milliseconds of 1 x n and n x 1, and what parts them."""
    profile = load_profile(ROOT / "scenarios" / "profiles" / f"{NAME}.json")
    lines = [
        "| n tokens | depth 1 x n: measured, fit | breadth n x 1: measured, fit | difference: both |",
        "|---|---|---|---|",
    ]
    for n in (1, 2, 4, 8, 16, 32, 64, 128):
        d, b = measured_ms(profile, 1, n), measured_ms(profile, n, 1)
        fd, fb = fitted_ms(profile, 1, n), fitted_ms(profile, n, 1)
        lines.append(f"| {n} | {d:.1f}, {fd:.1f} | {b:.1f}, {fb:.1f} | {b - d:.1f}, {fb - fd:.1f} |")
    report = profile.fit["verify"]
    lines += [
        "",
        f"Held out one by one: {report.leave_one_out}; by batch size: {report.leave_sequences_out}; "
        f"by context: {report.leave_context_out}. Split-half noise: {report.noise}. "
        f"Drift: {report.drift_percent:.1f} %. "
        f"Whole rounds against the sum of their parts: {profile.fit['round'].in_sample}.",
    ]
    return "\n".join(lines)


def page() -> str:
    """The page with its table made anew."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(START)
    return head + START + "\n\n" + table() + "\n\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
