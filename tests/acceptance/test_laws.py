"""Laws every acceptance process obeys."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import beta as beta_function

from sim.errors import InputError, SimulationError
from sim.streams import uniforms
from tests.acceptance.helpers import build, tokens_per_round, walk, z_of_mean

Config = dict[str, Any]

RATE = st.floats(0, 1)
OPEN = st.floats(0.01, 0.99)
PROCESSES = st.one_of(
    st.fixed_dictionaries({"process": st.just("iid"), "alpha": RATE}),
    st.fixed_dictionaries(
        {
            "process": st.just("per_position"),
            "conditional": st.lists(RATE, min_size=1, max_size=5),
            "beyond": st.sampled_from(["last", "zero"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "process": st.just("beta"),
            "mean": OPEN,
            "concentration": st.floats(0.05, 1000),
            "per": st.sampled_from(["request", "round"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "process": st.just("latent"),
            "mean": OPEN,
            "spread": st.floats(0, 10),
            "correlation": st.floats(0, 0.99),
            "request_share": RATE,
        }
    ),
    st.fixed_dictionaries(
        {
            "process": st.just("markov"),
            "good": st.floats(0.5, 1),
            "bad": st.floats(0, 0.5),
            "leave_good": st.floats(0.001, 1),
            "leave_bad": st.floats(0.001, 1),
        }
    ),
)
FALLING = st.builds(
    lambda config, factor: (
        config if config["process"] == "per_position" else {**config, "depth_decay": factor}
    ),
    PROCESSES,
    st.just(1.0) | st.floats(0.5, 1),
)
DECAYS = st.none() | st.fixed_dictionaries(
    {"from_tokens": st.integers(0, 300), "half_life_tokens": st.floats(0.1, 1e6)}
)
CONFIGS = st.builds(lambda config, decay: {**config, "decay": decay}, FALLING, DECAYS)
EXAMPLES: list[Config] = [
    {"process": "iid", "alpha": 0.7},
    {"process": "per_position", "conditional": [0.8, 0.5]},
    {"process": "beta", "a": 3.99, "b": 3.48},
    {"process": "latent", "mean": 0.7, "spread": 1.5, "correlation": 0.8, "request_share": 0.3},
    {"process": "markov", "good": 0.9, "bad": 0.3, "leave_good": 0.1, "leave_bad": 0.2},
    {"process": "iid", "alpha": 0.8, "depth_decay": 0.9},
]
IDS = [f"{config['process']}{config.get('depth_decay', '')}" for config in EXAMPLES]


@settings(max_examples=80, deadline=None)
@given(CONFIGS, st.integers(1, 12), st.integers(1, 12), st.integers(1, 90), st.integers(1, 400))
def test_a_smaller_depth_caps_the_same_run(
    config: Config, deep: int, shallow: int, n: int, prompt: int
) -> None:
    """Runs at two maximum depths differ by the cap alone."""
    shallow, deep = sorted((shallow, deep))
    full = build(deep, **config).path(5, prompt, n).run
    capped = build(shallow, **config).path(5, prompt, n).run
    assert np.array_equal(capped, np.minimum(full, shallow))


@settings(max_examples=80, deadline=None)
@given(CONFIGS, st.integers(1, 90), st.integers(0, 90), st.integers(1, 400))
def test_a_longer_output_keeps_the_same_beginning(config: Config, n: int, more: int, prompt: int) -> None:
    """The first n positions do not depend on how many follow, nor do their claims."""
    process = build(6, confidence={}, **config)
    short, long = process.path(3, prompt, n), process.path(3, prompt, n + more)
    assert np.array_equal(short.run, long.run[:n])
    assert np.array_equal(short.confidence(), long.confidence()[:n])


@settings(max_examples=80, deadline=None)
@given(CONFIGS, st.integers(0, 10), st.integers(1, 60), st.floats(0.5, 0.999), st.floats(0.1, 10))
def test_runs_and_claims_stay_in_range(
    config: Config, depth: int, n: int, auc: float, temperature: float
) -> None:
    """Runs are uint8 within the depth; claims are float32 probabilities, never NaN."""
    path = build(depth, confidence={"auc": auc, "temperature": temperature}, **config).path(0, 100, n)
    assert path.run.dtype == np.uint8
    assert path.run.shape == (n,)
    assert path.run.max() <= depth
    claims = path.confidence()
    assert claims.dtype == np.float32
    assert claims.shape == (n, depth)
    assert np.all((claims >= 0) & (claims <= 1))


@pytest.mark.parametrize("config", EXAMPLES, ids=IDS)
def test_a_path_depends_on_seed_and_request_alone(config: Config) -> None:
    """Other calls, their order and other process objects change nothing; seed and request do."""
    one, other = build(seed=7, confidence={}, **config), build(seed=7, confidence={}, **config)
    first = one.path(4, 10, 300)
    for request in (9, 4, 0):
        other.path(request, 5, 50).confidence()
    again = other.path(4, 10, 300)
    assert np.array_equal(first.run, again.run)
    assert np.array_equal(first.confidence(), again.confidence())
    assert not np.array_equal(first.run, one.path(5, 10, 300).run)
    assert not np.array_equal(first.run, build(seed=8, **config).path(4, 10, 300).run)


@settings(max_examples=40, deadline=None)
@given(st.lists(RATE, min_size=1, max_size=6), st.integers(1, 50), st.integers(0, 50))
def test_runs_are_the_leading_successes_of_the_stream(listed: list[float], n: int, request: int) -> None:
    """A scalar reading of the definition gives the same runs: u[p+j] < c_j for j = 0, 1, ..."""
    depth = len(listed)
    run = build(depth, process="per_position", conditional=listed).path(request, 1, n).run
    u = uniforms(1, "acceptance", request, n + depth)
    for p in range(n):
        expected = next((j for j in range(depth) if not u[p + j] < listed[j]), depth)
        assert run[p] == expected


@pytest.mark.parametrize("alpha", [0.3, 0.65, 0.8, 0.95])
@pytest.mark.parametrize("depth", [1, 3, 5, 8])
def test_iid_tokens_per_round_are_geometric(alpha: float, depth: int) -> None:
    """E[tokens per round] = (1 - a^(k+1)) / (1 - a), realised and expected."""
    process = build(depth, process="iid", alpha=alpha)
    law = (1 - alpha ** (depth + 1)) / (1 - alpha)
    assert process.expected_tokens_per_round(depth) == pytest.approx(law)
    rounds = walk(process.path(0, 1, 40_000).run.tolist(), lambda *_: depth)
    assert abs(z_of_mean([a + 1 for _, a in rounds[:-1]], law)) < 4


@pytest.mark.parametrize(
    "rule",
    [lambda i, a: 1 + a, lambda i, a: 8 - a, lambda i, a: i % 9, lambda i, a: 8 if a < 2 else 1],
    ids=["follow", "oppose", "cycle", "threshold"],
)
def test_any_causal_depth_rule_meets_the_same_acceptance(rule: Any) -> None:
    """Whatever the history a rule acts on, each draft tested is accepted with probability alpha."""
    run = build(8, process="iid", alpha=0.6).path(2, 1, 60_000).run.tolist()
    rounds = walk(run, lambda i, a: min(8, rule(i, a)))
    tested = [1.0] * sum(a for _, a in rounds) + [0.0] * sum(a < k for k, a in rounds)
    assert abs(z_of_mean(tested, 0.6)) < 4


def test_a_token_is_accepted_or_not_whatever_the_round_it_is_drafted_in() -> None:
    """Where chances belong to tokens, a run of r at p leaves at least r - 1 at p + 1."""
    for config in (EXAMPLES[0], EXAMPLES[2], EXAMPLES[3]):
        run = build(8, **config).path(1, 1, 2000).run.astype(int)
        assert np.all(run[1:] >= run[:-1] - 1)


@pytest.mark.parametrize("depth", [1, 3, 7])
def test_request_beta_tokens_per_round_are_a_harmonic_mean(depth: int) -> None:
    """Walks over requests of equal length agree with 1 / E[1 / tau(alpha)]."""
    process = build(7, process="beta", a=3.99, b=3.48)
    mean, error = tokens_per_round(process, depth, requests=1500, tokens=200)
    assert abs(mean - process.expected_tokens_per_round(depth)) < 4 * error


def test_round_beta_is_its_urn() -> None:
    """A rate per round is accepted to depth k as often as E[alpha^k] says."""
    process = build(6, process="beta", a=2.0, b=1.5, per="round")
    moments = [float(beta_function(2.0 + k, 1.5) / beta_function(2.0, 1.5)) for k in range(1, 7)]
    for depth in range(7):
        assert process.expected_tokens_per_round(depth) == pytest.approx(1 + sum(moments[:depth]))
    rounds = walk(process.path(0, 1, 60_000).run.tolist(), lambda *_: 6)
    for k, moment in enumerate(moments, start=1):
        assert abs(z_of_mean([float(a >= k) for _, a in rounds], moment)) < 4


def test_decay_halves_acceptance_per_half_life() -> None:
    """Acceptance at context c is alpha * 2^-((c - from) / half life), the prompt counted in."""
    config: Config = {"process": "iid", "alpha": 0.8, "decay": {"from_tokens": 1000, "half_life_tokens": 500}}
    process = build(1, **config)
    for prompt, factor in [(0, 1.0), (999, 1.0), (1500, 0.5), (2000, 0.25)]:
        hits = [float(process.path(request, prompt, 1).run[0]) for request in range(8000)]
        assert abs(z_of_mean(hits, 0.8 * factor)) < 4


def test_decay_never_lengthens_a_run() -> None:
    """Under the same luck a longer context accepts no more, at any position."""
    for config in EXAMPLES:
        process = build(8, **config, decay={"from_tokens": 100, "half_life_tokens": 400})
        runs = [process.path(0, prompt, 300).run for prompt in (1, 200, 800, 5000)]
        assert all(np.all(longer <= shorter) for shorter, longer in pairwise(runs))


def test_depth_beyond_the_maximum_is_a_bug_and_beyond_255_a_mistake() -> None:
    """Expectations exist for 0..max_depth, processes for depths that fit a byte."""
    process = build(4, process="iid", alpha=0.5)
    assert process.expected_tokens_per_round(0) == 1.0
    with pytest.raises(SimulationError, match=r"outside 0\.\.4"):
        process.expected_tokens_per_round(5)
    with pytest.raises(InputError, match=r"outside 0\.\.255"):
        build(256, process="iid", alpha=0.5)
