"""Adding kernels up: the terms of a target's verify pass and of a drafter's passes."""

from __future__ import annotations

from dataclasses import dataclass

from calibrate.compose.devices import Machine
from calibrate.compose.elementwise import elementwise_term
from calibrate.compose.gdn import gdn_term
from calibrate.compose.gemm import GemmTable, gemm_table
from calibrate.compose.linear import head_term, linear_term, vidur_linear_term
from calibrate.compose.moe import moe_term
from calibrate.compose.tables import Folders, Ledger
from calibrate.profile import Term
from calibrate.shapes import Shape


@dataclass(frozen=True)
class Kernels:
    """One machine's tables, and the ledger that records what is taken from them."""

    folders: Folders
    machine: Machine
    ledger: Ledger

    @property
    def gemm(self) -> GemmTable:
        """The machine's GEMM table, recorded as a source."""
        return gemm_table(self.folders, self.machine.table, self.ledger)

    def verify(self, shape: Shape, vidur_model: str = "") -> tuple[Term, ...]:
        """One forward pass of a target; its projections from Vidur when it measured the model."""
        return (
            self._linear(shape, vidur_model),
            head_term(self.gemm, shape.head, "logits", self.ledger),
            *self._mixers(shape, verifies=True),
        )

    def draft_next(self, shape: Shape) -> tuple[Term, ...]:
        """One draft pass with one token per sequence; one position per sequence is sampled."""
        return (
            self._linear(shape),
            head_term(self.gemm, shape.head, "sequences", self.ledger),
            *self._mixers(shape, verifies=False),
        )

    def draft_first(self, shape: Shape) -> tuple[Term, ...]:
        """The draft pass over every token of the step, with the products that only it does."""
        once = (linear_term(self.gemm, shape.once, self.ledger, name="fuse"),) if shape.once else ()
        return (*once, *self.draft_next(shape))

    def _linear(self, shape: Shape, vidur_model: str = "") -> Term:
        if not vidur_model:
            return linear_term(self.gemm, shape.linears, self.ledger)
        gpu = self.machine.ops.gpu
        return vidur_linear_term(self.folders, gpu, vidur_model, self.gemm, shape.linears, self.ledger)

    def _mixers(self, shape: Shape, *, verifies: bool) -> tuple[Term, ...]:
        """Attention, state and expert layers, and the small kernels between them."""
        folders, machine, ledger = self.folders, self.machine, self.ledger
        attention = machine.attention(folders, shape.attention, ledger).terms(shape.attention)
        gdn = (
            ()
            if shape.gdn is None
            else (gdn_term(folders, machine.table, shape.gdn, ledger, verifies=verifies),)
        )
        moe = () if shape.moe is None else (moe_term(folders, machine.table, shape.moe, ledger),)
        ops = elementwise_term(folders, machine.ops, shape.elementwise, ledger, machine.ops_bandwidth)
        return (*attention, *gdn, *moe, ops)
