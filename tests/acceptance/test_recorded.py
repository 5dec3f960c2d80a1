"""Recorded chances replay rejection sampling exactly, at every depth and under every policy."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.acceptance.build import build_process
from sim.acceptance.trace import read_trace
from sim.errors import InputError, TraceError
from sim.policies.base import Tree
from tests.acceptance.helpers import build, configure, walk, z_of_mean

Row = dict[str, Any]

CHANCE = st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0])
LISTS = st.lists(CHANCE, min_size=1, max_size=12)
BLOCKS = st.integers(1, 3).flatmap(
    lambda depth: st.lists(st.lists(CHANCE, min_size=depth, max_size=depth), min_size=1, max_size=8)
)
in_a_folder = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write(folder: Path, *rows: Row) -> str:
    """A compressed trace."""
    path = folder / "trace.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return str(path)


def replay(folder: Path, *rows: Row, depth: int = 4, seed: int = 1, **config: object) -> Any:
    """A process that takes the rows in order."""
    path = write(folder, *rows)
    return build(depth, seed=seed, process="trace", path=path, assign="in_order", **config)


# -- laws ------------------------------------------------------------------------------------------


@in_a_folder
@given(st.floats(0, 1), st.integers(1, 9), st.integers(1, 60), st.integers(1, 30), st.booleans())
def test_a_constant_chance_is_iid_draw_by_draw(
    tmp_path: Path, alpha: float, depth: int, tokens: int, recorded: int, fading: bool
) -> None:
    """The same seed gives the same runs and claims, with and without decay."""
    decay = {"from_tokens": 5, "half_life_tokens": 20.0} if fading else None
    common: dict[str, Any] = {"decay": decay, "confidence": {"auc": 0.8}}
    ours = replay(tmp_path, {"chance": [alpha] * recorded}, depth=depth, **common).path(3, 2, tokens)
    theirs = build(depth, process="iid", alpha=alpha, **common).path(3, 2, tokens)
    assert np.array_equal(ours.run, theirs.run)
    if 0 < alpha < 1:
        assert ours.confidence() == pytest.approx(theirs.confidence(), abs=1e-6)


@in_a_folder
@given(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.integers(1, 6), st.integers(1, 40))
def test_a_tree_reaches_as_far_over_constant_chances_as_over_iid(
    tmp_path: Path, alpha: float, depth: int, tokens: int
) -> None:
    """Rates whose powers are exact, so that equally likely nodes keep their order."""
    tree = Tree(width=2, depth=depth, nodes=2 * depth)
    ours = replay(tmp_path, {"chance": [alpha] * 3}, depth=depth, sibling=0.3).path(3, 2, tokens)
    theirs = build(depth, process="iid", alpha=alpha, sibling=0.3).path(3, 2, tokens)
    assert np.array_equal(ours.reach(tree), theirs.reach(tree))


@in_a_folder
@given(st.lists(st.booleans(), min_size=1, max_size=20), st.integers(1, 6), st.integers(1, 50))
def test_bits_replay_exactly(tmp_path: Path, bits: list[bool], depth: int, tokens: int) -> None:
    """Greedy, luck plays no part: a run is the ones ahead, in a row that starts again."""
    run = replay(tmp_path, {"chance": [int(b) for b in bits]}, depth=depth).path(0, 1, tokens).run
    endless = bits * (tokens + depth)
    for p in range(tokens):
        ahead = [*endless[p : p + depth], False]
        assert run[p] == ahead.index(False)


@in_a_folder
@given(LISTS, st.integers(1, 8), st.integers(1, 8), st.integers(1, 40), st.integers(1, 40))
def test_depth_caps_and_a_longer_output_goes_on(
    tmp_path: Path, chance: list[float], one: int, other: int, short: int, more: int
) -> None:
    """Runs at two depths differ by the cap alone; those of a shorter output are a prefix."""
    shallow, deep = sorted((one, other))
    full = replay(tmp_path, {"chance": chance}, depth=deep).path(0, 1, short + more).run
    capped = replay(tmp_path, {"chance": chance}, depth=shallow).path(0, 1, short).run
    assert np.array_equal(capped, np.minimum(full, shallow)[:short])


@in_a_folder
@given(st.one_of(LISTS, BLOCKS), LISTS, st.integers(0, 3))
def test_expected_tokens_are_exact(tmp_path: Path, first: list[Any], second: list[float], depth: int) -> None:
    """As by summing over every way a walk may go, row by row; rows may be of both kinds."""
    depth = min(depth, len(first[0])) if isinstance(first[0], list) else depth
    runs = [3, 0, 1]
    process = replay(tmp_path, {"chance": first}, {"chance": second}, {"accepted": runs}, depth=max(depth, 1))
    certain = [[float(j < run) for j in range(depth)] for run in runs]
    totals = np.sum([all_ways(row, depth) for row in (first, second, certain)], axis=0)
    assert process.expected_tokens_per_round(depth) == pytest.approx(totals[0] / totals[1])


def all_ways(chance: list[Any], depth: int) -> tuple[float, float]:
    """Expected tokens and rounds of one row, by recursion over rounds and drafts."""
    n = len(chance)

    def of(start: int, draft: int) -> float:
        value = chance[start][draft] if isinstance(chance[0], list) else chance[(start + draft) % n]
        return float(value)

    @cache
    def beyond(start: int) -> tuple[float, float]:
        if start >= n:
            return float(start), 0.0
        tokens, rounds, reach = 0.0, 1.0, 1.0
        for accepted in range(depth + 1):
            go_on = of(start, accepted) if accepted < depth else 0.0
            then = beyond(start + accepted + 1)
            tokens += reach * (1 - go_on) * then[0]
            rounds += reach * (1 - go_on) * then[1]
            reach *= go_on
        return tokens, rounds

    return beyond(0)


def test_an_adaptive_walk_meets_each_chance(tmp_path: Path) -> None:
    """Whatever a policy does, a tested draft is accepted with its position's chance: a martingale."""
    chance = np.random.default_rng(0).random(60).round(3)
    process = replay(tmp_path, {"chance": chance.tolist()}, depth=5)
    surprises = []
    for request in range(2000):
        position = surprise = 0.0
        for drafted, accepted in walk(
            process.path(request, 1, 60).run, lambda rounds, a: 1 + (a + rounds) % 5
        ):
            tested = np.arange(position, position + min(accepted + 1, drafted)).astype(int) % 60
            surprise += accepted - chance[tested].sum()
            position += accepted + 1
        surprises.append(surprise)
    assert abs(z_of_mean(surprises, 0.0)) < 4


def test_the_chance_given_the_target_token_replays_rejection_sampling() -> None:
    """Position by position over all tokens: min(1, q/p) averages to the overlap of p and q, and is
    what Bayes' rule gives for an accepted draft when the round emitted x."""
    p, q = np.random.default_rng(1).dirichlet(np.ones(7), size=2)
    kept = q * np.minimum(1, p / q)  # drafted x and accepted it
    rest = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
    emitted = kept + (1 - kept.sum()) * rest
    assert emitted == pytest.approx(p)
    assert kept / emitted == pytest.approx(np.minimum(1, q / p))


# -- block drafters, confidence --------------------------------------------------------------------


def test_a_block_drafters_chance_depends_on_the_start(tmp_path: Path) -> None:
    """Its second draft is certain from one start and hopeless from the next, at the same position."""
    process = replay(tmp_path, {"chance": [[1, 1], [1, 0], [0, 1]]}, depth=2)
    assert process.path(0, 1, 6).run.tolist() == [2, 1, 0, 2, 1, 0]
    assert replay(tmp_path, {"chance": [[1, 1], [1, 0]]}, depth=1).path(0, 1, 2).run.tolist() == [1, 1]


def test_a_block_drafter_says_nothing_beyond_its_block(tmp_path: Path) -> None:
    """A draft model's chances answer for any depth, a block's for its own alone."""
    assert replay(tmp_path, {"chance": [1.0, 0.5]}, depth=20).max_depth == 20
    with pytest.raises(InputError, match="recorded at depth 2"):
        replay(tmp_path, {"chance": [[1, 1], [1, 0]]}, depth=3)


def test_confidence_by_position_looks_ahead(tmp_path: Path) -> None:
    """``[p, j]`` is what the drafter claims at p + j; beside runs and chances alike."""
    wanted = [[0.5, 0.25], [0.25, 0.75], [0.75, 0.5], [0.5, 0.25]]
    for row in ({"chance": [1, 1, 0]}, {"accepted": [2, 1, 0]}):
        claims = (
            replay(tmp_path, {**row, "confidence": [0.5, 0.25, 0.75]}, depth=2).path(0, 1, 4).confidence()
        )
        assert claims.tolist() == wanted
        assert claims.dtype == np.float32


def test_confidence_by_start_and_draft_is_kept(tmp_path: Path) -> None:
    """A block drafter's claims come back as they were recorded; deeper ones are 0."""
    row = {"chance": [0.5, 0.5], "confidence": [[0.5, 0.25], [0.75, 0.125]]}
    claims = replay(tmp_path, row, depth=3).path(0, 1, 3).confidence()
    assert claims.tolist() == [[0.5, 0.25, 0], [0.75, 0.125, 0], [0.5, 0.25, 0]]


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"chance": []}', "chance must be one or more numbers or one or more lists"),
        ('{"chance": [[], []]}', "chance must be one or more numbers"),
        ('{"chance": 0.5}', "chance must be one or more numbers"),
        ('{"chance": [[0.5], [0.5, 0.5]]}', "lists of equal length"),
        ('{"chance": [1.25]}', "chance must hold probabilities from 0 to 1"),
        ('{"chance": [NaN]}', "chance must hold probabilities"),
        ('{"chance": [0.5], "accepted": [1]}', "both 'accepted' and 'chance'"),
        ('{"chance": [0.5, 0.5], "confidence": [0.5]}', "confidence must be 2 numbers or 2 lists"),
        ('{"chance": [0.5], "confidence": [-1]}', "confidence must hold probabilities"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    """Also in a compressed file."""
    path = tmp_path / "bad.jsonl.gz"
    path.write_bytes(gzip.compress(f'{{"chance": [1]}}\n{line}\n'.encode()))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.line == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"{}" + data, lambda data: b""])
def test_a_damaged_archive_is_an_input_error(tmp_path: Path, damage: Any) -> None:
    """Cut short, not an archive, empty."""
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(damage(gzip.compress(b'{"chance": [1]}\n')))
    with pytest.raises(InputError, match=r"x\.jsonl\.gz: (cannot read|the acceptance trace has no rows)"):
        build_process(configure(process="trace", path="x.jsonl.gz"), 0, 4, lambda name: tmp_path / name)
