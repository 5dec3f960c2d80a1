"""A plain table of step times: ``n_tokens,ms``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from calibrate.from_steps import Point, step_points, step_terms
from calibrate.importers.common import CONTEXT, About, Reading, csv_rows, file_source, not_flat, step_samples
from calibrate.profile import StatedError

EXAMPLE = "n_tokens,ms"


def read_points(files: Sequence[Path], about: About) -> Reading:
    """Rows ``n_tokens,ms`` of one or several files; repeated counts are repeats: their median counts.

    The curve goes through the medians. Repeats give the stated error (their mean distance from
    the median); without any, none is stated.
    """
    rows = [row for path in files for row in csv_rows(path, ("n_tokens", "ms"), EXAMPLE)]
    measured = [(row.count("n_tokens"), row.positive("ms")) for row in rows]
    points = medians(measured)
    error, key = repeat_error(measured), "steps"
    not_flat([point.ms for point in points], "ms", files[-1], error.relative if error else 0.0)
    return Reading(
        verify=step_terms(points, key),
        max_tokens=points[-1].size,
        sources=tuple(file_source(key, path, "step times by tokens", about) for path in files),
        samples=step_samples(key, measured),
        assumptions=(CONTEXT,),
        error=error,
    )


def medians(measured: Sequence[tuple[int, float]]) -> tuple[Point, ...]:
    """One point per count, in order: the median of its repeats."""
    counts = sorted({count for count, _ in measured})
    return step_points([(count, median(ms for n, ms in measured if n == count)) for count in counts])


def repeat_error(measured: Sequence[tuple[int, float]]) -> StatedError | None:
    """Mean relative distance of repeats from their median; ``None`` when nothing was repeated."""
    middle = {point.size: point.ms for point in medians(measured)}
    repeated = [n for n, _ in measured if sum(count == n for count, _ in measured) > 1]
    if not repeated:
        return None
    distances = [abs(ms / middle[n] - 1) for n, ms in measured if n in repeated]
    basis = f"mean distance of {len(distances)} repeats from their medians"
    return StatedError(relative=min(0.99, round(sum(distances) / len(distances), 4)), basis=basis)
