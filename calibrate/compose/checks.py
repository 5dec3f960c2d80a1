"""Composed step times beside published ones, and the error of each.

Only the first group's kernels are also in the published number (AIC composes the same tables in its
own way); the others were measured on whole forward passes or come from another profiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calibrate.compose.catalogue import LLAMA_8B, QWEN_27B, QWEN_30B
from calibrate.compose.devices import A100, H100, H200
from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.model_files import target_shape
from calibrate.compose.passes import Kernels
from calibrate.compose.tables import Folders, Ledger
from calibrate.profile import Term

AIC_8B = "Llama-3.1-8B H100, context 512, against AIC's composed step"
FIT_8B = "Llama-3.1-8B H100, context 512, against SpecDecode-Bench's fitted forward"
AIC_27B = "Qwen3.5-27B H200, context 64, against AIC's composed step"
VIDUR_8B = "Llama-3-8B A100, linear and elementwise only, against Vidur's layer x 32"
STUDY_8B = "Llama-3.1-8B A100, context 420, against vLLM 0.24 decode ITL p50 (HumanEval, no speculation)"
FORWARD_17B = "Qwen3-1.7B H100, context 0, against a measured captured forward"
FORWARD_17B_8K = "Qwen3-1.7B H100, context 8192, against a measured captured forward"
MOE_30B = "Qwen3-30B-A3B H100, context 512, growth of the step over batch 1"

PUBLISHED_MS: dict[str, dict[float, float]] = {
    AIC_8B: {1: 6.17, 8: 6.48, 32: 7.72, 64: 8.78, 128: 10.44, 256: 14.86},
    FIT_8B: {1: 5.93, 8: 6.21, 32: 7.20, 64: 8.52, 128: 11.15, 256: 16.41},
    AIC_27B: dict(
        zip(
            (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512),
            (14.8, 15.8, 15.3, 15.8, 16.8, 18.2, 21.1, 26.7, 34.7, 41.3, 58.9, 75.8),
            strict=True,
        )
    ),
    VIDUR_8B: {1: 9.7, 64: 11.2, 128: 13.2, 256: 19.5, 512: 34.7},
    STUDY_8B: {1: 10.81, 7.7: 11.05, 29.6: 13.08, 58.8: 14.55},
    FORWARD_17B: {1: 1.931, 8: 1.979, 16: 2.02, 32: 2.167, 64: 2.382},
    FORWARD_17B_8K: {1: 2.258, 8: 4.357, 16: 6.754, 32: 11.556, 64: 20.96},
}
"""ms by batch. AIC: its 0.12 engine on the same tables. SpecDecode-Bench: arXiv 2601.11580. Vidur:
data/profiling. Study: SpecDecoding-Study-vLLM-SGLang (mean running batch). Forward: adixg."""

MOE_BATCHES = (1, 4, 16, 64, 128, 256)


@dataclass(frozen=True)
class Check:
    """One composed time beside a published one."""

    group: str
    batch: float
    composed_ms: float
    published_ms: float

    @property
    def error(self) -> float:
        """Relative error of the composed time."""
        return self.composed_ms / self.published_ms - 1.0


def checks(folders: Folders) -> tuple[Check, ...]:
    """Every published step time and what the tables compose for it."""
    return tuple(_checks(folders))


def _checks(folders: Folders) -> Iterator[Check]:
    contexts = {AIC_8B: 512, FIT_8B: 512, AIC_27B: 64, VIDUR_8B: 0, STUDY_8B: 420, FORWARD_17B_8K: 8192}
    for group, terms in _terms(folders).items():
        for batch, published in PUBLISHED_MS[group].items():
            yield Check(group, batch, _step_ms(terms, batch, contexts.get(group, 0)), published)


def _terms(folders: Folders) -> dict[str, tuple[Term, ...]]:
    ledger = Ledger()
    h100, h200, a100 = (Kernels(folders, machine, ledger) for machine in (H100, H200, A100))
    llama = target_shape(LLAMA_8B, "Llama-3.1-8B", folders)
    small = target_shape("model_configs/Qwen--Qwen3-1.7B.json", "Qwen3-1.7B", folders)
    llama_h100, small_h100 = h100.verify(llama), h100.verify(small)
    llama_a100 = a100.verify(llama, "meta-llama/Meta-Llama-3-8B")
    kernels_a100 = tuple(term for term in llama_a100 if term.name in ("linear", "elementwise"))
    return {
        AIC_8B: llama_h100,
        FIT_8B: llama_h100,
        AIC_27B: h200.verify(target_shape(QWEN_27B, "Qwen3.5-27B", folders)),
        VIDUR_8B: kernels_a100,
        STUDY_8B: llama_a100,
        FORWARD_17B: small_h100,
        FORWARD_17B_8K: small_h100,
    }


def moe_growth(folders: Folders) -> dict[int, float]:
    """Step time of the mixture model at ``MOE_BATCHES`` over the one at batch 1 (one token each)."""
    shape = target_shape(QWEN_30B, "Qwen3-30B-A3B", folders)
    terms = Kernels(folders, H100, Ledger()).verify(shape)
    one = _step_ms(terms, 1, 512)
    return {batch: _step_ms(terms, batch, 512) / one for batch in MOE_BATCHES}


def _step_ms(terms: Iterable[Term], batch: float, context: int) -> float:
    return pass_ns(terms, decode_shape(batch, context)) / 1e6


def report(folders: Folders) -> str:
    """The checks as one Markdown table, a row per published curve."""
    lines = ["| check | batch: composed / published ms (error) |", "|---|---|"]
    found = checks(folders)
    for group in PUBLISHED_MS:
        cells = (
            f"{check.batch:g}: {check.composed_ms:.2f} / {check.published_ms:g} ({check.error:+.1%})"
            for check in found
            if check.group == group
        )
        lines.append(f"| {group} | {'; '.join(cells)} |")
    growth = "; ".join(f"{batch}: x{ratio:.2f}" for batch, ratio in moe_growth(folders).items())
    lines.append(f"| {MOE_30B} | {growth} |")
    return "\n".join(lines)
