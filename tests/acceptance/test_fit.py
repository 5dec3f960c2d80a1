"""Fits find what made the data, say how far they are off, and give back what a scenario can hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logit
from scipy.stats import beta as beta_law

from sim.acceptance.build import build_process, expected_survival
from sim.acceptance.config import AcceptanceConfig, MarkovAcceptance
from sim.acceptance.fit import candidates as family
from sim.acceptance.fit.choose import Fit, Fitted, best_of, fit
from sim.acceptance.fit.evidence import Counted, Evidence, Request
from sim.acceptance.fit.heldout import Check, check_counts, check_requests, lagged, score
from sim.acceptance.fit.limits import cannot_tell, not_alpha
from sim.acceptance.fit.readers import read_files
from sim.acceptance.fit.recordings import walked
from sim.acceptance.fit.report import as_data, block, section
from sim.acceptance.fit.sequences import COARSE, FINE, chains_of, log_likelihood, survival_in_walks_of
from sim.acceptance.fit.sequences import tested as rows_of  # pytest would take the name for a test
from sim.acceptance.fit.stated import validated
from sim.errors import InputError
from tests.acceptance.helpers import build, configure

Config = dict[str, Any]
STRETCHES: Config = {"process": "markov", "good": 0.9, "bad": 0.35, "leave_good": 0.05, "leave_bad": 0.1}
WANDERING: Config = {
    "process": "latent",
    "mean": 0.65,
    "spread": 1.0,
    "correlation": 0.9,
    "request_share": 0.3,
}
STEPS = st.lists(
    st.integers(1, 3).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted))),
    min_size=1,
    max_size=4,
)


def counted(config: Config, *depths: int) -> tuple[Counted, ...]:
    """Exact counts of a process, as endless requests would give them."""
    found = []
    for depth in depths:
        survival = expected_survival(configure(**config), depth)
        found.append(Counted(depth, 1 + float(survival.sum()), tuple(survival.tolist()), 1e6))
    return tuple(found)


def generated(config: Config, depth: int, requests: int, tokens: int) -> list[Request]:
    """Rounds of a process in order."""
    process = build(depth, seed=11, **config)
    return [walked(process.path(i, 1, tokens).run, depth) for i in range(requests)]


def tokens(config: AcceptanceConfig, depth: int) -> float:
    """Tokens per round that a fitted process expects."""
    return float(1 + expected_survival(config, depth).sum())


def as_request(steps: Sequence[tuple[int, int]]) -> Request:
    """A request of these rounds."""
    return Request(3, len(steps), sum(kept for _, kept in steps), tuple(steps), in_order=True)


# -- likelihood of rounds in order -----------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=3), st.floats(0.5, 1))
def test_the_likelihood_is_the_sum_over_all_state_sequences(
    requests: list[list[tuple[int, int]]], factor: float
) -> None:
    """Every sequence of good and bad written out, for requests of a few positions."""
    config = configure(**STRETCHES, depth_decay=factor)
    assert isinstance(config, MarkovAcceptance)
    expected = 0.0
    for steps in requests:
        tests: list[tuple[int, bool] | None] = []
        for drafted, kept in steps:
            tests += [(j, True) for j in range(kept)]
            tests.append((kept, False) if kept < drafted else None)
        expected += np.log(sum(_probability(config, tests, states) for states in _sequences(len(tests))))
    seen = rows_of([as_request(steps) for steps in requests])
    assert log_likelihood(seen, chains_of(config, 3)) == pytest.approx(expected, rel=1e-9)


def _sequences(length: int) -> list[tuple[bool, ...]]:
    return list(product((True, False), repeat=length))


def _probability(
    config: MarkovAcceptance, tests: list[tuple[int, bool] | None], states: tuple[bool, ...]
) -> float:
    share = config.leave_bad / (config.leave_good + config.leave_bad)
    total = share if states[0] else 1 - share
    for at, (test, good) in enumerate(zip(tests, states, strict=True)):
        if test is not None:
            rate = (config.good if good else config.bad) * config.depth_decay ** test[0]
            total *= rate if test[1] else 1 - rate
        if at + 1 < len(states):
            leave = config.leave_good if good else config.leave_bad
            total *= 1 - leave if states[at + 1] == good else leave
    return total


@given(st.floats(0, 0.99), st.floats(0.05, 2))
def test_the_chain_of_a_wandering_process_has_its_moments(correlation: float, spread: float) -> None:
    """Unit variance and the stated lag-1 autocorrelation, exactly (Rouwenhorst)."""
    config: Any = configure(process="latent", mean=0.5, spread=spread, correlation=correlation)
    chains = chains_of(config, 1)
    z = logit(chains.rates[0]) / spread
    assert chains.start @ z == pytest.approx(0, abs=1e-9)
    assert chains.start @ z**2 == pytest.approx(1, rel=1e-6)
    assert (chains.start * z) @ chains.transition @ z == pytest.approx(correlation, abs=1e-6)


def test_walks_over_the_chain_agree_with_the_drawn_process() -> None:
    """Either size of chain stands for the Gaussian process to within 1 % of tokens per round."""
    config: Any = configure(**WANDERING)
    for depth, size in product((1, 7), (COARSE, FINE)):
        ours = 1 + survival_in_walks_of(chains_of(config, depth, size)).sum()
        assert ours == pytest.approx(tokens(config, depth), rel=0.01)


# -- fits find what made the data ------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.floats(0.2, 0.9), st.floats(0.8, 0.99))
def test_counts_of_a_falling_rate_give_it_back(alpha: float, factor: float) -> None:
    """Two numbers from seven counted rates."""
    found: Any = family.fit_counts(
        family.IID[1], counted({"process": "iid", "alpha": alpha, "depth_decay": factor}, 7)
    )
    assert found.alpha == pytest.approx(alpha, abs=2e-3)
    assert found.depth_decay == pytest.approx(factor, abs=2e-3)


@pytest.mark.parametrize(
    ("candidate", "config"),
    [
        (family.BETA[0], {"process": "beta", "a": 3.99, "b": 3.48, "per": "round"}),
        (family.BETA_PER_REQUEST, {"process": "beta", "a": 3.99, "b": 3.48}),
        (family.MARKOV[0], STRETCHES),
        (family.MARKOV[1], {**STRETCHES, "depth_decay": 0.95}),
    ],
    ids=["beta per round", "beta per request", "markov", "markov, depth_decay"],
)
def test_counts_at_one_depth_give_tokens_at_others(candidate: family.Candidate, config: Config) -> None:
    """Ten rates of one depth pin each family's tokens per round down to 0.5 % at other depths."""
    found = family.fit_counts(candidate, counted(config, 10))
    for depth in (1, 3, 5, 7, 15):
        assert tokens(found, depth) == pytest.approx(tokens(configure(**config), depth), rel=0.005)


@pytest.mark.parametrize("sums_only", [False, True])
def test_request_rates_are_found_from_their_requests(sums_only: bool) -> None:
    """Beta(6, 3) from 400 requests, also where only each request's sums are known."""
    requests = generated({"process": "beta", "a": 6.0, "b": 3.0}, 4, 400, 120)
    if sums_only:
        requests = [Request(r.depth, r.rounds, r.accepted) for r in requests]
    found: Any = family.fit_requests(requests)
    assert found.mean == pytest.approx(2 / 3, abs=0.02)
    assert found.concentration == pytest.approx(9, rel=0.25)


def test_the_request_likelihood_is_that_of_an_integral() -> None:
    """B(a + s, b + f) / B(a, b) against quadrature over the rate; its maximum is what the fit finds."""
    requests = [as_request([(3, a)] * n) for a, n in ((3, 4), (0, 5), (1, 6), (2, 2))]

    def loss(mean: float, size: float) -> float:
        total = 0.0
        for request in requests:
            passed = sum(a for _, a in request.steps)
            failed = sum(a < d for d, a in request.steps)
            law = beta_law(mean * size, (1 - mean) * size)
            total -= np.log(quad(lambda r: r**passed * (1 - r) ** failed * law.pdf(r), 0, 1)[0])  # noqa: B023
        return total

    found: Any = family.fit_requests(requests)
    least = loss(found.mean, found.concentration)
    for mean, size in ((1.03, 1), (0.97, 1), (1, 1.1), (1, 0.9)):
        assert loss(found.mean * mean, found.concentration * size) >= least - 1e-4


@pytest.mark.parametrize(
    ("candidate", "config"),
    [(family.MARKOV[0], STRETCHES), (family.LATENT[0], WANDERING)],
    ids=["markov", "latent"],
)
def test_rounds_in_order_give_spread_and_stretches(candidate: family.Candidate, config: Config) -> None:
    """Fitted at depth 4: other depths within 2 %, deviation over requests and lag-1 within noise."""
    found = family.fit_rounds(candidate, rows_of(generated(config, 4, 120, 250)))
    for depth in (1, 7):
        assert tokens(found, depth) == pytest.approx(tokens(configure(**config), depth), rel=0.02)
    seen = generated(config, 4, 300, 250)
    checks = {check.what: check for check in check_requests(found, seen, (), ())}
    assert abs(checks["deviation over requests"].error) < 0.15
    lag = checks["lag-1 correlation"]
    assert lag.predicted == pytest.approx(lag.observed, abs=0.03)


def test_a_moved_level_emits_the_counted_tokens() -> None:
    """After levelling, tokens per round are those counted, whatever the likelihood said."""
    groups = counted({"process": "iid", "alpha": 0.72}, 5)
    for config in (STRETCHES, WANDERING, {"process": "beta", "mean": 0.6, "concentration": 8.0}):
        moved = family.levelled(configure(**config), groups)
        assert tokens(moved, 5) == pytest.approx(groups[0].tokens_per_round, rel=0.01)


# -- held out, and the choice ----------------------------------------------------------------------


def test_a_rate_for_all_understates_the_spread_over_requests() -> None:
    """Where requests differ, iid has less than half of their deviation; a Beta law has it."""
    requests = generated({"process": "beta", "a": 6.0, "b": 3.0}, 4, 300, 200)
    found = fit(Evidence("x", requests=tuple(Request(r.depth, r.rounds, r.accepted) for r in requests)))
    deviation = {f.name: next(c for c in f.checks if c.what.startswith("deviation")) for f in found.tried}
    assert found.chosen.name == "beta per request"
    assert deviation["iid"].predicted < deviation["iid"].observed / 2
    assert deviation["beta per request"].predicted == pytest.approx(deviation["iid"].observed, rel=0.15)


def test_counts_that_rise_are_not_taken_for_luck_of_the_round() -> None:
    """Counted at depth 7 in stretches: the choice holds at other depths, the rates as they are do not."""
    found = fit(Evidence("x", counted=counted(STRETCHES, 7)))
    rates = next(f for f in found.tried if f.name == "per_position")
    for depth in (1, 3, 10):
        true = tokens(configure(**STRETCHES), depth)
        assert tokens(found.chosen.config, depth) == pytest.approx(true, rel=0.015)
    assert tokens(rates.config, 1) < 0.97 * tokens(configure(**STRETCHES), 1)
    assert found.chosen.name in ("markov", "beta per request")


def test_the_simplest_of_those_that_are_as_good_is_chosen() -> None:
    """Half a percentage point buys a number; more does not; rates as they are win only by far."""

    def made(name: str, numbers: int, error: float, here_only: bool = False) -> Fitted:
        checks = (Check("tokens", 2.0, 2.0 * (1 + error)), Check("information", 1.0, 9.0, counts=False))
        return Fitted(name, numbers, configure(process="iid", alpha=0.5), checks, here_only)

    tried = [
        made("one", 1, 0.03),
        made("two", 2, -0.014),
        made("three", 3, 0.01),
        made("rates", 7, 0.0, True),
    ]
    assert best_of(tried).name == "two"
    assert best_of([made("one", 1, 0.014), *tried[1:]]).name == "one"
    assert score(tried[1].checks) == pytest.approx(0.014)
    far = [made("one", 1, 0.08), made("rates", 3, 0.0, True)]
    assert best_of(far).name == "rates"


def test_one_depth_one_is_its_own_rate() -> None:
    """With one draft, tokens per round are 1 + alpha."""
    found = fit(Evidence("x", counted=(Counted(1, 1.8339, (0.8339,), 26407),)))
    assert section(found.chosen.config) == {"process": "iid", "alpha": 0.8339}


def test_depths_are_left_out_in_turn() -> None:
    """One check per depth, none of which its fit has seen: at another depth, other counts stay right."""
    groups = list(counted({"process": "iid", "alpha": 0.7}, 1, 3, 5))
    groups[1] = Counted(3, 9.0, (), 1e6)  # absurd on purpose

    def iid(some: Sequence[Counted], positions: int | None) -> AcceptanceConfig:
        return family.fit_counts(family.IID[0], some, positions)

    checks = {check.what: check for check in check_counts(iid, groups)}
    assert checks["tokens/round k=3"].predicted == pytest.approx(2.533, rel=1e-3)
    assert checks["tokens/round k=3"].observed == 9.0


def test_acceptance_that_fades_with_context_is_found() -> None:
    """Halving every 5,000 tokens beyond 3,000, from mean lengths at eight contexts."""
    groups = []
    for context in range(1000, 17_000, 2000):
        alpha = 0.7 * 2 ** (-max(0, context - 3000) / 5000)
        length = float(sum(alpha**j for j in range(4)))
        groups.append(Counted(3, length, context_tokens=context))
    found: Any = fit(Evidence("x", counted=tuple(groups))).chosen
    assert found.name == "iid, decay with context"
    assert found.config.decay.half_life_tokens == pytest.approx(5000, rel=0.05)
    assert found.config.decay.from_tokens == pytest.approx(3000, rel=0.1)


def test_a_look_up_drafter_proposes_as_often_as_it_was_counted() -> None:
    """Bursts at depth 5 with 30 % of vain proposals: in walks of the fitted process as many rounds draft."""
    bursts: Config = {"process": "markov", "good": 0.95, "bad": 0.02, "leave_good": 0.05, "leave_bad": 0.05}
    found = fit(Evidence("x", counted=counted(bursts, 5), in_vain=0.3)).chosen.config
    path = build_process(found, 3, 5, Path).path(0, 1, 40_000)
    assert path.found is not None
    starts = [0]
    while starts[-1] < len(path.run):
        starts.append(starts[-1] + int(path.run[starts[-1]]) + 1)
    drafted = [bool(path.found[p]) for p in starts[:-1]]
    first = expected_survival(configure(**bursts), 5)[0]
    assert np.mean(drafted) == pytest.approx(first + 0.3 * (1 - first), abs=0.03)


def test_correlation_at_a_lag_by_hand() -> None:
    """One request, 3 0 3 0 ...: perfectly opposed neighbours."""
    assert lagged([[3, 0] * 20], 1) == pytest.approx(-1, abs=1e-9)
    assert lagged([[3, 0] * 20], 2) == pytest.approx(1, abs=1e-9)
    assert np.isnan(lagged([[1, 2]], 1))


# -- what comes out --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"process": "iid", "alpha": 0.123456, "depth_decay": 0.97},
        {"process": "per_position", "unconditional": [0.7, 0.4], "beyond": "zero"},
        {"process": "beta", "mean": 0.71234567, "concentration": 12.0, "per": "round"},
        {**STRETCHES, "match": 0.7},
        {**WANDERING, "confidence": {"auc": 0.87, "ece": 0.05, "direction": "timid"}},
        {"process": "iid", "alpha": 0.6, "decay": {"from_tokens": 4000, "half_life_tokens": 5000.0}},
        {"process": "mean_length", "depth": 5, "acceptance_length": 2.88},
        {"process": "trace", "path": "a folder/acceptance: 1.jsonl", "recorded_depth": 7},
    ],
    ids=lambda config: config["process"],
)
def test_the_printed_block_loads_back(config: Config) -> None:
    """The YAML below ``acceptance:`` is the process, to four significant digits."""
    process = configure(**config)
    loaded = validated("block", yaml.safe_load(block(process))["acceptance"])
    assert section(loaded) == section(process)
    for key, value in config.items():
        written = section(loaded)[key]
        assert written == (pytest.approx(value, rel=1e-3) if isinstance(value, float) else value)


def test_recorded_claims_become_a_stated_confidence(tmp_path: Path) -> None:
    """A recording whose claims are bold gives the fitted process claims of that quality."""
    process = build(4, **STRETCHES, confidence={"auc": 0.85, "ece": 0.08})
    rows = []
    for request in range(40):
        path = process.path(request, 1, 150)
        claims = np.round(path.confidence().astype(float), 4).tolist()
        rows.append({"accepted": path.run.tolist(), "depth": 4, "confidence": claims})
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    evidence: Any = read_files([file], None, None)
    assert evidence.quality.auc == pytest.approx(0.85, abs=0.03)
    assert evidence.quality.ece == pytest.approx(0.08, abs=0.02)
    assert evidence.quality.bold


def test_a_recording_is_chosen_and_processes_stand_beside_it(tmp_path: Path) -> None:
    """The trace itself, with how far its halves differ; then what is fitted to it, at several depths."""
    process = build(5, **STRETCHES)
    file = tmp_path / "trace.jsonl"
    file.write_text(
        "".join(f'{{"accepted": {process.path(i, 1, 60).run.tolist()}, "depth": 5}}\n' for i in range(16))
    )
    evidence: Any = read_files([file], None, None)
    found = fit(evidence)
    assert section(found.chosen.config) == {"process": "trace", "path": str(file)}
    assert [check.what for check in found.chosen.checks][:4] == [f"tokens/round k={k}" for k in (1, 2, 3, 5)]
    beside = best_of([each for each in found.tried if each is not found.chosen])
    assert beside.score < 0.2
    data = as_data(found)
    assert data["process"] == "trace"
    assert len(data["tried"]) == len(found.tried)
    assert any("beyond the recording" in sentence for sentence in data["cannot_tell"])


def test_what_the_data_cannot_tell_depends_on_them() -> None:
    """A mean says nothing about positions, counts nothing about requests, rounds nothing about depths."""
    mean = Evidence("x", counted=(Counted(5, 2.88),))
    counts = Evidence("x", counted=(Counted(2, 2.0, (0.6, 0.4)),))
    rounds = Evidence("x", requests=(as_request([(3, 1)]),))
    for evidence, words in ((mean, "iid"), (counts, "requests differ"), (rounds, "behind a rejection")):
        assert any(words in sentence for sentence in cannot_tell(evidence))
    assert not_alpha(mean) is not None
    assert "0.376 at depth 5" in (not_alpha(mean) or "")
    assert not_alpha(Evidence("x", counted=(Counted(1, 1.5, (0.5,)),))) is None


def test_one_request_is_too_few() -> None:
    """Nothing to hold out."""
    with pytest.raises(InputError, match="at least two"):
        fit(Evidence("x", requests=(as_request([(3, 1)]),)))


def test_a_fit_is_the_same_every_time() -> None:
    """No clock, no order, no luck but the fixed streams."""

    def once() -> Fit:
        requests = generated(STRETCHES, 2, 30, 60)
        return fit(Evidence("x", requests=tuple(Request(2, r.rounds, r.accepted) for r in requests)))

    assert as_data(once()) == as_data(once())
