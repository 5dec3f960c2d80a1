"""Profiles from datasheet numbers, for GPUs whose kernels nobody published.

    python -m calibrate.analytic --gpu L40S --config llama-3.1-8b --out scenarios/profiles

Every kernel takes the larger of its memory time and its arithmetic time, plus a launch:

    memory      bytes / (``BANDWIDTH`` x the datasheet's bandwidth)
    arithmetic  FLOPs / (the share of the peak that large matrix products reached x the peak)
    launch      ``LAUNCH_NS`` for a kernel in a captured graph, ``ATTENTION_NS`` for an attention layer

A hard maximum, because measured products are flat up to the ridge (the fitted exponent on H200 is 8).
Tiles are not modelled, so the steps that a measured curve has are missing. ``ERROR`` is what the
same recipe is off by where kernels were measured (``compare``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.overheads import VLLM_024, eager_extra, piecewise_extra, sampler
from calibrate.compose.sdbench import ngram_terms
from calibrate.compose.tables import Ledger, significant
from calibrate.configs import (
    LLAMA31_8B,
    LLAMA31_8B_EAGLE3,
    QWEN35_08B,
    Config,
    ShapeError,
    eagle3_head,
    from_config,
)
from calibrate.datasheets import GPUS, Gpu, find_gpu
from calibrate.profile import (
    SCHEMA,
    Assumption,
    Counted,
    Curve,
    Drafter,
    Profile,
    Source,
    StatedError,
    Target,
    Term,
    save_profile,
)
from calibrate.shapes import Attention, Elementwise, Gdn, Linear, Moe, Shape, Sliding

CREATED = "2026-11-29"
"""The date of the recipe, not of the run: the same datasheet gives the same bytes."""

BANDWIDTH = 0.8
"""Share of the datasheet's bandwidth that kernels reach: aiconfigurator's own constant
(``mem_bw_empirical_scaling_factor``); its decode products reach 0.70 to 0.86."""

LAUNCH_NS = 3_000.0
"""Launch and drain of one kernel in a captured graph: aiconfigurator's ``mem_empirical_constant_latency``."""

ATTENTION_NS = 10_000.0
"""Floor of one attention layer at decode: 11.8 us on H200 (fit to aiconfigurator's table), rounded down."""

TOKENS = (1, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048, 4096, 8192)
HEAD_TOKENS = tuple(m for m in TOKENS if m <= 4096)
BYTES = 2
"""bf16 weights, activations and KV cache."""

VALUES_MOVED = {"norm": 2, "act": 3, "rope": 2, "add": 3}
"""Numbers read and written per value of an elementwise kernel (an activation reads two, writes one)."""

CONFIGS: dict[str, tuple[Config, str]] = {
    "llama-3.1-8b": (LLAMA31_8B, "Llama-3.1-8B"),
    "qwen3.5-0.8b": (QWEN35_08B, "Qwen3.5-0.8B"),
}
"""Built-in configs: by name, with the model's own spelling."""

HEADROOM = 0.9
"""Share of the device's memory that an engine may use (vLLM's default)."""


class Roofline:
    """Times in ns on one GPU under the efficiencies above."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.bytes_per_ns = gpu.device.bandwidth_bytes_per_s * BANDWIDTH / 1e9
        self.flops_per_ns = gpu.device.peak_flops_per_s * gpu.matmul / 1e9
        self.source = (
            f"{gpu.device.name}: {gpu.device.bandwidth_bytes_per_s / 1e12:g} TB/s x {BANDWIDTH}, "
            f"{gpu.device.peak_flops_per_s / 1e12:g} TFLOP/s x {gpu.matmul} ({gpu.matmul_source})"
        )

    def product(self, m: int, linear: Linear) -> float:
        """One product of ``m`` tokens."""
        moved = BYTES * (linear.n * linear.k + m * (linear.n + linear.k))
        work = 2 * m * linear.n * linear.k
        return max(moved / self.bytes_per_ns, work / self.flops_per_ns) + LAUNCH_NS

    def experts(self, m: int, moe: Moe) -> float:
        """One fused expert layer: experts that ``m`` tokens reach under even routing, read once."""
        reached = moe.experts * (1 - (1 - moe.active / moe.experts) ** m)
        moved = BYTES * reached * moe.parameters_each
        work = 2 * m * moe.active * moe.parameters_each
        return max(moved / self.bytes_per_ns, work / self.flops_per_ns) + 2 * LAUNCH_NS

    def _term(self, name: str, what: str, **parts: object) -> Term:
        return Term.model_validate(
            {"name": name, "mark": "analytic", "source": f"{what}; {self.source}", **parts}
        )

    def linear(self, linears: Sequence[Linear], name: str = "linear") -> Term:
        """Every product of a pass over its tokens."""
        ns = [sum(at.count * self.product(m, at) for at in linears) for m in TOKENS]
        listing = ", ".join(f"{at.count} x {at.name} {at.n}x{at.k}" for at in linears)
        return self._term(name, f"max(memory, arithmetic) + launch of {listing}", curve=_curve(TOKENS, ns))

    def head(self, head: Linear, over: Counted) -> Term:
        """The output head over the positions that are sampled (nothing when there are none)."""
        ns = [0.0, *(self.product(m, head) for m in HEAD_TOKENS)]
        return self._term("lm_head", f"{head.n}x{head.k}", curve=_curve((0, *HEAD_TOKENS), ns, over))

    def decode(self, attention: Attention) -> Term:
        """Attention of decode rows: the cache by bandwidth, wider queries by arithmetic."""
        read = BYTES * attention.kv_values_per_token / self.bytes_per_ns
        pair = attention.flops_per_query_context / self.flops_per_ns
        return self._term(
            "attention_decode",
            f"{attention.layers} layers, cache read once for all queries of a sequence",
            fixed_ns=significant(attention.layers * ATTENTION_NS),
            per_ns={
                "context_tokens": significant(max(0.0, read - pair)),
                "query_context_tokens": significant(pair),
            },
        )

    def prefill(self, attention: Attention) -> Term:
        """Attention of prefill chunks: arithmetic."""
        pair = attention.flops_per_query_context / self.flops_per_ns
        return self._term(
            "attention_prefill",
            f"{attention.layers} layers at the rate of matrix products",
            per_ns={"prefill_pairs": significant(pair)},
        )

    def sliding(self, sliding: Sliding) -> Term:
        """Sliding-window layers: a full window read per sequence, whatever the context."""
        read = BYTES * sliding.state_values / self.bytes_per_ns
        return self._term(
            "attention_sliding",
            f"{sliding.attention.layers} layers over {sliding.window} tokens",
            fixed_ns=significant(sliding.attention.layers * ATTENTION_NS),
            per_ns={"sequences": significant(read)},
        )

    def gdn(self, gdn: Gdn, *, verifies: bool) -> Term:
        """Gated-DeltaNet states: read per sequence, written per sequence or per verified position."""
        moved = gdn.state_bytes(BYTES) / self.bytes_per_ns
        per = {"sequences": moved, "logits": moved} if verifies else {"sequences": 2 * moved}
        return self._term(
            "gdn",
            f"{gdn.layers} layers: a state read and written by bandwidth",
            fixed_ns=significant(2 * gdn.layers * LAUNCH_NS),
            per_ns={name: significant(ns) for name, ns in per.items()},
        )

    def moe(self, moe: Moe) -> Term:
        """Routed experts over the step's tokens."""
        ns = [moe.layers * self.experts(m, moe) for m in TOKENS]
        return self._term(
            "moe", f"{moe.layers} layers of {moe.experts} experts, even routing", curve=_curve(TOKENS, ns)
        )

    def elementwise(self, ops: Sequence[Elementwise]) -> Term:
        """Norms, activations, rotary embedding and adds: launches, and traffic by bandwidth."""
        launches = sum(op.count for op in ops if not op.fused)
        moved = sum(BYTES * VALUES_MOVED[op.op] * op.width * op.count for op in ops)
        return self._term(
            "elementwise",
            f"{launches} kernels, {moved} bytes per token",
            fixed_ns=launches * LAUNCH_NS,
            per_ns={"tokens": significant(moved / self.bytes_per_ns)},
        )

    def mixers(self, shape: Shape, *, verifies: bool) -> tuple[Term, ...]:
        """Attention, state and expert layers, and the small kernels between them."""
        return (
            self.decode(shape.attention),
            self.prefill(shape.attention),
            *([] if shape.sliding is None else [self.sliding(shape.sliding)]),
            *([] if shape.gdn is None else [self.gdn(shape.gdn, verifies=verifies)]),
            *([] if shape.moe is None else [self.moe(shape.moe)]),
            self.elementwise(shape.elementwise),
        )

    def verify(self, shape: Shape) -> tuple[Term, ...]:
        """One forward pass of a target."""
        mixers = self.mixers(shape, verifies=True)
        return (self.linear(shape.linears), self.head(shape.head, "logits"), *mixers)

    def draft_next(self, shape: Shape) -> tuple[Term, ...]:
        """One draft pass with one token per sequence."""
        mixers = self.mixers(shape, verifies=False)
        return (self.linear(shape.linears), self.head(shape.head, "sequences"), *mixers)

    def draft_first(self, shape: Shape) -> tuple[Term, ...]:
        """The draft pass over every token of the step, with the products that only it does."""
        once = (self.linear(shape.once, "fuse"),) if shape.once else ()
        return (*once, *self.draft_next(shape))


def _curve(x: Sequence[int], ns: Iterable[float], over: Counted = "tokens") -> Curve:
    return Curve(over=over, x=tuple(x), ns=tuple(significant(value) for value in ns))


ERROR = StatedError(
    relative=0.34,
    basis="mean error of this recipe against the composed steps of Llama-3.1-8B on an A100 (23 %, for it "
    "lacks the whole tiles that attention computes there; at most 12 % on H100, H200 and B200) and against "
    "measured linear layers on L40S and RTX PRO 6000 (13 %), and the composed profiles' own 10 % "
    "(docs/importers.md)",
)


def analytic_profile(
    gpu: Gpu, shape: Shape, drafters: dict[str, Drafter], name: str, command: str
) -> Profile:
    """The profile of ``shape`` in bf16 on one ``gpu``; ``ShapeError`` when its weights do not fit."""
    work = shape.work(BYTES)
    room = HEADROOM * gpu.device.memory_bytes
    if work.weight_bytes >= room:
        raise ShapeError(
            f"{shape.name}: {work.weight_bytes / 1e9:.1f} GB of bf16 weights do not fit the "
            f"{room / 1e9:.1f} GB that an engine may use of {gpu.device.name}; "
            "take a smaller model or a larger GPU"
        )
    roofline, ledger = Roofline(gpu), Ledger()
    verify = roofline.verify(shape)
    ngram = Drafter(kind="ngram", first=ngram_terms(verify, ledger), max_depth=16)
    return Profile(
        schema=SCHEMA,
        name=name,
        kind="analytic",
        created=CREATED,
        command=command,
        device=gpu.device,
        dtype="bfloat16",
        max_tokens=TOKENS[-1],
        target=Target(
            work=work,
            verify=verify,
            accept=sampler(),
            host=VLLM_024.host(),
            eager_extra=eager_extra(verify, shape.layers),
            piecewise_extra=piecewise_extra(shape.layers),
        ),
        drafters={**drafters, "ngram": ngram},
        error=ERROR,
        sources=(Source(name="datasheet", what=f"{gpu.device.name}: {gpu.device.source}"), *ledger.sources),
        assumptions=(*_assumptions(gpu), *VLLM_024.assumptions()),
        notes="From datasheet numbers alone: nothing was timed on this GPU. See docs/importers.md.",
    )


def _assumptions(gpu: Gpu) -> tuple[Assumption, ...]:
    return (
        Assumption(
            what="target.verify, drafters: memory-bound kernels",
            value=f"{BANDWIDTH:.0%} of the datasheet's bandwidth",
            why="aiconfigurator's empirical factor; measured decode products reach 70 to 86 %",
        ),
        Assumption(
            what="target.verify, drafters: compute-bound kernels",
            value=f"{gpu.matmul:.0%} of the datasheet's peak",
            why=gpu.matmul_source,
        ),
        Assumption(
            what="target.verify, drafters: launches",
            value=f"{LAUNCH_NS / 1e3:g} us per kernel, {ATTENTION_NS / 1e3:g} us per attention layer",
            why="aiconfigurator's constant; an attention layer's floor as fitted on H200",
        ),
    )


def drafters_of(model: str, gpu: Gpu) -> dict[str, Drafter]:
    """Drafters that are known for a model: EAGLE-3 for Llama-3.1-8B."""
    if model != "Llama-3.1-8B":
        return {}
    roofline, head = Roofline(gpu), eagle3_head(LLAMA31_8B_EAGLE3, "eagle3")
    launch = VLLM_024.launch()
    eagle3 = Drafter(
        kind="eagle",
        work=head.work(BYTES),
        first=(*roofline.draft_first(head), *launch),
        next=(*roofline.draft_next(head), *launch),
        max_depth=8,
    )
    return {"eagle3": eagle3}


BATCHES, WIDTHS, CONTEXTS = (1, 4, 16, 64, 128), (1, 2, 4, 8), (512, 2048, 8192)


def compare(analytic: Iterable[Term], measured: Iterable[Term]) -> tuple[float, float]:
    """Mean and largest relative error of one verify pass against another, over batch, width and context."""
    one, other = tuple(analytic), tuple(measured)
    shapes = [decode_shape(b, c, w) for b in BATCHES for w in WIDTHS for c in CONTEXTS]
    errors = [abs(pass_ns(one, shape) / pass_ns(other, shape) - 1) for shape in shapes]
    return sum(errors) / len(errors), max(errors)


def read_shape(config: str) -> Shape:
    """The shape of a built-in config by name, or of a ``config.json``; ``ShapeError`` when it is neither."""
    if config.lower() in CONFIGS:
        built_in, name = CONFIGS[config.lower()]
        return from_config(built_in, name)
    path = Path(config)
    try:
        data: Config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        names = ", ".join(CONFIGS)
        raise ShapeError(
            f"{config}: not a config.json that can be read ({error}), nor one of {names}"
        ) from None
    return from_config(data, path.parent.name if path.stem == "config" else path.stem)


def main(arguments: list[str] | None = None) -> int:
    """Write ``OUT/NAME.json``; 2 with a message when there is no such GPU or the model does not fit."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        gpu, shape = find_gpu(options.gpu), read_shape(options.config)
        key = options.gpu.lower()
        name = options.name or f"{shape.name.lower()}-{key}-analytic"
        command = f"python -m calibrate.analytic --gpu {key} --config {options.config} --out {options.out}"
        profile = analytic_profile(gpu, shape, drafters_of(shape.name, gpu), name, command)
        path = options.out / f"{name}.json"
        save_profile(profile, path)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m calibrate.analytic", description=__doc__)
    parser.add_argument("--gpu", required=True, help=", ".join(GPUS))
    parser.add_argument("--config", required=True, help=f"config.json, or one of {', '.join(CONFIGS)}")
    parser.add_argument("--name", help="name of the profile (default: MODEL-GPU-analytic)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the profile")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
