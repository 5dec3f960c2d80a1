"""Adding kernels up: the terms of a target's verify pass and of a drafter's passes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibrate.compose.collectives import collective, dispatch_terms, gather_term, reduce_term
from calibrate.compose.devices import Machine
from calibrate.compose.elementwise import elementwise_term
from calibrate.compose.gdn import gdn_term
from calibrate.compose.gemm import GemmTable, gemm_table
from calibrate.compose.latent import PROJECTIONS, latent_terms
from calibrate.compose.linear import head_term, linear_term, vidur_linear_term
from calibrate.compose.moe import ROUTING, moe_term
from calibrate.compose.precision import BF16, Precision
from calibrate.compose.tables import Folders, Ledger
from calibrate.profile import Counted, Term
from calibrate.shapes import Moe, Shape
from calibrate.sharding import WHOLE, Split


@dataclass(frozen=True)
class Kernels:
    """One machine's tables, and the ledger that records what is taken from them.

    Shapes are those of one device's share (``calibrate.sharding``); ``split`` says how many devices
    there are and adds what they send each other. ``experts`` is the whole expert layer.
    """

    folders: Folders
    machine: Machine
    ledger: Ledger
    split: Split = WHOLE
    routing: str = ROUTING
    precision: Precision = BF16
    experts: Moe | None = None

    @property
    def gemm(self) -> GemmTable:
        """The machine's GEMM table, recorded as a source."""
        return gemm_table(self.folders, self.machine.table, self.ledger, self.precision.gemm)

    @property
    def head(self) -> GemmTable:
        """The table for output heads, which stay in bf16."""
        return gemm_table(self.folders, self.machine.table, self.ledger)

    def drafting(self, split: Split, precision: Precision = BF16, experts: Moe | None = None) -> Kernels:
        """The same machine for a drafter's passes: its own split, number formats and experts."""
        return replace(self, split=split, precision=precision, experts=experts)

    def verify(self, shape: Shape, vidur_model: str = "") -> tuple[Term, ...]:
        """One forward pass of a target; its projections from Vidur when it measured the model."""
        return (
            *self._linear(shape, vidur_model),
            head_term(self.head, shape.head, "logits", self.ledger),
            *self._mixers(shape, verifies=True),
            *self._collectives(shape, "logits"),
        )

    def draft_next(self, shape: Shape) -> tuple[Term, ...]:
        """One draft pass with one token per sequence; one position per sequence is sampled."""
        return (
            *self._linear(shape),
            head_term(self.head, shape.head, "sequences", self.ledger),
            *self._mixers(shape, verifies=False),
            *self._collectives(shape, "sequences"),
        )

    def draft_first(self, shape: Shape) -> tuple[Term, ...]:
        """The draft pass over every token of the step, with the products that only it does."""
        once = (linear_term(self.gemm, shape.once, self.ledger, name="fuse"),) if shape.once else ()
        return (*once, *self.draft_next(shape))

    def _linear(self, shape: Shape, vidur_model: str = "") -> tuple[Term, ...]:
        if not vidur_model:
            held = PROJECTIONS if shape.attention.latent else ()
            linears = [linear for linear in shape.linears if linear.name not in held]
            if self.precision.gemm == BF16.gemm:
                return (linear_term(self.gemm, linears, self.ledger),)
            routers = [linear for linear in linears if linear.name == "router"]
            own = linear_term(self.gemm, [at for at in linears if at not in routers], self.ledger)
            router = linear_term(self.head, routers, self.ledger, name="router")
            return (own, router) if routers else (own,)
        gpu, tp = self.machine.ops.gpu, self.split.tp
        return (vidur_linear_term(self.folders, gpu, vidur_model, self.gemm, shape.linears, self.ledger, tp),)

    def _mixers(self, shape: Shape, *, verifies: bool) -> tuple[Term, ...]:
        """Attention, state and expert layers, and the small kernels between them."""
        folders, machine, ledger = self.folders, self.machine, self.ledger
        if shape.attention.latent:
            attention = latent_terms(folders, machine.table, shape.attention, self.precision.latent, ledger)
        else:
            attention = machine.attention(folders, shape.attention, ledger).terms(shape.attention)
        sliding = (
            ()
            if shape.sliding is None
            else machine.sliding(folders, shape.sliding, ledger, verifies=verifies)
        )
        gdn = (
            ()
            if shape.gdn is None
            else (gdn_term(folders, machine.table, shape.gdn, ledger, verifies=verifies),)
        )
        experts = self._experts(shape)
        ops = elementwise_term(folders, machine.ops, shape.elementwise, ledger, machine.ops_bandwidth)
        return (*attention, *sliding, *gdn, *experts, ops)

    def _experts(self, shape: Shape) -> tuple[Term, ...]:
        if shape.moe is None:
            return ()
        whole, dtype = self.experts or shape.moe, self.precision.moe
        return (
            moe_term(self.folders, self.machine.table, whole, self.ledger, self.routing, dtype, self.split),
        )

    def _collectives(self, shape: Shape, sampled: Counted) -> tuple[Term, ...]:
        """All-reduces and gathered logits of tensor parallelism, dispatch to experts of other replicas."""
        folders, machine, ledger, split = self.folders, self.machine, self.ledger, self.split
        terms: tuple[Term, ...] = ()
        if split.tp > 1:
            reduce = collective(folders, machine.table, "all_reduce", split.tp, ledger, machine.link)
            gather = collective(folders, machine.table, "all_gather", split.tp, ledger, machine.link)
            terms = (
                reduce_term(reduce, shape.head.k, 2 * shape.layers + 1),
                gather_term(gather, shape.head.n * split.tp, sampled),
            )
        if split.dp > 1 and shape.moe is not None:
            gather = collective(folders, machine.table, "all_gather", split.dp, ledger, machine.link)
            scatter = collective(folders, machine.table, "reduce_scatter", split.dp, ledger, machine.link)
            terms = (*terms, *dispatch_terms(gather, scatter, shape.head.k, shape.moe.layers))
        return terms
