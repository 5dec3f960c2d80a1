"""Where the cost of a step is a straight line, whether to speculate is a formula, and the engine obeys it."""

from __future__ import annotations

import pytest

from sim.acceptance.config import geometric_tokens
from sim.policies.off import Off
from sim.policies.static import Static
from tests.engine.modelled import linear_profile
from tests.policies.replay import tokens_per_s

T0_MS, C_MS, D_MS = 20.0, 0.5, 3.0


@pytest.mark.parametrize("alpha", [0.5, 0.8])
@pytest.mark.parametrize("depth", [1, 3, 7])
def test_throughput_at_a_fixed_depth_is_the_geometric_law_over_the_time_of_a_round(
    alpha: float, depth: int
) -> None:
    """n (1 + a + ... + a^k) / (T0 + c n (k + 1) + D + (k - 1) d), Leviathan et al. 2023 eq. 1, batched."""
    n, profile = 64, linear_profile(T0_MS, C_MS, draft=(D_MS, 0.0, 1.5))
    round_ms = T0_MS + C_MS * n * (depth + 1) + D_MS + 1.5 * (depth - 1)
    expected = n * geometric_tokens(alpha, depth) / round_ms * 1e3
    found = tokens_per_s(Static(depth), n, alpha=alpha, output=6000, profile=profile)
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("alpha", [0.5, 0.65, 0.8])
def test_one_draft_beats_none_up_to_the_known_batch(alpha: float) -> None:
    """k = 1 beats k = 0 iff R < (a T0 - D) / (c (1 - a))."""
    crossing = (alpha * T0_MS - D_MS) / (C_MS * (1 - alpha))
    profile = linear_profile(T0_MS, C_MS, draft=(D_MS, 0.0, 1.5))

    def ratio(batch: int) -> float:
        with_one = tokens_per_s(Static(1), batch, alpha=alpha, output=1500, profile=profile)
        return with_one / tokens_per_s(Off(), batch, output=1500, profile=profile)

    assert ratio(round(0.8 * crossing)) > 1 > ratio(round(1.2 * crossing))


@pytest.mark.parametrize("alpha", [0.3, 0.7])
@pytest.mark.parametrize(("context", "better"), [(0.7, "breadth"), (1.4, "depth")])
def test_depth_beats_breadth_where_contexts_are_long_enough(
    alpha: float, context: float, better: str
) -> None:
    """A slot of depth beats a sequence more iff S > c / (c + kappa ctx).

    The same step time is filled with n sequences of one draft each, or with more sequences of none:
    n (1 + c / (c + kappa ctx)). Contexts are ``context`` times the one at which both are worth the same.
    """
    kappa, n, output = 2e-4, 100, 300
    even = C_MS * (1 / alpha - 1) / kappa
    tokens = round(context * even)
    profile = linear_profile(T0_MS, C_MS, kappa, draft=(0.0, 0.0, 0.0))
    more = round(n * (1 + C_MS / (C_MS + kappa * tokens)))
    deep = tokens_per_s(
        Static(1), n, alpha=alpha, prompt=tokens - output // 2, output=output, profile=profile
    )
    broad = tokens_per_s(Off(), more, prompt=tokens - output // 2, output=output, profile=profile)
    assert (deep > broad) == (better == "depth")
