"""Datasheet numbers of accelerators, and the share of the peak that matrix products were seen to reach.

Peaks are dense, bf16, with fp32 accumulation. ``matmul`` is a measured share of that peak: MAMF is the
"maximum achievable matmul FLOPS" of stas00/ml-engineering; cuBLAS and aiconfigurator rows likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibrate.profile import Device

AIC_SYSTEMS = "vendor datasheet, dense bf16, as in aiconfigurator systems/*.yaml (Apache-2.0)"
WHITEPAPER = "NVIDIA GeForce whitepaper, dense bf16 with fp32 accumulation"
AMD = "AMD Instinct datasheet, dense bf16"
MAMF = "stas00/ml-engineering MAMF"


@dataclass(frozen=True)
class Gpu:
    """A device, and the share of its peak that large matrix products reached (by whom)."""

    device: Device
    matmul: float
    matmul_source: str


def _gpu(
    name: str,
    memory_bytes: float,
    tb_per_s: float,
    tflops: float,
    source: str,
    matmul: float,
    matmul_source: str,
) -> Gpu:
    device = Device(
        name=name,
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=tb_per_s * 1e12,
        peak_flops_per_s=tflops * 1e12,
        source=source,
    )
    return Gpu(device, matmul, matmul_source)


GIB = 2**30

GPUS: dict[str, Gpu] = {
    "a100": _gpu("NVIDIA A100 SXM 80GB", 80 * GIB, 2.039, 312, AIC_SYSTEMS, 0.87, f"{MAMF}: 271 TFLOP/s"),
    "h100": _gpu("NVIDIA H100 SXM 80GB", 80 * GIB, 3.35, 989, AIC_SYSTEMS, 0.80, f"{MAMF}: 794 TFLOP/s"),
    "h200": _gpu("NVIDIA H200 SXM 141GB", 141 * GIB, 4.8, 989, AIC_SYSTEMS, 0.80, f"{MAMF}: as H100"),
    "b200": _gpu("NVIDIA B200 SXM 180GB", 180 * GIB, 7.7, 2250, AIC_SYSTEMS, 0.78, f"{MAMF}: 1745 TFLOP/s"),
    "l4": _gpu("NVIDIA L4 24GB", 24 * GIB, 0.3, 121, AIC_SYSTEMS, 0.80, "not measured: taken as on others"),
    "l40s": _gpu(
        "NVIDIA L40S 48GB",
        48_305_799_168,
        0.864,
        362.05,
        AIC_SYSTEMS,
        0.83,
        "aiconfigurator GEMM table: 297 to 315 TFLOP/s",
    ),
    "rtx4090": _gpu("NVIDIA RTX 4090 24GB", 24 * GIB, 1.008, 165.2, WHITEPAPER, 0.88, "cuBLAS: 145 TFLOP/s"),
    "rtx5090": _gpu(
        "NVIDIA RTX 5090 32GB", 32 * GIB, 1.792, 209.5, WHITEPAPER, 0.80, "cuBLAS at 400 W: 167 TFLOP/s"
    ),
    "rtx-pro-6000": _gpu(
        "NVIDIA RTX PRO 6000 Blackwell Server 96GB",
        96 * GIB,
        1.792,
        468,
        AIC_SYSTEMS,
        0.98,
        "aiconfigurator GEMM table: 459 TFLOP/s",
    ),
    "mi300x": _gpu("AMD MI300X 192GB", 192e9, 5.3, 1307, AMD, 0.51, f"{MAMF}: 668 TFLOP/s"),
    "mi355x": _gpu("AMD MI355X 288GB", 288e9, 8.0, 2500, AMD, 0.63, f"{MAMF}: 1565 TFLOP/s"),
}
"""By the name that commands take."""


def find_gpu(name: str) -> Gpu:
    """The datasheet of a GPU by its short name, whatever the case; ``ValueError`` lists the names."""
    key = name.lower().replace(" ", "").replace("_", "-")
    if key not in GPUS:
        raise ValueError(f"{name!r} is not a GPU with a datasheet here; one of {', '.join(GPUS)}")
    return GPUS[key]
