"""The physical form of a pass, fitted to many subsets of its cells at once.

    ns = c0 + s * (knee^p + n^p)^(1/p) + sum(a_v * v)        c0, s, a_v >= 0, p in [1, 8]

with ``n`` the count that the curve goes over (tokens): memory time ``s * knee`` and compute time
``s * n`` meet at the ridge ``knee``, as a sum (p = 1) or as a hard maximum (p = 8). Every part rises
with its variable, so the fit does. The loss is soft-L1 on log residuals. One batched, projected
Levenberg-Marquardt solves all held-out fits together: rows are subsets, so nothing is a loop over cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from calibrate.fit.cells import Floats, Mask, Table

SOFT: Final = 0.05
"""Log residuals beyond this count by their size, not by their square."""

COLLINEAR: Final = 0.01
"""A column with less than this share of its length of its own says nothing new."""

KNEE_COUNTS: Final = 5
"""Fewer distinct counts than this cannot tell a bend from a line."""

ITERATIONS: Final = 100
WARM: Final = 2
"""From so many ends of the fit of all cells does the fit of a subset start."""

CHUNK: Final = 64
"""Subsets solved together: enough to be quick, few enough to stay in memory."""

STARTS: Final = tuple((power, share) for power in (1.2, 3.0, 7.0) for share in (0.3, 0.55, 0.8))


@dataclass(frozen=True)
class Physical:
    """Solved parts: ns per unit of every column (the constant first), and the bend over the count."""

    linear: Floats
    slope: float
    knee: float
    power: float

    def over_count(self, count: Floats) -> Floats:
        """Nanoseconds of the constant and the bend at each count."""
        bend, _ = _bend(np.log(count)[None], np.log([self.knee]), np.array([self.power]))
        return np.asarray(self.linear[0] + self.slope * bend[0])

    def beside(self, columns: Floats) -> Floats:
        """Nanoseconds of all other parts."""
        return np.asarray(columns[:, 1:] @ self.linear[1:])


class Solver:
    """Fits of one table to subsets of its cells.

    Parameters stand in one row per subset: the columns, then slope, log knee and power. Times and
    columns are scaled to about 1 inside.
    """

    def __init__(self, table: Table) -> None:
        self.unit = float(np.median(table.ns))
        self.scale = np.maximum(table.columns.max(axis=0), 1.0)
        self.columns = table.columns / self.scale
        self.log_count = np.log(table.count)
        self.log_ns = np.log(table.ns / self.unit)
        self.width = table.columns.shape[1]
        lowest, highest = self.log_count.min(), self.log_count.max()
        zeros, unbounded = np.zeros(self.width + 1), np.full(self.width + 1, np.inf)
        self.low = np.concatenate([zeros, [-20.0, 1.0]])
        self.high = np.concatenate([unbounded, [highest + 1.0, 8.0]])
        self.starts = [(power, lowest + share * (highest - lowest)) for power, share in STARTS]

    def free(self, keep: Mask) -> Mask:
        """Which parameters the kept cells can tell apart (never more than there are cells)."""
        counts = np.unique(self.log_count[keep]).size
        relative = np.exp(-self.log_ns[keep])[:, None]
        line = np.exp(self.log_count[keep])[:, None]
        candidates = np.hstack([np.ones_like(line), line, self.columns[keep, 1:]]) * relative
        new = _new_directions(candidates)
        bends = bool(new[1]) and counts >= KNEE_COUNTS and int(keep.sum()) > int(new.sum())
        return np.concatenate([new[:1], new[2:], new[1:2], [bends, bends]])

    def start(self, keep: Mask, free: Mask) -> Floats:
        """Starting points, one row each: equal shares of the time to every free part."""
        starts = self.starts if free[-1] else [(1.0, -20.0)]
        rows = np.zeros((len(starts), self.width + 3))
        ns = np.exp(self.log_ns[keep])
        share = 1.0 / max(1, int(free[:-2].sum()))
        for column in np.flatnonzero(free[: self.width]):
            positive = self.columns[keep, column] > 0
            ratio = ns[positive] / self.columns[keep, column][positive]
            rows[:, column] = share * np.median(ratio)
        for row, (power, knee) in zip(rows, starts, strict=True):
            bend, _ = _bend(self.log_count[keep][None], np.array([knee]), np.array([power]))
            row[-3:] = (share * np.median(ns / bend[0]) if free[self.width] else 0.0), knee, power
        return rows

    def run(self, starts: list[Floats], keep: Mask, free: Mask) -> tuple[Floats, Floats]:
        """``solve`` from all starts of each subset, one after the other in the result."""
        sizes = [len(start) for start in starts]
        return self.solve(
            np.concatenate(starts), np.repeat(keep, sizes, axis=0), np.repeat(free, sizes, axis=0)
        )

    def solve(self, start: Floats, keep: Mask, free: Mask) -> tuple[Floats, Floats]:
        """Best parameters and their loss from each row of ``start``, with its own subset."""
        found, loss = start.copy(), self._loss(start, keep)
        damping = np.full(len(start), 1e-2)
        going = np.arange(len(start))
        for _ in range(ITERATIONS):
            tried = self._step(found[going], keep[going], free[going], damping[going])
            cost = self._loss(tried, keep[going])
            gain = loss[going] - cost
            better = gain > 0
            found[going[better]], loss[going[better]] = tried[better], cost[better]
            damping[going] *= np.where(better, 0.2, 6.0)
            settled = better & (gain <= 1e-8 * loss[going]) | (damping[going] > 1e8)
            going = going[~settled]
            if not going.size:
                break
        return found, loss

    def _predict(self, rows: Floats) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
        bend, slopes = _bend(self.log_count[None], rows[:, -2], rows[:, -1])
        ns = rows[:, : self.width] @ self.columns.T + rows[:, -3:-2] * bend
        return np.maximum(ns, 1e-18), bend, slopes

    def _loss(self, rows: Floats, keep: Mask) -> Floats:
        residual = np.log(self._predict(rows)[0]) - self.log_ns
        return np.asarray((keep * (np.sqrt(1 + (residual / SOFT) ** 2) - 1)).sum(axis=1))

    def _step(self, rows: Floats, keep: Mask, free: Mask, damping: Floats) -> Floats:
        ns, bend, (by_knee, by_power) = self._predict(rows)
        residual = np.log(ns) - self.log_ns
        weight = keep / np.sqrt(1 + (residual / SOFT) ** 2)
        slope = rows[:, -3:-2]
        jacobian = np.empty((*ns.shape, self.width + 3))
        jacobian[:, :, : self.width] = self.columns[None]
        jacobian[:, :, -3], jacobian[:, :, -2], jacobian[:, :, -1] = bend, slope * by_knee, slope * by_power
        jacobian /= ns[:, :, None]
        weighted = np.swapaxes(jacobian * weight[:, :, None], 1, 2)
        gradient = (weighted @ residual[:, :, None])[:, :, 0]
        held = ~free | (rows <= self.low) & (gradient > 0) | (rows >= self.high) & (gradient < 0)
        gradient[held] = 0.0
        curvature = (weighted @ jacobian) * ~held[:, :, None] * ~held[:, None, :]
        return np.clip(rows + _newton(gradient, curvature, damping), self.low, self.high)

    def physical(self, row: Floats) -> Physical:
        """One row in nanoseconds; in a plain sum (p = 1), where nothing tells them apart, all is memory."""
        linear = self.unit * row[: self.width] / self.scale
        slope, knee, power = self.unit * float(row[-3]), float(np.exp(row[-2])), float(row[-1])
        if power < 1 + 1e-6 and linear[0] < 1e9 * slope:
            knee, linear[0] = knee + float(linear[0]) / slope, 0.0
        return Physical(linear, slope, knee, power)


def fit_physical(table: Table, subsets: Mask) -> list[Physical]:
    """The best fit of each subset; rows of ``subsets`` say which cells are kept.

    A subset that tells the same parts apart as all cells do starts from the best ends of their fit;
    any other from scratch, so that nothing that it cannot know stays behind.
    """
    solver = Solver(table)
    everything = np.ones(len(table), bool)
    told = solver.free(everything)
    ends, loss = solver.run([solver.start(everything, told)], everything[None], told[None])
    best = ends[np.argsort(loss, kind="stable")[:WARM]]
    return [
        solver.physical(row)
        for chunk in np.split(subsets, range(CHUNK, len(subsets), CHUNK))
        for row in _best(solver, chunk, told, best)
    ]


def _best(solver: Solver, subsets: Mask, told: Mask, warm: Floats) -> Floats:
    free = np.array([solver.free(keep) for keep in subsets])
    starts = [
        warm if (mine == told).all() else solver.start(keep, mine)
        for keep, mine in zip(subsets, free, strict=True)
    ]
    rows, loss = solver.run(starts, subsets, free)
    sizes = [len(start) for start in starts]
    firsts = np.cumsum([0, *sizes[:-1]])
    best = [at + int(loss[at : at + size].argmin()) for at, size in zip(firsts, sizes, strict=True)]
    return rows[best]


def _newton(gradient: Floats, curvature: Floats, damping: Floats) -> Floats:
    """Marquardt's step, in units in which every parameter's own curvature is 1 (0 where it has none)."""
    own = np.sqrt(np.einsum("fpp->fp", curvature))
    unit = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
    scaled = curvature * unit[:, :, None] * unit[:, None, :]
    damped = scaled + (damping[:, None, None] + 1e-9) * np.eye(own.shape[1])
    solved = np.linalg.solve(damped, -(unit * gradient)[:, :, None])[:, :, 0]
    return np.asarray(unit * solved)


def _bend(log_count: Floats, log_knee: Floats, power: Floats) -> tuple[Floats, tuple[Floats, Floats]]:
    """(knee^p + n^p)^(1/p) per row and count, with its slopes in log knee and in p."""
    knee, p = log_knee[:, None], power[:, None]
    above = p * (log_count - knee)
    log_sum = p * knee + np.logaddexp(0.0, above)
    share = np.exp(above - np.logaddexp(0.0, above))
    bend = np.exp(log_sum / p)
    by_power = bend * (((1 - share) * knee + share * log_count) / p - log_sum / p**2)
    return bend, (bend * (1 - share), by_power)


def _new_directions(columns: Floats) -> Mask:
    """Which columns, from the left, are no mixture of those before (at most one per row)."""
    basis: list[Floats] = []
    new = np.zeros(columns.shape[1], bool)
    for index, column in enumerate(columns.T):
        length = float(np.linalg.norm(column))
        own = column / length if length > 0 else column
        for _ in range(2):
            for direction in basis:
                own = own - (own @ direction) * direction
        size = float(np.linalg.norm(own))
        if size > COLLINEAR and len(basis) < len(columns):
            new[index] = True
            basis.append(own / size)
    return new
