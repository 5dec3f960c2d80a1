"""Number formats of a model's parts: which rows of the tables they select, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """Formats by the names that the tables use; ``*_bytes`` per weight, scales included.

    ``gemm`` is that of dense products, ``latent`` of latent attention blocks, ``moe`` of experts.
    Routers and output heads stay in bf16.
    """

    name: str
    gemm: str
    latent: str
    moe: str
    weight_bytes: float
    expert_bytes: float


BF16 = Precision("bfloat16", "bfloat16", "bfloat16", "bfloat16", 2, 2)
MXFP4_EXPERTS = Precision("bfloat16, experts mxfp4", "bfloat16", "bfloat16", "w4a16_mxfp4", 2, 17 / 32)
"""gpt-oss: experts in mxfp4, one scale byte per 32 numbers; the rest bf16."""
FP8_BLOCK = Precision("fp8 in blocks of 128", "fp8", "fp8_block", "fp8_block", 1, 1)
"""DeepSeek-V3 as published; scales (4 bytes per 128 x 128 weights) are left out. Dense products take
the rows of one scale per tensor: those in blocks take 57 us at any size, which is their launches."""
