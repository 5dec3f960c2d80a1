"""Actual forward passes to time. Importing this package does not import torch."""

from __future__ import annotations

from calibrate.passes.contract import Bench, BenchError, BenchSpec, OutOfMemory, Run, Sampling, Unsupported

__all__ = ["Bench", "BenchError", "BenchSpec", "OutOfMemory", "Run", "Sampling", "Unsupported", "build_bench"]


def build_bench(spec: BenchSpec, device: str = "cpu", dtype: str = "float32", seed: int = 0) -> Bench:
    """Build the models of ``spec`` with random weights; raises ``Unsupported`` with the reason.

    ``device`` is ``cpu`` or ``cuda``; ``dtype`` float32, bfloat16, float16, or fp8 (8-bit weights and
    inputs of the linear layers; heads, routers, experts on CUDA and the KV cache in bfloat16).
    """
    from calibrate.passes.bench import TransformerBench

    return TransformerBench.build(spec, device, dtype, seed)
