"""Interpolation, fitting and adding up, on tables made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.compose.attention import AttentionCost
from calibrate.compose.evaluate import decode_shape, pass_ns, term_ns
from calibrate.compose.fits import relative_fit
from calibrate.compose.gemm import GemmTable
from calibrate.compose.tables import Folders, TableError, significant
from calibrate.profile import Term
from calibrate.shapes import Attention, Linear
from tests.calibrate.test_profile import terms

M, N, K = (1, 8, 64), (64, 1024, 4096), (64, 512)


def _affine(m: int, n: float, k: float) -> float:
    """A table whose time is affine in n and in k at each m, as bytes and flops are."""
    return 1000.0 + m * (2.0 * n + 3.0 * k + 0.5 * n * k)


def _table(missing: tuple[int, int, int] | None = None) -> GemmTable:
    cube = np.array([[[_affine(m, n, k) for k in K] for n in N] for m in M])
    if missing is not None:
        cube[missing] = np.nan
    return GemmTable("hand", M, N, K, cube)


@given(st.sampled_from(N), st.sampled_from(K))
def test_a_measured_shape_is_returned_as_measured(n: int, k: int) -> None:
    latency = _table().latency(Linear("x", n, k))
    assert latency.tolist() == [_affine(m, n, k) for m in M]


@given(st.integers(64, 4096), st.integers(64, 512))
def test_between_measured_shapes_an_affine_time_is_found_exactly(n: int, k: int) -> None:
    latency = _table().latency(Linear("x", n, k))
    assert latency == pytest.approx([_affine(m, n, k) for m in M])


def test_beyond_the_largest_shape_the_utilisation_is_held() -> None:
    latency = _table().latency(Linear("lm_head", 8192, 512))
    assert latency == pytest.approx([2 * _affine(m, 4096, 512) for m in M])


def test_a_missing_row_is_bridged_over_m() -> None:
    latency = _table(missing=(1, 2, 1)).latency(Linear("x", 4096, 512))
    low, high = _affine(1, 4096, 512), _affine(64, 4096, 512)
    assert latency[1] == pytest.approx(low + (high - low) * 7 / 63)


@given(st.lists(st.floats(0.1, 1e4), min_size=3, max_size=3))
def test_a_fit_finds_the_coefficients_of_exact_data(wanted: list[float]) -> None:
    batch, context = (axis.ravel() for axis in np.meshgrid([1.0, 4, 16, 64], [64.0, 512, 4096]))
    columns = [np.ones_like(batch), batch, batch * context]
    measured = sum(c * column for c, column in zip(wanted, columns, strict=True))
    fit = relative_fit(columns, np.asarray(measured))
    assert fit.coefficients == pytest.approx(wanted, rel=1e-6)
    assert fit.max_error < 1e-6


@given(st.lists(st.floats(1.0, 1e6), min_size=12, max_size=12))
def test_a_fit_has_no_negative_coefficient_whatever_the_data(measured: list[float]) -> None:
    batch, context = (axis.ravel() for axis in np.meshgrid([1.0, 4, 16, 64], [64.0, 512, 4096]))
    fit = relative_fit([np.ones_like(batch), batch, batch * context], np.array(measured))
    assert min(fit.coefficients) >= 0
    assert fit.mean_error <= fit.max_error


counts = st.integers(0, 100_000)


@given(
    terms,
    st.fixed_dictionaries(
        {
            "tokens": counts,
            "sequences": counts,
            "logits": counts,
            "context_tokens": counts,
            "query_context_tokens": counts,
            "prefill_pairs": counts,
        }
    ),
)
def test_no_term_is_ever_negative_or_undefined(term: Term, shape: dict[str, int]) -> None:
    ns = term_ns(term, shape)
    assert np.isfinite(ns)
    assert ns >= 0


def test_attention_of_one_token_per_sequence_is_the_fitted_decode_time() -> None:
    cost = AttentionCost(10_000, 100, 10, 1.5, 0.02, "composed", "hand")
    heads = Attention(32, 8, 128, layers=4)
    for batch, context in ((1, 64), (8, 1000), (64, 4096)):
        expected = 4 * (10_000 + 100 * batch + 1.5 * batch * context)
        assert pass_ns(cost.terms(heads), decode_shape(batch, context)) == pytest.approx(expected)


def test_a_wider_verify_pass_reads_its_context_once_and_computes_each_pair() -> None:
    cost = AttentionCost(10_000, 100, 10, 1.5, 0.02, "composed", "hand")
    pair = cost.terms(Attention(32, 8, 128, layers=1))
    wide, narrow = (pass_ns(pair, decode_shape(8, 1000, width)) for width in (5, 1))
    assert wide - narrow == pytest.approx(8 * 4 * 10 + 8 * 4 * 1000 * 0.02)


@given(st.integers(1, 128), st.integers(1, 32_768), st.integers(2, 64))
def test_whole_tiles_leave_plain_decoding_and_cost_any_width_the_same(
    batch: int, context: int, width: int
) -> None:
    """One token a sequence costs the fitted decode time; a wide pass 64 pairs per KV token beside it."""
    packed = AttentionCost(10_000, 100, 10, 1.5, 0.02, "composed", "hand")
    heads = Attention(32, 8, 128, layers=4)
    terms = packed.tiled(64).terms(heads)
    plain = decode_shape(batch, context)
    assert pass_ns(terms, plain) == pytest.approx(pass_ns(packed.terms(heads), plain), rel=1e-5)
    wide = pass_ns(terms, decode_shape(batch, context, width))
    tokens, tiles = batch * (width - 1) * 10, 64 * 0.02 * batch * context
    assert wide - pass_ns(terms, plain) == pytest.approx(4 * (tokens + tiles), rel=1e-4)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="h100_sxm_gemm_vllm"):
        Folders(tmp_path, tmp_path, tmp_path).perf("h100_sxm", "gemm")


@given(st.floats(1e-6, 1e12))
def test_rounding_keeps_six_digits(value: float) -> None:
    assert significant(value) == pytest.approx(value, rel=5.1e-6)
    assert significant(significant(value)) == significant(value)
