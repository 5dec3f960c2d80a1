"""The bench: models in memory, cells in, passes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from calibrate.cells import Cell, PassName
from calibrate.passes.contract import BenchSpec, OutOfMemory, Run, Unsupported
from calibrate.passes.drafters import AnyDrafter, BlockDrafter, build_drafter
from calibrate.passes.linear import choose_linear
from calibrate.passes.model import Decoder
from calibrate.passes.parallel import World, join_world, place_of, share
from calibrate.passes.rounds import Round, prefill_run
from calibrate.passes.weights import Weights

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp8": torch.bfloat16,
}
ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

CHUNK_ROOM = 16384
"""Positions beyond twice the mean context, for prefill chunks."""

Passes = list[tuple[PassName, Run]]


class TransformerBench:
    """The ``Bench`` of one target and its drafters, with random weights."""

    def __init__(
        self,
        spec: BenchSpec,
        target: Decoder,
        drafters: dict[str, AnyDrafter],
        weights: Weights,
        world: World,
        about: dict[str, str],
    ) -> None:
        self.spec, self.target, self.drafters = spec, target, drafters
        self.weights, self.world = weights, world
        self.about: Mapping[str, str] = about
        distinct = len(target.stack.layers)
        self.flags: tuple[str, ...] = ("layers",) if distinct < spec.target.layers else ()

    @classmethod
    def build(cls, spec: BenchSpec, device: str, dtype: str, seed: int) -> TransformerBench:
        """Make all weights; raises ``Unsupported`` with the reason, or the device's memory error."""
        name = ALIASES.get(dtype, dtype)
        if name not in DTYPES:
            raise Unsupported(f"dtype {dtype!r}: is not one of {', '.join(DTYPES)}")
        place = place_of(device)
        world = join_world(place)
        linear, kernel = choose_linear(place, DTYPES[name], name == "fp8")
        weights = Weights(place, DTYPES[name], seed, kernel)
        positions = 2 * spec.max_context + CHUNK_ROOM
        with torch.inference_mode():
            target = Decoder(share(spec.target, world.size), weights, world, positions, spec.layers)
            _check_distinct(target, spec, 1 if name == "fp8" else weights.dtype.itemsize, place)
            drafters = {
                drafter: build_drafter(kind, shape, weights, target, positions)
                for drafter, (kind, shape) in spec.drafters.items()
                if kind != "ngram"
            }
        about = _about(spec, weights, target, world) | {"linear": linear, "dtype": name, "seed": str(seed)}
        return cls(spec, target, drafters, weights, world, about)

    def prepare(self, cell: Cell) -> Run:
        """See ``Bench``. The pass ``round`` runs all its passes one after another."""
        passes = self._prepared(cell, self._passes)
        return passes[0][1] if len(passes) == 1 else lambda: _run_all(passes)

    def prepare_round(self, cell: Cell) -> Passes:
        """See ``Bench``."""
        return self._prepared(cell, self._round)

    def _prepared(self, cell: Cell, make: Callable[[Cell], Passes]) -> Passes:
        """Make the passes and run them once, without other ranks; lack of memory is ``OutOfMemory``.

        Pools keep the room of earlier cells. What fits must not depend on those, so a cell that does
        not fit is tried once more with no more than it asks for itself.
        """
        detail = ""
        for _ in range(2):
            try:
                with torch.inference_mode():
                    passes = make(cell)
                with self.world.rehearsal():
                    _run_all(passes)
                return passes
            except (MemoryError, RuntimeError) as error:
                if not _is_memory(error):
                    raise
                detail = str(error).partition("\n")[0]
            # Outside the handler, the failed attempt's tensors are no longer held by its traceback.
            self._release()
        raise OutOfMemory(cell, detail)

    def _release(self) -> None:
        """Give all pools back to the device."""
        for stack in (self.target.stack, *(drafter.stack for drafter in self.drafters.values())):
            stack.release()
        if self.weights.device.type == "cuda":
            torch.cuda.empty_cache()

    def _passes(self, cell: Cell) -> Passes:
        if cell.sequences > self.spec.max_sequences:
            raise Unsupported(f"{cell.sequences} sequences exceed this bench's {self.spec.max_sequences}")
        if cell.pass_ == "round":
            return self._round(cell)
        if cell.pass_ in ("prefill", "mixed"):
            return [(cell.pass_, _quiet(prefill_run(self.target, self.weights, cell)))]
        if cell.pass_ == "collective":
            return [(cell.pass_, _quiet(self._collective(cell)))]
        return [(cell.pass_, _quiet(self._pass(cell)))]

    def _pass(self, cell: Cell) -> Run:
        """One pass of a round on its own."""
        if cell.pass_ == "draft_next" and cell.width != 1:
            raise Unsupported(f"draft_next: takes one token per sequence, not {cell.width}")
        at = self._open(cell)
        if cell.pass_ == "verify":
            return at.verify()
        if cell.pass_ == "accept":
            return at.desk.accept
        drafter = self._drafter(cell)
        if cell.pass_ == "draft_block" and isinstance(drafter, BlockDrafter):
            return at.draft_block(drafter)
        if cell.pass_ in ("draft_first", "draft_next") and not isinstance(drafter, BlockDrafter):
            chain = at.chain(drafter)
            return chain.first() if cell.pass_ == "draft_first" else chain.next(0)
        raise Unsupported(f"{cell.pass_}: is not a pass of drafter {cell.drafter!r}")

    def _round(self, cell: Cell) -> Passes:
        at = self._open(cell)
        passes: Passes = [*self._drafts(cell, at), ("verify", at.verify()), ("accept", at.desk.accept)]
        return [(name, _quiet(run)) for name, run in passes]

    def _drafts(self, cell: Cell, at: Round) -> Passes:
        depth = cell.width - 1
        if not depth or cell.drafter not in self.drafters:
            return []
        drafter = self._drafter(cell)
        if isinstance(drafter, BlockDrafter):
            return [("draft_block", at.draft_block(drafter))]
        chain = at.chain(drafter)
        return [("draft_first", chain.first()), *(("draft_next", chain.next(j)) for j in range(1, depth))]

    def _open(self, cell: Cell) -> Round:
        return Round(self.target, self.weights, cell, self.spec.sampling)

    def _drafter(self, cell: Cell) -> AnyDrafter:
        if cell.drafter not in self.drafters:
            known = ", ".join(self.drafters) or "none"
            raise Unsupported(f"{cell.pass_}: drafter {cell.drafter!r} is not one of this bench's: {known}")
        return self.drafters[cell.drafter]

    def _collective(self, cell: Cell) -> Run:
        """All sums over the ranks of one target pass, and nothing else."""
        if self.world.size == 1:
            raise Unsupported("collective: one process has nothing to sum; start with torchrun")
        # Zeros stay what they are, however often they are summed.
        x = self.weights.random(cell.tokens, self.spec.target.head.k).zero_()

        def run() -> None:
            for _ in range(2 * self.spec.target.layers):
                self.world.sum(x)

        return run


def _quiet(work: Run) -> Run:
    """``work`` without the bookkeeping of gradients."""

    def run() -> None:
        with torch.inference_mode():
            work()

    return run


def _run_all(passes: Passes) -> None:
    for _, run in passes:
        run()


def _is_memory(error: Exception) -> bool:
    """Torch's CPU allocator raises a plain ``RuntimeError``; its text is all there is to tell."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "allocate memory" in text


def _about(spec: BenchSpec, weights: Weights, target: Decoder, world: World) -> dict[str, str]:
    about = {
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "attention": target.stack.kernel,
        "sampling": spec.sampling,
        "accept": "pinned",
        "weights": "N(0, 0.02), norms 1",
        "kv": "N(0, 0.1), slotted",
        "lengths": "even within 25 % of the mean",
        "ranks": str(world.size),
    }
    if spec.target.moe:
        about["experts"] = "looped" if weights.device.type == "cpu" else "grouped_mm"
    if spec.target.gdn:
        about["gdn"] = "chunked form in torch"
    if len(target.stack.layers) < spec.target.layers:
        about["layers"] = f"{len(target.stack.layers)} distinct of {spec.target.layers}, in turn"
    return about


def _check_distinct(target: Decoder, spec: BenchSpec, value_bytes: int, device: torch.device) -> None:
    """A few layers used in turn must not stay in the last-level cache."""
    if len(target.stack.layers) == spec.target.layers:
        return
    size, cache = target.stack.parameters * value_bytes, cache_bytes(device)
    if size < 2 * cache:
        raise Unsupported(
            f"layers {spec.layers}: {size / 2**20:.0f} MiB would stay in the {cache / 2**20:.0f} MiB cache;"
            f" at least {-(-2 * cache * len(target.stack.layers) // size)} are needed"
        )


def cache_bytes(device: torch.device) -> int:
    """The last-level cache; 32 MiB where a CPU does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text(encoding="ascii").strip()
        return int(text.rstrip("K")) * 1024
    except (OSError, ValueError):
        return 32 * 2**20
