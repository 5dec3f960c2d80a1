"""What a bench promises: cells in, runnable passes out. This module is free of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from calibrate.cells import Cell, PassName
from calibrate.profile import DrafterKind
from calibrate.shapes import Shape

Run = Callable[[], None]
Sampling = Literal["greedy", "T=1"]


class BenchError(Exception):
    """Base of what a bench refuses."""


class Unsupported(BenchError):  # noqa: N818 - reads as a state at the raise
    """A model, number format or cell that this machine cannot run: which part, and why."""


class OutOfMemory(BenchError):  # noqa: N818 - as torch's own
    """A cell whose cache, state or activations do not fit; the bench stays usable."""

    def __init__(self, cell: Cell, detail: str = "") -> None:
        self.cell = cell
        what = f"{cell.pass_}: {cell.sequences} x {cell.width} tokens at context {cell.context}"
        super().__init__(f"{what}, chunk {cell.chunk}: out of memory {detail}".rstrip())


@dataclass(frozen=True)
class BenchSpec:
    """What to build.

    ``drafters`` maps a name to its kind and shape (kind ngram runs nothing and is not built).
    ``layers`` bounds the distinct layers kept in memory: a pass still runs all of them, using
    these in turn, so its time needs no scaling. They must exceed the last-level cache.
    """

    target: Shape
    drafters: Mapping[str, tuple[DrafterKind, Shape]] = field(default_factory=dict)
    max_sequences: int = 128
    max_context: int = 4096
    layers: int | None = None
    sampling: Sampling = "greedy"


class Bench(Protocol):
    """Runs passes of one target and its drafters on one device.

    ``about`` records what a reader of the times must know: kernels, dtype, sampling, lengths.
    ``flags`` go to every cell measured here.
    """

    about: Mapping[str, str]
    flags: tuple[str, ...]

    def prepare(self, cell: Cell) -> Run:
        """A callable that runs the cell's pass once.

        It works in place on buffers that keep their addresses and changes no length, so it may be
        captured in a graph and repeated. It has run once when this returns, so that lazy
        initialisation and lack of memory show here. Raises ``OutOfMemory`` or ``Unsupported``.
        """
        ...

    def prepare_round(self, cell: Cell) -> list[tuple[PassName, Run]]:
        """The passes of one speculative round in the engine's order.

        ``cell.width`` is k + 1. Drafts (none for k = 0 or no drafter), then verify, then accept.
        Acceptance is pinned: what is accepted is computed and written down, no length advances.
        """
        ...
