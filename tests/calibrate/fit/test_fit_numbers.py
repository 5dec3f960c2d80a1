"""Fits of cells from a known law, the errors they state, and held-out kernels of a real GPU."""

from __future__ import annotations

from functools import partial

import duckdb
import numpy as np
import pytest

from calibrate.cells import Cell
from calibrate.compose.evaluate import pass_ns
from calibrate.compose.gemm import gemm_table
from calibrate.compose.tables import Folders, Ledger
from calibrate.fit.cells import FitError
from calibrate.fit.curve import fitted
from calibrate.fit.errors import by_context, by_sequences, drift, one_by_one
from calibrate.fit.passes import PassFit, fit_pass
from calibrate.fit.physical import fit_physical
from calibrate.shapes import Linear
from tests.calibrate.fit.build import TOKENS, campaign, cell, grid, law, measured

LAYER = (
    Linear("qkv", 6144, 4096),
    Linear("o", 4096, 4096),
    Linear("up", 28672, 4096),
    Linear("down", 4096, 14336),
)
"""The products of one layer of Llama-3.1-8B; it has 32 layers."""


@pytest.fixture(scope="module")
def noisy() -> PassFit:
    return fit_pass(campaign(grid(), law, noise=0.02))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_coefficients_of_a_law_are_recovered_from_cells_with_two_percent_noise(seed: int) -> None:
    report = fit_pass(campaign(grid(), law, noise=0.02, seed=seed)).report
    found = report.coefficients
    assert found["fixed"] + found["memory"] == pytest.approx(4200e3, rel=0.03)
    assert found["per_tokens"] == pytest.approx(40e3, rel=0.05)
    assert found["per_context_tokens"] == pytest.approx(40.0, rel=0.05)
    assert report.ridge_tokens == pytest.approx(100, rel=0.15)
    assert 2.5 < found["power"] < 8
    assert report.leave_one_out is not None
    assert report.leave_one_out.mean < 2
    assert report.leave_sequences_out is not None
    assert report.leave_sequences_out.p90 < 4
    assert report.leave_context_out is not None
    assert report.leave_context_out.p90 < 4


def test_a_law_without_noise_is_predicted_at_cells_that_were_not_measured() -> None:
    fit = fit_pass(campaign(grid(), law, noise=0.0))
    for b, w, s in [(3, 5, 600), (40, 3, 2000), (100, 5, 300), (7, 1, 30000)]:
        shape = cell(b, w, s).shape
        assert pass_ns(fit.terms_fit, shape) == pytest.approx(1e3 * law(shape), rel=0.01)


def test_leave_one_out_is_what_refitting_without_each_cell_gives() -> None:
    cells = campaign(grid(), law, noise=0.02)[::4]
    fit = fit_pass(cells)
    errors = []
    for index, left_out in enumerate(cells):
        rest = fit_pass([*cells[:index], *cells[index + 1 :]])
        keep = np.ones(len(rest.table), bool)
        physical = fit_physical(rest.table, keep[None])[0]
        table = fitted(rest.table, keep, physical, fit.report.residual)
        predicted = sum(pass_ns([term], left_out.cell.shape) for term in table.terms("forward", ""))
        errors.append(abs(predicted / (1e3 * left_out.median_us) - 1))
    stated = one_by_one(fit.table).errors(partial(fitted, share=fit.report.residual))
    assert stated == pytest.approx(errors, abs=1e-5)
    assert fit.report.leave_one_out is not None
    assert fit.report.leave_one_out.mean == pytest.approx(100 * np.mean(errors), abs=0.01)
    assert fit.report.leave_one_out.max == pytest.approx(100 * np.max(errors), abs=0.01)


def test_a_whole_batch_size_or_context_is_left_out_at_once(noisy: PassFit) -> None:
    table = noisy.table
    for held_out, name in ((by_sequences(table), "sequences"), (by_context(table), "context")):
        groups = [{getattr(table.cells[i], name) for i in np.flatnonzero(~keep)} for keep in held_out.keep]
        assert all(len(group) == 1 for group in groups)
        assert (~held_out.keep).sum(axis=0).tolist() == [1] * len(table)


def test_split_half_noise_is_that_of_two_medians(noisy: PassFit) -> None:
    """Medians of five and of four normal samples differ by 0.8 of 1.25 x sigma x sqrt(1/5 + 1/4), roughly."""
    noise = noisy.report.noise
    assert noise is not None
    assert noise.mean == pytest.approx(100 * 0.02 * 0.8 * 1.2 * np.sqrt(1 / 5 + 1 / 4), rel=0.25)


def test_drift_is_what_the_anchors_have_in_common() -> None:
    anchors = [cell(b, 1, 1024) for b in (1, 16, 128)]
    runs = [
        measured(at, law(at.shape) * level, flags=("anchor",))
        for level in (1.0, 1.01, 1.04)
        for at in anchors
    ]
    assert drift(runs) == pytest.approx(4.0, rel=1e-3)
    assert drift(runs[:3]) is None


def test_exact_terms_pass_through_the_medians_at_the_base_context() -> None:
    cells = campaign([cell(t, 1, 1024) for t in TOKENS], law, noise=0.1)
    fit = fit_pass(cells)
    for one in cells:
        assert pass_ns(fit.terms_exact, one.cell.shape) == pytest.approx(1e3 * one.median_us, rel=1e-5)


def test_a_measured_step_is_followed_when_that_predicts_better() -> None:
    """A cliff of 60 % at 65 tokens, measured on both sides: no bend can show it, the residual does."""
    cliff = lambda shape: law(shape) * (1.6 if shape["tokens"] > 64 else 1.0)  # noqa: E731
    cells = campaign(grid(), cliff, noise=0.005)
    fit = fit_pass(cells)
    assert fit.report.residual > 0
    below, above = (pass_ns(fit.terms_fit, cell(1, w, 1024).shape) for w in (64, 65))
    assert above / below > 1.4


def test_one_context_leaves_the_cost_of_context_unknown_not_guessed() -> None:
    fit = fit_pass(campaign(grid(others=()), law, noise=0.02))
    assert fit.report.coefficients["per_context_tokens"] == 0
    assert fit.report.leave_context_out is None


def test_cells_that_ran_out_of_memory_or_were_throttled_are_left_out() -> None:
    good = campaign(grid(), law, noise=0.0)
    bad = [measured(one.cell, 1e6, flags=("throttled",)) for one in good[:3]]
    fit = fit_pass([*good, *bad])
    assert fit.report.excluded == 3
    assert fit.terms_fit[0].curve == fit_pass(good).terms_fit[0].curve


@pytest.mark.parametrize("us", [float("inf"), 1e-9, 1e13])
def test_a_time_that_no_pass_can_take_is_refused_with_its_cell(us: float) -> None:
    with pytest.raises(FitError, match="verify 4 x 2 at context 7"):
        fit_pass([measured(cell(4, 2, 7), us)])
    with pytest.raises(FitError, match="none of 0 cells"):
        fit_pass([])


def test_linear_layers_of_an_h200_are_predicted_at_token_counts_that_were_held_out(folders: Folders) -> None:
    """Trained on the calibration grid's counts: at most 5 % mean and 10 % p90 on all others to 512."""
    table = gemm_table(folders, "h200_sxm", Ledger())
    layers = 32 * np.sum([table.latency(linear) for linear in LAYER], axis=0)
    ns = {m: float(at) for m, at in zip(table.m, layers, strict=True) if m <= 512}
    cells = {m: cell(m, 1, 1) for m in ns}
    fit = fit_pass([measured(cells[m], ns[m] / 1e3) for m in ns if m in TOKENS])
    errors = [abs(pass_ns(fit.terms_fit, cells[m].shape) / ns[m] - 1) for m in ns if m not in TOKENS]
    assert len(errors) > 20
    assert np.mean(errors) < 0.05
    assert np.quantile(errors, 0.9) < 0.10


def test_whole_decode_passes_of_an_h200_are_predicted_at_held_out_batches_and_contexts(
    folders: Folders,
) -> None:
    """Layer products plus decode attention (32/8 heads of 128), x 32 layers; at most 5 % mean, 10 % p90."""
    ns = _decode_ns(folders)
    train = {at for at in ns if at.context == 1023 or at.sequences in (1, 8, 32, 128)}
    train = {at for at in train if at.context + 1 in (256, 1024, 4096, 16384)}
    fit = fit_pass([measured(at, ns[at] / 1e3) for at in ns if at in train])
    errors = [abs(pass_ns(fit.terms_fit, at.shape) / ns[at] - 1) for at in ns if at not in train]
    assert len(errors) > 30
    assert np.mean(errors) < 0.05
    assert np.quantile(errors, 0.9) < 0.10


def _decode_ns(folders: Folders) -> dict[Cell, float]:
    path = folders.perf("h200_sxm", "generation_attention")
    rows = duckdb.execute(
        "SELECT batch_size, isl + step, min(latency) * 1e6 FROM read_parquet(?) WHERE num_heads = 32 "
        "AND num_key_value_heads = 8 AND head_dim = 128 AND window_size = 0 AND kv_cache_dtype = 'bfloat16' "
        "AND batch_size <= 512 AND isl + step BETWEEN 256 AND 16384 GROUP BY 1, 2 ORDER BY 1, 2",
        [str(path)],
    ).fetchall()
    table = gemm_table(folders, "h200_sxm", Ledger())
    layers = dict(zip(table.m, np.sum([table.latency(linear) for linear in LAYER], axis=0), strict=True))
    return {cell(b, 1, s - 1): 32 * (ns + float(layers[b])) for b, s, ns in rows}
