"""Each lint fires where it should, at its place, and not on a sensible scenario."""

from __future__ import annotations

import math

import pytest

from sim.scenario.estimate import Load, running
from sim.scenario.lint import lint
from tests.scenario.support import read

SENSIBLE = """\
profile: llama-3.1-8b-h100
drafter: eagle3
acceptance: {process: iid, alpha: 0.7}
workload:
  arrival: {process: closed, max_concurrency: 8}
  lengths: {input: 512, output: 180}
  num_requests: 500
engine: {max_num_seqs: 32}
policies:
  - off
  - {policy: static, k: 2}
"""


def ids(text: str) -> list[str]:
    """Ids of the lints of a scenario, in order of place."""
    return [each.id for each in lint(read(text))]


def swapped(*pairs: tuple[str, str]) -> str:
    """The sensible scenario with parts replaced."""
    text = SENSIBLE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_sensible_scenario_has_none() -> None:
    assert ids(SENSIBLE) == []


def test_u12_a_budget_that_caps_the_batch() -> None:
    """U12: 32 sequences, k = 2 and a budget of 32 tokens leave 32 // 3 = 10 decodes a step."""
    text = swapped(
        ("max_concurrency: 8", "max_concurrency: 40"),
        ("{max_num_seqs: 32}", "{max_num_seqs: 32, max_num_batched_tokens: 32}"),
    )
    [warning] = lint(read(text))
    assert warning.id == "budget-caps-batch"
    assert (warning.problem.line, warning.problem.column) == (8, 52)
    assert "10 decodes fit" in warning.problem.message
    assert "raise max_num_batched_tokens to 96" in warning.problem.message


@pytest.mark.parametrize("tokens", [95, 96])
def test_the_budget_is_warned_about_up_to_the_token_that_is_needed(tokens: int) -> None:
    text = swapped(
        ("max_concurrency: 8", "max_concurrency: 40"),
        ("{max_num_seqs: 32}", f"{{max_num_seqs: 32, max_num_batched_tokens: {tokens}}}"),
    )
    assert ("budget-caps-batch" in ids(text)) == (tokens < 96)


def test_the_budget_counts_the_sequences_that_an_engine_takes_beside_a_drafter() -> None:
    """SGLang takes 48 then, not 2048: 48 * 8 tokens fit where 2048 * 8 do not."""
    text = swapped(
        ("max_concurrency: 8", "max_concurrency: 4000"),
        ("{max_num_seqs: 32}", "{preset: sglang}"),
        ("k: 2", "k: 7"),
    )
    assert "budget-caps-batch" not in ids(text)


@pytest.mark.parametrize(
    ("limit", "needed"),
    [
        ("max_prefill_steps: 3", "prefill: first"),
        ("prefix_unit: 64", "prefix_caching: true"),
        ("swap_bandwidth: 20GB/s", "preemption: swap"),
        ("answers_end: limit", "async_scheduling: true"),
        ("frontend_servers: 2", "frontend_time: 1ms"),
    ],
)
def test_a_limit_of_a_mechanism_that_is_off_changes_nothing(limit: str, needed: str) -> None:
    alone, both = (
        swapped(("{max_num_seqs: 32}", f"{{max_num_seqs: 32, {more}}}"))
        for more in (limit, f"{limit}, {needed}")
    )
    [warning] = lint(read(alone))
    assert warning.id == "engine-setting-unused"
    assert needed.split(":", maxsplit=1)[0] in warning.problem.message
    assert ids(both) == []


def test_a_limit_that_one_cell_of_a_sweep_needs_is_used() -> None:
    text = swapped(("{max_num_seqs: 32}", "{max_num_seqs: 32, max_prefill_steps: 3}"))
    sweep = "\nsweep: {engine.prefill: [mixed, first]}\n"
    assert ids(text) == ["engine-setting-unused"]
    assert ids(text + sweep) == []


def test_u03_a_threshold_inside_the_operating_range() -> None:
    """U03: depth changes at 5 requests and 8 clients send: it flips."""
    text = swapped(("{policy: static, k: 2}", "{policy: per_batch_size, table: [[1, 4, 2], [5, 512, 0]]}"))
    [warning] = lint(read(text))
    assert warning.id == "threshold-in-range"
    assert warning.problem.line == 11
    assert "changes at 5 requests, and about 8 run" in warning.problem.message


def test_a_threshold_far_below_the_load_is_not_warned_about() -> None:
    table = "{policy: per_batch_size, table: [[1, 4, 2], [5, 512, 0]]}"
    assert ids(swapped(("{policy: static, k: 2}", table), ("concurrency: 8", "concurrency: 32"))) == []


def test_a_threshold_that_is_never_reached() -> None:
    policy = "{policy: disable_by_batch_size, k: 2, threshold: 9}"
    assert ids(swapped(("{policy: static, k: 2}", policy))) == ["threshold-unreachable"]


def test_a_threshold_is_judged_at_every_load_of_a_sweep() -> None:
    text = swapped(
        ("{process: closed, max_concurrency: 8}", "{process: closed, max_concurrency: 1}"),
        ("{policy: static, k: 2}", "{policy: disable_by_batch_size, k: 2, threshold: 24}"),
    )
    [warning] = [
        each
        for each in lint(read(text + "sweep: {workload.arrival.max_concurrency: [32, 200]}\n"))
        if each.id == "threshold-in-range"
    ]
    assert "at c=32" in warning.problem.message


def test_requests_longer_than_the_model_allows() -> None:
    assert ids(swapped(("{max_num_seqs: 32}", "{max_num_seqs: 32, max_model_len: 691}"))) == [
        "request-too-long"
    ]
    assert ids(swapped(("{max_num_seqs: 32}", "{max_num_seqs: 32, max_model_len: 692}"))) == []


def test_memory_that_holds_no_request() -> None:
    """692 tokens take 44 blocks of 16."""
    assert ids(swapped(("{max_num_seqs: 32}", "{max_num_seqs: 32, kv_blocks: 43}"))) == ["kv-too-small"]
    assert ids(swapped(("{max_num_seqs: 32}", "{max_num_seqs: 32, kv_blocks: 44}"))) == []


def test_steps_beyond_every_captured_graph() -> None:
    """8 sequences of 1 + 2 tokens make steps of 24."""
    assert ids(swapped(("{max_num_seqs: 32}", "{max_num_seqs: 32, capture_sizes: [1, 16]}"))) == [
        "graph-too-small"
    ]
    assert ids(swapped(("{max_num_seqs: 32}", "{max_num_seqs: 32, capture_sizes: [1, 24]}"))) == []


def test_too_little_to_measure() -> None:
    assert ids(SENSIBLE + "run: {seeds: 1, warmup: {requests: 401}}\n") == ["few-requests", "one-seed"]
    assert ids(SENSIBLE + "run: {warmup: {requests: 400}}\n") == []


def test_a_lint_reads_place_key_message_and_id() -> None:
    [text] = [str(each) for each in lint(read(SENSIBLE + "run: {seeds: 1}\n"))]
    assert text.startswith("s.yaml:12:14: run.seeds: one seed gives no interval")
    assert text.endswith("[one-seed]")


class _Cost:
    """Steps of ``fixed`` + ``each`` x sequences nanoseconds; prefill is free."""

    def __init__(self, fixed: float, each: float) -> None:
        self.fixed, self.each = fixed, each
        self.verify = self
        self.tables = {"tokens": [0.0] * 100_000}

    def round_ns(self, sequences: int, depth: int, context: float) -> float:
        return self.fixed + self.each * sequences

    def ns(self, tokens: int, sequences: int, logits: int) -> float:
        return 0.0


@pytest.mark.parametrize(("rate", "tau"), [(1.0, 1.0), (5.0, 1.0), (9.0, 1.0), (9.0, 2.5)])
def test_the_estimate_solves_littles_law(rate: float, tau: float) -> None:
    """N = a (C1 + C2 N) with a = rate x output / tau, so N = a C1 / (1 - a C2)."""
    fixed, each = 10e6, 0.5e6
    load = Load(None, rate, 0.0, 100.0)  # type: ignore[arg-type]
    work = rate * 100 / tau * 1e-9
    exact = work * fixed / (1 - work * each)
    found = running(load, _Cost(fixed, each), 0, tau, 10_000)  # type: ignore[arg-type]
    assert exact <= found <= math.ceil(exact) + 2


def test_the_estimate_is_the_cap_beyond_saturation() -> None:
    load = Load(None, 30.0, 0.0, 100.0)  # type: ignore[arg-type]
    assert running(load, _Cost(10e6, 0.5e6), 0, 1.0, 64) == 64  # type: ignore[arg-type]


def test_a_threshold_that_one_cell_reaches_is_reachable() -> None:
    policy = "{policy: disable_by_batch_size, k: 2, threshold: 30}"
    text = swapped(("{policy: static, k: 2}", policy), ("max_num_seqs: 32", "max_num_seqs: 64"))
    assert "threshold-unreachable" in ids(text)
    assert ids(text + "sweep: {workload.arrival.max_concurrency: [8, 64]}\n") == []
