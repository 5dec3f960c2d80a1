"""Least squares on relative error, with coefficients that are never negative."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrate.compose.tables import Floats


@dataclass(frozen=True)
class Fit:
    """Coefficients of a sum of columns, and how far it is from what was measured."""

    coefficients: tuple[float, ...]
    mean_error: float
    p90_error: float
    max_error: float
    points: int

    def __str__(self) -> str:
        return (
            f"fit to {self.points} measured points: relative error mean {self.mean_error:.1%}, "
            f"p90 {self.p90_error:.1%}, max {self.max_error:.1%}"
        )


def relative_fit(columns: list[Floats], measured: Floats) -> Fit:
    """Minimise the squared relative error of ``columns @ c`` with every ``c >= 0``.

    A column of zeros gets 0. A column whose coefficient would be negative is dropped, the most
    negative first, and the rest fitted again (enough for three or four nearly independent columns).
    """
    relative = np.stack(columns, axis=1) / measured[:, None]
    active = [index for index, column in enumerate(columns) if column.any()]
    solution = _solve(relative[:, active])
    while len(active) > 1 and solution.min() < 0:
        active.pop(int(solution.argmin()))
        solution = _solve(relative[:, active])
    coefficients = np.zeros(len(columns))
    coefficients[active] = np.maximum(solution, 0.0)
    errors = np.abs(relative @ coefficients - 1.0)
    return Fit(
        tuple(coefficients.tolist()),
        float(errors.mean()),
        float(np.quantile(errors, 0.9)),
        float(errors.max()),
        len(measured),
    )


def _solve(relative: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(relative, np.ones(len(relative)), rcond=None)[0], np.float64)
