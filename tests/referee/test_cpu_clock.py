"""vLLM on the CPU clock: what the comparison in docs/referee-cpu.md found, on its recorded data.

The bands are those measured, rounded up. Latencies miss 10 % where the machine was faster or
slower than when it was calibrated; that they stay within its noise, and close at each run's own
speed, is the claim.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.profile import Profile, load_profile
from sim.against.observed import observed
from tests.referee.cpu_clock.compare import ClosedCompared, Compared, compare_closed, compare_open, orders
from tests.referee.cpu_clock.costs import (
    KNOTS,
    PROFILE,
    Cell,
    Prices,
    calibrated,
    cell_error,
    cells_of,
    held_out,
    profile_of,
)
from tests.referee.cpu_clock.noise import pairs, step_noise
from tests.referee.cpu_clock.page import page
from tests.referee.cpu_clock.predict import OPEN_METRICS, at_speed, closed_cases, run, table_of
from tests.referee.cpu_clock.recordings import FOLDER, Recorded, load, pack, select

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "vllm_cpu"
LATENCIES = ("tpot_mean_ms", "e2el_mean_ms", "ttft_mean_ms")

positive = st.floats(0.5, 50)
slope = st.floats(0.01, 2)


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return load()


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile(PROFILE)


@pytest.fixture(scope="module")
def runs(recorded: Recorded, profile: Profile) -> list[Compared]:
    return compare_open(recorded, profile, step_noise(pairs(recorded)))


@pytest.fixture(scope="module")
def closed(recorded: Recorded, profile: Profile) -> list[ClosedCompared]:
    return compare_closed(recorded, profile)


# -- laws ------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(base=positive, per_token=slope, host=positive, draft=positive, further=positive, per_sequence=slope)
def test_costs_of_this_form_are_found_again(
    base: float, per_token: float, host: float, draft: float, further: float, per_sequence: float
) -> None:
    """Cells made from stated costs give a profile that prices them, and cells between them, exactly."""

    def cell(sequences: int, depth: int, drafts: bool, tokens: int, context: float) -> Cell:
        passes = max(depth - 1, 0)
        made = draft + 0.1 * tokens + passes * (further + per_sequence * sequences) if drafts else 0.0
        verify = base + per_token * tokens + 0.001 * context
        rest = host + 0.2 * sequences + (0.7 if drafts else 0.0)
        return Cell("c", tokens, sequences, depth, drafts, context, verify, made, rest)

    shapes = [(b, k, d, b * (k + 1)) for b in (1, 2, 8, 32) for k in (0, 1, 3) for d in (k > 0, True)]
    cells = [cell(*shape, context=30.0 * i) for i, shape in enumerate(shapes)]
    cells += [cell(size, 0, False, size, 0.0) for size in KNOTS]
    prices = Prices(profile_of(cells))
    unseen = cell(5, 2, True, 15, 500.0)
    assert max(abs(cell_error(prices, each)) for each in (*cells, unseen)) < 1e-3


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_closed_loop_without_speculation_is_as_fast_as_its_steps(
    recorded: Recorded, profile: Profile, factor: float
) -> None:
    case = next(c for c in closed_cases(recorded) if c.name == "k0" and c.load == 4)
    base, scaled = (
        observed(run(case, p, 0))["output_tokens_per_s"] for p in (profile, at_speed(profile, factor))
    )
    assert scaled * factor == pytest.approx(base, rel=1e-6)


def test_prices_are_what_the_engine_charges(recorded: Recorded, profile: Profile) -> None:
    """Every simulated k = 3 decode step takes its price at its shape and context."""
    case = next(c for c in closed_cases(recorded) if c.name == "k3" and c.load == 4)
    steps = run(case, profile, 0).steps
    prices = Prices(profile)
    ns = np.diff(steps["end_ns"])[10:20]
    shapes = [steps[name][11:21] for name in ("tokens", "sequences", "query_context_tokens")]
    priced = [prices.step_ms(int(t), int(b), 3, True, float(c)) for t, b, c in zip(*shapes, strict=True)]
    assert ns / 1e6 == pytest.approx(np.array(priced), rel=1e-6)


# -- calibration -----------------------------------------------------------------------------------


def test_the_stored_profile_is_the_fit_to_the_closed_loop_steps(recorded: Recorded, profile: Profile) -> None:
    fresh, stored = Prices(calibrated(recorded)), Prices(profile)
    for shape in ((1, 1, 0, False, 0.0), (8, 2, 3, True, 200.0), (64, 32, 1, True, 3000.0)):
        assert fresh.step_ms(*shape) == pytest.approx(stored.step_ms(*shape), rel=1e-4)


def test_steps_of_a_configuration_are_priced_by_the_others(recorded: Recorded) -> None:
    """Half of the held-out cells within 7 %, none beyond 40 % (k = 1 at one client)."""
    sizes = np.abs(np.concatenate(list(held_out(cells_of(recorded)).values())))
    assert np.median(sizes) < 0.07
    assert sizes.max() < 0.40


def test_equal_steps_differ_by_a_tenth_between_processes(recorded: Recorded) -> None:
    found = pairs(recorded)
    assert len(found) > 80
    assert 0.09 < step_noise(found) < 0.12


# -- predictions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["dyn", "budget16", "qdepth"])
def test_every_recorded_depth_is_that_of_the_table(recorded: Recorded, policy: str) -> None:
    """vLLM chose the next depth by the requests scheduled, prefills included."""
    table = table_of(recorded.configs[f"open/{policy}"])
    assert table is not None
    steps = select(recorded.open_steps, config=policy)
    depths = [next(k for first, last, k in table if first <= b <= last) for b in steps["B"]]
    assert depths == steps["k_next"].tolist()


def test_throughput_is_predicted(runs: list[Compared]) -> None:
    """All 24 open-loop runs within 11 %, 23 of them within 10 %."""
    errors = np.abs([run.error("output_tokens_per_s") for run in runs])
    assert len(errors) == 24
    assert errors.max() < 0.11
    assert (errors <= 0.10).sum() >= 22


@pytest.mark.parametrize("metric", LATENCIES)
def test_mean_latencies_are_predicted_within_the_noise(runs: list[Compared], metric: str) -> None:
    """More than half within 10 %, the worst within 28 %, all within two standard deviations."""
    errors = np.abs([run.error(metric) for run in runs])
    assert (errors <= 0.10).sum() > 12
    assert errors.max() < 0.28
    assert max(abs(run.deviations(metric)) for run in runs) < 2


@pytest.mark.parametrize(("metric", "band"), [*zip(OPEN_METRICS, (0.05, 0.07, 0.07, 0.12), strict=True)])
def test_at_their_own_speed_runs_are_reproduced(runs: list[Compared], metric: str, band: float) -> None:
    """One number a run, how long its steps were on the whole, leaves little."""
    assert max(abs(run.own_error(metric)) for run in runs) < band


def test_no_order_is_wrong_where_policies_differ_by_more_than_the_noise(runs: list[Compared]) -> None:
    clear = [order for order in orders(runs) if order.deviations > 1]
    assert len(clear) > 15
    assert "wrong" not in [order.sign for order in clear]
    assert {order.sign for order in clear if order.deviations > 2} == {"right"}


def test_own_speeds_restore_the_order(runs: list[Compared]) -> None:
    """Nearly all of the 60 pairs, those within the noise among them."""
    signs = [order.own_sign for order in orders(runs)]
    assert len(signs) == 60
    assert signs.count("wrong") <= 2


def test_other_closed_loops_are_predicted(closed: list[ClosedCompared]) -> None:
    """Half of the 30 runs within 10 %, the worst within 30 %, on the mean within 6 %."""
    errors = np.array([run.error for run in closed])
    assert len(errors) == 30
    assert (np.abs(errors) <= 0.10).sum() >= 15
    assert np.abs(errors).max() < 0.30
    assert abs(errors.mean()) < 0.06


# -- data and page ---------------------------------------------------------------------------------


def test_the_data_are_small() -> None:
    assert sum(path.stat().st_size for path in (*FOLDER.iterdir(), PROFILE)) < 300_000


@pytest.mark.skipif(not SHARED.is_dir(), reason="the original recordings are not at ../shared/vllm_cpu")
def test_the_data_are_the_recordings(recorded: Recorded, tmp_path: Path) -> None:
    pack(SHARED, tmp_path)
    fresh = load(tmp_path)
    assert fresh.configs == recorded.configs
    for name in ("closed_steps", "closed_runs", "open_steps", "open_requests"):
        ours, theirs = getattr(recorded, name), getattr(fresh, name)
        assert all((ours[column] == theirs[column]).all() for column in theirs)


def test_the_page_is_that_of_this_code(
    recorded: Recorded, profile: Profile, runs: list[Compared], closed: list[ClosedCompared]
) -> None:
    """But for the part on our own campaign, which test_cpu_campaign.py looks at."""
    stored = (ROOT / "docs" / "referee-cpu.md").read_text(encoding="utf-8")
    campaign = stored[stored.index("## Our own campaign") : stored.index("## Recordings of others")]
    assert page(recorded, profile, runs, closed, campaign) == stored
