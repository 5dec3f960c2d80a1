"""Passes compute what a transformer computes, whichever way its tokens are cut into passes."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch", reason="passes need torch (pip install 'leadline[calibrate]')")

from calibrate.cells import Cell  # noqa: E402
from calibrate.passes import BenchSpec, OutOfMemory, Unsupported, build_bench  # noqa: E402
from calibrate.passes import bench as bench_module  # noqa: E402
from calibrate.passes.attention import attend_sdpa  # noqa: E402
from calibrate.passes.bench import TransformerBench  # noqa: E402
from calibrate.passes.cache import KvCache, StateCache  # noqa: E402
from calibrate.passes.delta import delta_rule, states_of, windows_of  # noqa: E402
from calibrate.passes.drafters import BlockDrafter  # noqa: E402
from calibrate.passes.model import Decoder, Stack  # noqa: E402
from calibrate.passes.step import SPREAD, Part, lay_out, spread  # noqa: E402
from calibrate.shapes import Shape  # noqa: E402
from tests.calibrate.passes import shapes  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

CPU = torch.device("cpu")
TARGETS = [shapes.LLAMA, shapes.DENSE, shapes.MIXTURE, shapes.HYBRID]


def cell(name: str, sequences: int = 3, width: int = 4, context: int = 20, **more: object) -> Cell:
    return Cell.model_validate(
        {"pass": name, "sequences": sequences, "width": width, "context": context, **more}
    )


def build(spec: BenchSpec, dtype: str = "float32") -> TransformerBench:
    made = build_bench(spec, "cpu", dtype, seed=1)
    assert isinstance(made, TransformerBench)
    return made


@pytest.fixture(scope="module")
def bench(spec: BenchSpec) -> TransformerBench:
    return build(spec)


def logits_of(target: Decoder, ids: Tensor, *parts: Part, slot: int) -> Tensor:
    with torch.inference_mode():
        step = target.stack.plan(*parts, slot=slot)
        logits = torch.zeros(len(step.wanted), target.vocabulary)
        target(ids.flatten(), step, logits)
        kept: Tensor = logits.clone()
        return kept


def commit(stack: Stack, lengths: list[int], width: int) -> None:
    """Go on from the state after the last token, as an engine does when all drafts survive."""
    segment = lay_out([Part(lengths, width)], CPU, torch.float32).segments[0]
    with torch.inference_mode():
        for layer in range(stack.state.layers):
            state, checkpoints = states_of(segment, stack.state, layer)
            state.copy_(checkpoints[:, :, -1])
            window, inputs = windows_of(segment, stack.state, layer)
            window.copy_(inputs[:, -window.shape[1] :].clone())


@pytest.mark.parametrize("shape", TARGETS, ids=lambda shape: shape.name)
def test_one_pass_over_q_tokens_equals_q_passes_over_one(shape: Shape) -> None:
    target = build(BenchSpec(shape, max_context=64)).target
    lengths, ids = [5, 9, 14, 14, 21], torch.randint(98, (5, 4))
    whole = logits_of(target, ids, Part(lengths, 4), slot=32).view(5, 4, -1)
    for j in range(4):
        at = [length + j for length in lengths]
        single = logits_of(target, ids[:, j], Part(at, 1), slot=32)
        torch.testing.assert_close(single, whole[:, j], rtol=1e-4, atol=1e-5)
        commit(target.stack, at, 1)
    assert whole.std() > 1e-3, "logits that are all alike would agree by accident"


@pytest.mark.parametrize("shape", TARGETS, ids=lambda shape: shape.name)
def test_a_mixed_step_gives_each_part_what_it_gets_alone(shape: Shape) -> None:
    target = build(BenchSpec(shape, max_context=64)).target
    rows, chunk = Part([5, 9], 3), Part([11], 70, verified=False)
    ids = torch.randint(98, (76,))
    mixed = logits_of(target, ids, rows, chunk, slot=96)
    alone = logits_of(target, ids[:6], rows, slot=96)
    torch.testing.assert_close(mixed[:6], alone, rtol=1e-4, atol=1e-5)
    assert mixed.shape == (7, 98)


def test_tokens_later_in_a_pass_do_not_change_earlier_ones() -> None:
    target = build(BenchSpec(shapes.HYBRID, max_context=64)).target
    ids = torch.randint(98, (2, 4))
    changed = ids.clone()
    changed[:, 3] = (changed[:, 3] + 1) % 98
    a, b = (logits_of(target, x, Part([6, 9], 4), slot=16).view(2, 4, -1) for x in (ids, changed))
    torch.testing.assert_close(a[:, :3], b[:, :3])
    assert not torch.allclose(a[:, 3], b[:, 3])


def test_attention_over_slots_equals_the_formula() -> None:
    """softmax(q k / sqrt(d)) v over a sequence's own keys, query heads sharing KV heads in order."""
    lengths, width = [3, 8, 9, 12, 30], 2
    step = lay_out([Part(lengths, width)], CPU, torch.float32, shared=3)
    segment = step.segments[0]
    q = torch.randn(10, 6, 8)
    keys, values = torch.randn(2, step.cache_tokens, 2, 8)
    got = attend_sdpa(q, keys, values, segment).view(5, width, 6, 8)
    for row, length in enumerate(lengths):
        for j in range(width):
            own = slice(row * segment.slot, row * segment.slot + length + j + 1)
            for head in range(6):
                scores = keys[own, head // 3] @ q[row * width + j, head] / math.sqrt(8)
                expected = scores.softmax(0) @ values[own, head // 3]
                torch.testing.assert_close(got[row, j, head], expected, rtol=1e-4, atol=1e-5)


def test_the_delta_rule_in_one_go_equals_the_recurrence() -> None:
    q, k = torch.nn.functional.normalize(torch.randn(2, 2, 3, 5, 8), dim=-1)
    v, state = torch.randn(2, 3, 5, 6), torch.randn(2, 3, 8, 6)
    decay, beta = -torch.rand(2, 3, 5), torch.rand(2, 3, 5)
    checkpoints = torch.empty(2, 3, 5, 8, 6)
    out = delta_rule(q, k, v, decay, beta, state, checkpoints)
    for t in range(5):
        state = state * decay[..., t, None, None].exp()
        read = torch.einsum("bhk,bhkv->bhv", k[:, :, t], state)
        write = beta[..., t, None] * (v[:, :, t] - read)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, :, t], write)
        torch.testing.assert_close(checkpoints[:, :, t], state, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(out[:, :, t], torch.einsum("bhk,bhkv->bhv", q[:, :, t], state))


def test_a_block_is_drafted_in_one_call_and_sees_itself_whole(bench: TransformerBench) -> None:
    """The last token of a block changes the draft at its second place: the mask is not causal."""
    drafter = bench.drafters["block"]
    passes = bench.prepare_round(cell("round", drafter="block"))
    assert [name for name, _ in passes] == ["draft_block", "verify", "accept"]
    assert isinstance(drafter, BlockDrafter)
    with torch.inference_mode():
        fresh = drafter.stack.plan(Part([7], 4), slot=16)
        step = drafter.stack.plan(Part([11], 4, block=True), slot=16)
        features, seen = torch.randn(4, 96), []
        for last in (1, 2):
            logits = torch.zeros(3, 98)
            drafter.block(torch.tensor([5, 6, 7, last]), features, fresh, step, logits)
            seen.append(logits.clone())
    assert not torch.allclose(seen[0][0], seen[1][0])


@pytest.mark.parametrize("shape", TARGETS, ids=lambda shape: shape.name)
def test_a_target_has_the_parameters_of_its_shape(shape: Shape) -> None:
    assert build(BenchSpec(shape)).target.parameters == shape.parameters


@pytest.mark.parametrize("name", ["model", "eagle", "mtp", "block"])
def test_a_drafter_has_the_parameters_of_its_shape(
    name: str, bench: TransformerBench, spec: BenchSpec
) -> None:
    assert bench.drafters[name].parameters == spec.drafters[name][1].parameters


@pytest.mark.parametrize("sampling", ["greedy", "T=1"])
@pytest.mark.parametrize("drafter", ["model", "eagle", "mtp"])
def test_a_round_drafts_one_by_one_then_verifies_then_accepts(
    spec: BenchSpec, sampling: str, drafter: str
) -> None:
    one = BenchSpec(spec.target, {drafter: spec.drafters[drafter]}, 8, 64, sampling=sampling)  # type: ignore[arg-type]
    names = [name for name, _ in build(one).prepare_round(cell("round", drafter=drafter))]
    assert names == ["draft_first", "draft_next", "draft_next", "verify", "accept"]


@pytest.mark.parametrize(
    "asked",
    [
        cell("verify"),
        cell("verify", width=1),
        cell("accept"),
        cell("accept", width=1),
        cell("prefill", 0, 0, 0, chunk=9, prefix=5),
        cell("mixed", chunk=9, prefix=5),
        cell("draft_first", drafter="model"),
        cell("draft_next", width=1, drafter="eagle"),
        cell("draft_next", width=1, drafter="mtp"),
        cell("draft_block", drafter="block"),
        cell("round", drafter="eagle"),
        cell("round", width=1, drafter="eagle"),
        cell("round", drafter="ngram"),
    ],
    ids=lambda asked: f"{asked.pass_}-{asked.width}-{asked.drafter}",
)
def test_every_pass_runs_again_and_again(bench: TransformerBench, asked: Cell) -> None:
    for run in (bench.prepare(asked), bench.prepare(asked)):
        run()
        run()


def test_preparing_twice_gives_the_same_logits_for_the_same_seed(spec: BenchSpec) -> None:
    results = []
    for _ in range(2):
        made = build(spec)
        at = made._open(cell("verify"))
        with torch.inference_mode():
            at.verify()()
        results.append(at.desk.logits.clone())
    torch.testing.assert_close(results[0], results[1])
    assert results[0].isfinite().all()
    assert results[0].std() > 1e-3


def test_a_repeated_pass_repeats_its_result_because_no_length_advances(bench: TransformerBench) -> None:
    at = bench._open(cell("verify"))
    with torch.inference_mode():
        run = at.verify()
        run()
        first = at.desk.logits.clone()
        at.desk.accept()
        run()
    torch.testing.assert_close(at.desk.logits, first)
    assert at.desk.lengths.tolist() == at.lengths


def test_weights_and_caches_are_random_not_zero(spec: BenchSpec) -> None:
    bench = build(spec)
    bench.target.stack.plan(Part([40] * 8, 4))
    stack = bench.target.stack
    for pool in (*stack.kv.keys, *stack.kv.values):
        assert (pool != 0).float().mean() > 0.99
        assert float(pool.std()) == pytest.approx(0.1, rel=0.05)
    assert float(bench.target.table.std()) == pytest.approx(0.02, rel=0.1)


def test_lengths_differ_around_their_mean() -> None:
    lengths = spread(1000, 9)
    assert sum(lengths) / 9 == 1000
    assert len(set(lengths)) == 9
    assert (min(lengths), max(lengths)) == (1000 * (1 - SPREAD), 1000 * (1 + SPREAD))
    assert spread(7, 1) == [7]


def test_a_cell_beyond_memory_is_skipped_and_the_bench_lives_on(
    bench: TransformerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("calibrate.passes.cache._available_bytes", lambda: 1024.0)
        with pytest.raises(OutOfMemory, match="8 x 4 tokens at context 90") as caught:
            bench.prepare(cell("verify", sequences=8, context=90))
    assert caught.value.cell.context == 90
    bench.prepare(cell("verify"))()


@pytest.mark.parametrize(("pool", "fill"), [(KvCache, "_filled"), (StateCache, "_state")])
@pytest.mark.parametrize("at", range(1, 8))
def test_a_pool_that_does_not_fit_midway_is_made_anew_by_the_next_smaller_cell(
    pool: type, fill: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ``at``-th tensor of a larger pool does not fit, of the keys and values or of the states."""
    stack = build(BenchSpec(shapes.HYBRID, max_sequences=8, max_context=64)).target.stack
    stack.plan(Part([20], 4))
    real, made = getattr(pool, fill), 0

    def filled(self: object, *arguments: object) -> Tensor:
        nonlocal made
        made += 1
        if made == at:
            raise RuntimeError("CUDA out of memory")
        return real(self, *arguments)  # type: ignore[no-any-return]

    with monkeypatch.context() as patched, suppress(RuntimeError):
        patched.setattr(pool, fill, filled)
        stack.plan(Part([20] * 8, 4))
    for rows in (2, 8):
        stack.plan(Part([20] * rows, 4))
        pools = (stack.kv.keys, stack.kv.values), (stack.state.states, stack.state.inputs)
        assert [[len(each) for each in both] for both in pools] == [[1, 1], [3, 3]]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_what_fits_does_not_depend_on_the_cells_before(
    order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three cells fits alone, the joint maximum of what they ask for does not."""
    bench = build(BenchSpec(shapes.HYBRID, max_sequences=8, max_context=64))
    asked = [cell("verify", 8, 1), cell("verify", 1, 48), cell("prefill", 0, 0, 0, chunk=64)]
    real = StateCache.reserve

    def reserve(self: StateCache, rows: int, kept: int, tokens: int) -> None:
        room = [max(a, b) for a, b in zip(self._room, (rows, kept, tokens), strict=True)]
        if room[0] * room[2] > 100:
            raise MemoryError("no room")
        real(self, rows, kept, tokens)

    monkeypatch.setattr(StateCache, "reserve", reserve)
    for index in order:
        bench.prepare(asked[index])()


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (cell("draft_first", drafter="nobody"), "'nobody' is not one of this bench's: model, eagle"),
        (cell("draft_first", drafter="block"), "draft_first: is not a pass of drafter 'block'"),
        (cell("draft_next", drafter="eagle"), "takes one token per sequence, not 4"),
        (cell("collective"), "start with torchrun"),
        (cell("verify", sequences=9), "9 sequences exceed this bench's 8"),
        (cell("verify", context=10**6), "longer than the"),
        (cell("verify", sequences=0), "at least one sequence"),
        (cell("prefill", 0, 0, 0), "at least one token"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.pass_,
)
def test_what_cannot_run_is_refused_with_the_reason(
    bench: TransformerBench, asked: Cell, reason: str
) -> None:
    with pytest.raises(Unsupported, match=reason):
        bench.prepare(asked)


def test_distinct_layers_must_exceed_the_cache_and_are_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    few = BenchSpec(shapes.DENSE, layers=2, max_context=64)
    with pytest.raises(Unsupported, match=r"at least \d+ are needed"):
        build(few)
    monkeypatch.setattr(bench_module, "cache_bytes", lambda device: 1024)
    made = build(few)
    assert made.flags == ("layers",)
    assert len(made.target.stack.order) == shapes.DENSE.layers, "all layers run, so nothing is scaled"
    made.prepare(cell("verify"))()
