"""Kernels that stand in for one another agree, and a device without one is told so."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="passes need torch (pip install 'leadline[calibrate]')")

from calibrate.cells import Cell  # noqa: E402
from calibrate.passes import BenchSpec, Unsupported, build_bench, experts, linear, parallel  # noqa: E402
from calibrate.passes import attention as attention_module  # noqa: E402
from calibrate.passes.linear import Fp8, Packed, Plain, choose_linear  # noqa: E402
from calibrate.passes.weights import Weights  # noqa: E402
from calibrate.profile import DrafterKind  # noqa: E402
from calibrate.shapes import Linear, Shape, Sliding  # noqa: E402
from tests.calibrate.passes import shapes  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.parametrize("tokens", [1, 2, 3, 17])
def test_packed_weights_multiply_as_plain_ones(tokens: int) -> None:
    weight, x = torch.randn(48, 32), torch.randn(tokens, 32)
    out = torch.zeros(tokens, 48)
    Packed(weight)(x, out)
    torch.testing.assert_close(out, torch.nn.functional.linear(x, weight))
    torch.testing.assert_close(Plain(weight)(x, torch.zeros(tokens, 48)), out)


def test_a_cpu_without_packed_weights_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(weight: object) -> None:
        raise AttributeError("no such operator")

    monkeypatch.setattr(linear, "Packed", missing)
    assert choose_linear(CPU, torch.float32, fp8=False) == ("plain", Plain)
    assert build_bench(BenchSpec(shapes.DENSE)).about["linear"] == "plain"


def test_8_bit_weights_come_near_or_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = torch.randn(32, 64).bfloat16(), torch.randn(5, 64).bfloat16()
    got, exact = Fp8(weight)(x).float(), torch.nn.functional.linear(x.float(), weight.float())
    assert float((got - exact).norm() / exact.norm()) < 0.06, "two roundings to 3 bits of mantissa"

    def no_kernel(*_: object, **__: object) -> None:
        raise RuntimeError("only on newer devices\nlong trace")

    monkeypatch.setattr(torch, "_scaled_mm", no_kernel)
    with pytest.raises(
        Unsupported, match=r"fp8: torch\._scaled_mm does not run on this cpu: only on newer dev"
    ):
        build_bench(BenchSpec(shapes.DENSE), dtype="fp8")


def test_a_bench_of_16_bit_weights_keeps_16_bit_caches() -> None:
    made = build_bench(BenchSpec(shapes.DENSE), dtype="bf16")
    assert made.about["dtype"] == "bfloat16"
    assert made.about["linear"] == "plain"


def test_a_bench_of_8_bit_weights_runs() -> None:
    try:
        made = build_bench(BenchSpec(shapes.DENSE, max_context=64), dtype="fp8")
    except Unsupported as refused:
        pytest.skip(f"this torch has no such kernel: {refused}")
    made.prepare(Cell.model_validate({"pass": "verify", "sequences": 2, "width": 3, "context": 9}))()
    assert made.about["linear"] == "fp8_scaled_mm"


def test_grouped_experts_equal_looped_ones() -> None:
    moe = shapes.MIXTURE.moe
    assert moe is not None
    looped = experts.Looped(moe, Weights(CPU, torch.float32, 5, Plain))
    grouped = experts.Grouped(moe, Weights(CPU, torch.float32, 6, Plain))
    for i, each in enumerate(looped.each):
        assert isinstance(each.gate_up, Plain)
        assert isinstance(each.down, Plain)
        grouped.gate_up[i], grouped.down[i] = each.gate_up.weight, each.down.weight
    counts, x = torch.tensor([2, 0, 5, 1, 0, 3]), torch.randn(11, 32)
    torch.testing.assert_close(grouped(x, counts), looped(x, counts))


def test_a_torch_without_grouped_products_is_refused_for_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.nn.functional, "grouped_mm", raising=False)
    monkeypatch.delattr(torch, "_grouped_mm", raising=False)
    with pytest.raises(Unsupported, match="need torch's grouped_mm"):
        experts.grouped_product()


def test_varlen_attention_is_taken_only_where_it_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe runs on a stand-in: right results pass, wrong ones and errors fall back."""
    right = attention_module.attend_sdpa
    assert attention_module._agrees(right, CPU, torch.float32, (4, 2, 16))
    assert not attention_module._agrees(lambda *a: right(*a) + 1, CPU, torch.float32, (4, 2, 16))
    assert not attention_module._agrees(attention_module.attend_varlen, CPU, torch.float32, (4, 2, 16))
    assert attention_module.choose_attention(CPU, torch.float32, 4, 2, 16) == "sdpa"


@pytest.mark.parametrize(("device", "dtype"), [("cuda", "bf16"), ("cpu", "int4")])
def test_a_missing_device_or_format_is_refused(device: str, dtype: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("a CUDA device is present")
    with pytest.raises(Unsupported, match=r"sees no CUDA device|'int4'"):
        build_bench(BenchSpec(shapes.DENSE), device, dtype)


def test_ranks_share_a_model_whole() -> None:
    """Divided products sum to the whole; what every rank keeps is the router's and the norms'."""
    for shape in (shapes.DENSE, shapes.HYBRID):
        half = parallel.share(shape, 2)
        assert 2 * sum(each.parameters for each in half.linears) == sum(e.parameters for e in shape.linears)
        assert half.attention.heads * 2 == shape.attention.heads
    assert parallel.share(shapes.DENSE, 1) is shapes.DENSE
    with pytest.raises(Unsupported, match=r"tensor parallel 3: \w+ \d+ is not divisible"):
        parallel.share(shapes.DENSE, 3)


def test_a_shape_with_parts_that_passes_do_not_build_is_refused() -> None:
    window = replace(shapes.DENSE, sliding=Sliding(shapes.DENSE.attention, 8))
    with pytest.raises(Unsupported, match="dense: passes do not build sliding windows"):
        build_bench(BenchSpec(window))
    other = replace(shapes.DENSE, linears=(*shapes.DENSE.linears, Linear("kv_b", 8, 8)))
    with pytest.raises(Unsupported, match="dense: passes do not build kv_b"):
        build_bench(BenchSpec(other))
    more = replace(shapes.DENSE, small_parameters=10**6)
    with pytest.raises(Unsupported, match=r"passes build [\d,]+ parameters of its 1,0"):
        build_bench(BenchSpec(more))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [shapes.DENSE, shapes.MIXTURE, shapes.HYBRID], ids=lambda shape: shape.name)
def test_every_pass_is_captured_in_a_graph_and_replays(shape: Shape) -> None:
    drafters: dict[str, tuple[DrafterKind, Shape]] = {"eagle": ("eagle", shapes.EAGLE)}
    made = build_bench(BenchSpec(shape, drafters, 8, 64), "cuda", "bf16")
    cell = Cell.model_validate(
        {"pass": "round", "sequences": 4, "width": 4, "context": 30, "drafter": "eagle"}
    )
    for _, run in made.prepare_round(cell):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        graph.replay()
    torch.cuda.synchronize()
