"""The devices whose kernels were measured, and which table stands in where one is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibrate.compose.attention import AttentionCost, attention_cost, sliding_terms
from calibrate.compose.collectives import Link
from calibrate.compose.elementwise import A100 as A100_OPS
from calibrate.compose.elementwise import H100 as H100_OPS
from calibrate.compose.elementwise import Reference
from calibrate.compose.tables import Folders, Ledger
from calibrate.datasheets import GPUS
from calibrate.profile import Device, Term
from calibrate.shapes import Attention, Sliding

FA2_ROWS = 64
"""Query rows of one tile of FlashAttention 2 with a paged cache (flash_fwd_launch_template.h, kBlockM)."""

DATASHEET = "NVIDIA datasheet, dense bf16, as in aiconfigurator systems/*.yaml (Apache-2.0)"


@dataclass(frozen=True)
class Machine:
    """A device with the tables that describe it; ``table`` is its name in their file names.

    ``ops_bandwidth`` and ``attention_from`` say what is borrowed from another device; ``tile_rows`` is
    not 0 where attention computes whole tiles of as many queries in wide passes.
    """

    table: str
    device: Device
    ops: Reference
    ops_bandwidth: float = 1.0
    attention_from: Machine | None = None
    tile_rows: int = 0
    link: Link | None = None
    """To its neighbours, where no table of collectives has this device."""

    def sliding(
        self, folders: Folders, sliding: Sliding, ledger: Ledger, *, verifies: bool
    ) -> tuple[Term, ...]:
        """Windowed layers, from the table of that window."""
        return sliding_terms(folders, self.table, sliding, ledger, verifies=verifies)

    def attention(self, folders: Folders, attention: Attention, ledger: Ledger) -> AttentionCost:
        """Attention of these heads here, scaled from another device where none was measured here."""
        cost = self._packed(folders, attention, ledger)
        return cost.tiled(self.tile_rows) if self.tile_rows else cost

    def _packed(self, folders: Folders, attention: Attention, ledger: Ledger) -> AttentionCost:
        other = self.attention_from
        if other is None:
            return attention_cost(folders, self.table, attention, ledger)
        bandwidth = self.device.bandwidth_bytes_per_s / other.device.bandwidth_bytes_per_s
        compute = self.device.peak_flops_per_s / other.device.peak_flops_per_s
        why = (
            f"no attention table for {self.device.name}: {other.device.name} scaled by bandwidth "
            f"x{bandwidth:.3f} and peak x{compute:.3f}, floor unchanged"
        )
        return attention_cost(folders, other.table, attention, ledger).scaled(bandwidth, compute, why)


def _device(name: str, memory_gib: int, bandwidth: float, peak: float) -> Device:
    return Device(
        name=name,
        memory_bytes=memory_gib * 2**30,
        bandwidth_bytes_per_s=bandwidth,
        peak_flops_per_s=peak,
        source=DATASHEET,
    )


H100 = Machine("h100_sxm", _device("NVIDIA H100 SXM 80GB", 80, 3.35e12, 989e12), H100_OPS)
H200 = Machine(
    "h200_sxm", _device("NVIDIA H200 SXM 141GB", 141, 4.8e12, 989e12), H100_OPS, ops_bandwidth=4.8 / 3.35
)
B200 = Machine(
    "b200_sxm", _device("NVIDIA B200 SXM 180GB", 180, 7.7e12, 2.25e15), H100_OPS, ops_bandwidth=7.7 / 3.35
)
A100 = Machine(
    "a100_sxm",
    _device("NVIDIA A100 SXM 80GB", 80, 2.039e12, 312e12),
    A100_OPS,
    attention_from=H100,
    tile_rows=FA2_ROWS,
)
A100_OWN = replace(A100, attention_from=None)
"""A100 with its own attention table (FlashAttention 2, vLLM 0.14), which the flat folder lacks."""

RTX_PRO_6000 = Machine(
    "rtx_pro_6000_server",
    GPUS["rtx-pro-6000"].device,
    H100_OPS,
    ops_bandwidth=1.792 / 3.35,
    link=Link(
        0.8 * 16e9,
        4_300.0,
        "16 GB/s (link_bw of LLMServingSim's cluster configuration for this host) x 0.8, 4.3 us",
    ),
)
"""LLMServingSim's host, whose cards reach each other at a third of what aiconfigurator's do: 80 % of its
stated rate (aiconfigurator's factor for memory), and the smallest all-reduce of aiconfigurator's table."""
