"""What the shipped grids hold, as the issue asks for it."""

from __future__ import annotations

from collections import Counter

import pytest

from calibrate.cells import Cell
from calibrate.grid import CPU, GPU, Plan, between, build_grid, pass_cell, quick, small, splits

EDGES = [(16, 17), (32, 33), (64, 65), (128, 129), (256, 257)]
PLANS = [GPU, CPU, quick(GPU), quick(CPU), small(CPU, 16, 64)]


def _decode(plan: Plan, drafters: tuple[str, ...] = ("draft",)) -> list[Cell]:
    cells = build_grid(plan, drafters).cells
    return [c for c in cells if c.pass_ in ("round", "verify") and c.context == plan.context]


def test_the_gpu_grid_has_about_110_cells() -> None:
    assert 100 <= len(build_grid(GPU, ["draft"]).cells) <= 120
    assert len(build_grid(quick(GPU), ["draft"]).cells) <= 45


def test_the_cpu_grid_is_small_in_tokens_and_contexts() -> None:
    cells = build_grid(CPU, ["draft"]).cells
    assert max(c.tokens for c in cells) <= 128
    assert max(c.context for c in cells) <= 1024


@pytest.mark.parametrize("edge", EDGES)
def test_edge_pairs_are_measured_on_both_sides(edge: tuple[int, int]) -> None:
    assert set(edge) <= {c.tokens for c in _decode(GPU)}
    if edge[1] <= 128:
        assert set(edge) <= {c.tokens for c in _decode(CPU)}


@pytest.mark.parametrize("plan", [GPU, CPU])
def test_a_token_count_is_split_in_two_or_three_ways(plan: Plan) -> None:
    ways = Counter(c.tokens for c in _decode(plan) if c.execution != "eager")
    assert all(2 <= n <= 3 for tokens, n in ways.items() if tokens > 1)
    assert sum(n == 3 for n in ways.values()) > len(ways) / 2


@pytest.mark.parametrize("plan", [GPU, CPU])
def test_pure_depth_and_pure_breadth_run_from_one_token_to_the_largest_step(plan: Plan) -> None:
    cells = _decode(plan)
    assert {c.width for c in cells if c.sequences == 1} >= set(plan.tokens)
    assert {c.sequences for c in cells if c.width == 1} >= set(plan.tokens)


def test_contexts_from_256_to_16k_are_crossed_with_batch_sizes_and_widths() -> None:
    by_context = {
        c: [(x.sequences, x.width) for x in build_grid(GPU, ["d"]).cells if x.context == c]
        for c in (256, 4096, 16384)
    }
    assert all(len(rows) >= 6 for rows in by_context.values())
    assert all(len({b for b, _ in rows}) >= 3 or c == 16384 for c, rows in by_context.items())
    assert all({w for _, w in rows} >= {1, 4} for rows in by_context.values())


def test_prefill_crosses_chunks_with_prefixes_and_mixed_steps_decode_beside_a_chunk() -> None:
    cells = build_grid(GPU, ["d"]).cells
    prefill = {(c.chunk, c.prefix) for c in cells if c.pass_ == "prefill"}
    assert prefill == {(c, p) for c in (128, 512, 2048, 8192) for p in (0, 4096)}
    assert all(c.sequences and c.chunk for c in cells if c.pass_ == "mixed")


def test_both_regimes_are_measured_on_a_gpu_and_neither_on_a_cpu() -> None:
    assert {c.execution for c in build_grid(GPU, ["d"]).cells} == {"cuda_graph", "eager"}
    assert {c.execution for c in build_grid(CPU, ["d"]).cells} == {"cpu"}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("drafters", [(), ("a",), ("a", "b", "c")])
def test_cells_are_distinct_and_anchors_are_among_them(plan: Plan, drafters: tuple[str, ...]) -> None:
    grid = build_grid(plan, drafters)
    assert len(set(grid.cells)) == len(grid.cells)
    assert set(grid.anchors) <= set(grid.cells)
    assert 2 <= len(grid.anchors) <= 3
    assert all(c.pass_ == "round" for c in grid.anchors)


def test_further_drafters_add_rounds_of_their_own_and_no_passes_of_the_target() -> None:
    one, two = build_grid(GPU, ["a"]), build_grid(GPU, ["a", "b"])
    added = set(two.cells) - set(one.cells)
    assert {c.drafter for c in added} == {"b"}
    assert all(c.pass_ == "round" and c.width > 1 for c in added)
    assert 5 <= len(added) <= 15


def test_without_a_drafter_deep_cells_are_verify_passes() -> None:
    cells = build_grid(GPU, []).cells
    assert {c.drafter for c in cells} == {""}
    assert all(c.pass_ != "round" or c.width == 1 for c in cells)


@pytest.mark.parametrize("tokens", [1, 2, 17, 64, 257, 384])
def test_every_split_makes_up_its_tokens(tokens: int) -> None:
    assert all(b * w == tokens for b, w in splits(tokens))


def test_passes_of_a_round_cover_what_the_engine_gives_them() -> None:
    """The first draft pass covers batch x (k + 1), later ones batch; verify and accept are the target's."""
    cell = Cell.model_validate({"pass": "round", "sequences": 8, "width": 4, "context": 100, "drafter": "d"})
    names = ("draft_first", "draft_next", "draft_block", "verify", "accept", "host")
    found = {name: pass_cell(cell, name) for name in names}  # type: ignore[arg-type]
    assert {name: c.tokens for name, c in found.items()} == dict(
        zip(names, (32, 8, 32, 32, 32, 32), strict=True)
    )
    assert {name for name, c in found.items() if c.drafter == ""} == {"verify", "accept"}
    assert {c.context for c in found.values()} == {100}


def test_refinement_goes_halfway_to_the_neighbours_of_the_same_kind() -> None:
    def cell(b: int, w: int = 4) -> Cell:
        return Cell.model_validate({"pass": "round", "sequences": b, "width": w, "context": 100})

    cells = [cell(b) for b in (8, 16, 32)] + [cell(12, 2)]
    assert between(cells[1], cells) == (cell(12), cell(24))
    assert between(cells[0], cells) == (cell(12),)
    assert between(cell(9), [cell(8), cell(9), cell(10)]) == ()
