"""Whatever was measured: a fit rises where physics says so, is never negative and never NaN."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calibrate.cells import Cell, Measured
from calibrate.compose.evaluate import pass_ns
from calibrate.fit.cells import FASTEST_US, SLOWEST_US
from calibrate.fit.passes import PassFit, fit_pass
from calibrate.profile import Term
from tests.calibrate.fit.build import cell, measured

times = st.floats(FASTEST_US, SLOWEST_US) | st.floats(10.0, 1e4) | st.just(100.0)
passes = st.sampled_from(("verify", "draft_first", "draft_next", "draft_block", "accept", "host"))


@st.composite
def any_cells(draw: st.DrawFn) -> list[Measured]:
    """One to thirty cells of one pass: equal ones, one token count only, huge spreads, chunks."""
    name = draw(passes)
    widths = st.integers(1, 17) if draw(st.booleans()) else st.just(4)
    batches = st.integers(1, 512) if draw(st.booleans()) else st.just(3)
    contexts = st.integers(0, 131072) if draw(st.booleans()) else st.just(1024)
    chunks = st.sampled_from((0, 0, 0, 1, 8192)) if name == "verify" else st.just(0)
    shapes = st.builds(
        lambda b, w, s, chunk: cell(b, w, s, name, chunk=chunk), batches, widths, contexts, chunks
    )
    samples = st.lists(times, min_size=1, max_size=4)
    pairs = draw(st.lists(st.tuples(shapes, samples), min_size=1, max_size=30))
    return [measured(at, *us) for at, us in pairs]


ONE = measured(cell(1, 1, 1024), 100.0)
ONE_CHUNK_AMONG_STEPS = [
    measured(cell(b, 4, s, chunk=chunk), us)
    for b, s, chunk, us in (
        (1, 0, 0, 1.0),
        (1, 0, 1, 3237.0),
        (1, 0, 8192, 2306.0),
        (2, 1, 0, 1.0),
        (3, 0, 0, 1.0),
        (4, 0, 0, 2306.0),
    )
]
"""Parts of such different size that unscaled normal equations are singular."""


@settings(max_examples=60, deadline=None)
@given(any_cells())
@example([ONE])
@example([ONE, ONE])
@example(ONE_CHUNK_AMONG_STEPS)
@example([measured(cell(b, 1, 1024), 1e-3 if b % 2 else 1e12) for b in range(1, 20)])
@example(
    [measured(cell(0, 0, 0, "prefill", chunk=c, prefix=p), 5.0) for c in (1, 128, 512) for p in (0, 4096)]
)
def test_terms_are_finite_never_negative_and_rise_whatever_was_measured(cells: list[Measured]) -> None:
    fit = fit_pass(cells)
    for terms in (fit.terms_fit, fit.terms_exact):
        assert all(_finite_and_positive(term) for term in terms)
    for base in (one.cell for one in cells):
        _rises(fit, base)


def _finite_and_positive(term: Term) -> bool:
    numbers = [term.fixed_ns, *term.per_ns.values(), *(term.curve.ns if term.curve else ())]
    return all(0 <= number < math.inf for number in numbers)


def _rises(fit: PassFit, base: Cell) -> None:
    """Along tokens (fit mode), sequences and context (both modes); never below zero."""
    start = dict(base.shape)
    variables = set(start) - {"prefill_pairs"}
    for variable in sorted(variables):
        along = [start[variable] + step for step in (0, 1, 2, 7, 50, 1000)]
        linear_only = variable not in (fit.table.variables.over,)
        for terms in (fit.terms_fit, fit.terms_exact) if linear_only else (fit.terms_fit,):
            ns = [pass_ns(terms, {**start, variable: at}) for at in along]
            assert min(ns) >= 0
            assert all(b >= a * (1 - 1e-12) for a, b in pairwise(ns))


@settings(max_examples=40, deadline=None)
@given(any_cells())
def test_the_fitted_curve_stays_between_what_neighbouring_counts_say(cells: list[Measured]) -> None:
    """With the whole deviation followed, no table point leaves the range of the measured token parts."""
    fit = fit_pass(cells)
    if fit.report.residual < 1:
        return
    left = fit.table.ns - fit.table.columns[:, 1:] @ fit.fit.per
    inside = fit.fit.x <= fit.table.count.max()
    assert fit.fit.ns[inside].max() <= max(left.max(), 0.0) * (1 + 1e-9)
    assert fit.fit.ns[inside].min() >= min(left.min(), 0.0) - 1e-9


@settings(max_examples=25, deadline=None)
@given(st.lists(times, min_size=1, max_size=8), st.integers(1, 3))
def test_equal_cells_are_predicted_by_their_median(samples: list[float], copies: int) -> None:
    fit = fit_pass([measured(cell(4, 4, 512), *samples)] * copies)
    assert np.isclose(pass_ns(fit.terms_fit, cell(4, 4, 512).shape), 1e3 * np.median(samples), rtol=1e-5)
