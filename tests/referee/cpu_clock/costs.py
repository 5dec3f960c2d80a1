"""Step costs of the recorded target and drafter, fitted to the closed-loop steps alone.

A cell is the median of the steps of one process at one concurrency with every client decoding (at
least five), or one prefill step. Costs are CPU time of vLLM's only thread. Fitted by least squares
of relative errors, no coefficient negative:

    target    a curve through KNOTS over the tokens of the step, and a slope in query x context
    host      all of a step outside the two models' passes: fixed, per token, per sequence
    drafter   its first pass: fixed and per token, with what drafting adds to the host part;
              each further pass: fixed and per sequence
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from calibrate.profile import (
    SCHEMA,
    Curve,
    Device,
    Drafter,
    ModelWork,
    Profile,
    Source,
    StatedError,
    Target,
    Term,
    Variable,
)
from sim.cost.step_cost import DraftHabits, StepCost
from tests.referee.cpu_clock.recordings import Columns, Recorded, select

Floats = NDArray[np.float64]

PROFILE: Final = Path(__file__).with_name("profile.json")
KNOTS: Final = (1, 4, 16, 64, 256)
MOST_TOKENS: Final = KNOTS[-1]
FEWEST: Final = 5
MS: Final = 1e6
DRAFTER: Final = "draft_model"


@dataclass(frozen=True)
class Origin:
    """Which recordings a profile is fitted to, when they were made, and the points of its curve."""

    name: str
    source: str
    knots: tuple[int, ...]
    created: str = "undated"
    command: str = "python -m tests.referee.cpu_clock"


CLEAN: Final = Origin(
    "vllm-cpu-88m",
    "closed-loop runs of vLLM 0.32 on the CPU clock, tests/referee/cpu_clock/recorded/clean_steps.csv.gz",
    KNOTS,
)


@dataclass(frozen=True)
class Cell:
    """One measured shape of a step, its depth next, and CPU milliseconds of its parts."""

    config: str
    tokens: int
    sequences: int
    depth: int
    drafts: bool
    query_context: float
    verify_ms: float
    draft_ms: float
    rest_ms: float

    @property
    def step_ms(self) -> float:
        """The whole step."""
        return self.verify_ms + self.draft_ms + self.rest_ms


# -- cells -----------------------------------------------------------------------------------------


def cells_of(recorded: Recorded) -> list[Cell]:
    """Every cell of the closed-loop steps, up to the largest curve point."""
    steps = recorded.closed_steps
    found: list[Cell] = []
    for config in dict.fromkeys(steps["config"].tolist()):
        about = recorded.configs[f"clean/{config}"]
        for clients in about["conc"]:
            found += _cells(about, select(steps, config=config, conc=clients), clients)
    return [cell for cell in found if cell.tokens <= MOST_TOKENS]


def _cells(about: dict[str, Any], rows: Columns, clients: int) -> Iterator[Cell]:
    produced = np.cumsum(rows["newtok"]) - rows["newtok"]
    context = about["prompt"] + produced / clients
    for row in np.flatnonzero(rows["newreq"] > 0):
        yield _cell(about, rows, np.array([row]), 0.0)
    decoding = np.flatnonzero((rows["newreq"] == 0) & (rows["B"] == clients))
    if len(decoding) >= FEWEST:
        yield _cell(about, rows, decoding, float((rows["T"] * context)[decoding].mean()))


def _cell(about: dict[str, Any], rows: Columns, which: NDArray[np.int64], query_context: float) -> Cell:
    mid = {name: float(np.median(rows[name][which])) for name in rows if name != "config"}
    return Cell(
        config=about["name"],
        tokens=round(mid["T"]),
        sequences=round(mid["B"]),
        depth=round(mid["nspec_next"]),
        drafts=bool(about["spec"]) and about["spec"]["method"] == "draft_model",
        query_context=query_context,
        verify_ms=mid["fwd_cpu_ms"],
        draft_ms=mid["draft_cpu_ms"],
        rest_ms=mid["step_cpu_ms"] - mid["fwd_cpu_ms"] - mid["draft_cpu_ms"],
    )


# -- fit -------------------------------------------------------------------------------------------


def fitted(design: Sequence[Sequence[float]], ms: Sequence[float]) -> list[float]:
    """Coefficients, none negative, of the least squares of relative errors."""
    y = np.array(ms)
    found, _ = nnls(np.array(design, dtype=float) / y[:, None], np.ones(len(y)))
    return [float(value) for value in found]


def profile_of(cells: Sequence[Cell], error: StatedError | None = None, origin: Origin = CLEAN) -> Profile:
    """The profile that fits the cells."""
    drafting = [cell for cell in cells if cell.drafts]
    term = partial(_term, origin.source)
    host = fitted([_host_row(cell) for cell in cells], [cell.rest_ms for cell in cells])
    drafts = fitted([_draft_row(cell) for cell in drafting], [cell.draft_ms for cell in drafting])
    return Profile(
        schema=SCHEMA,
        name=origin.name,
        kind="measured",
        created=origin.created,
        command=origin.command,
        device=_DEVICE,
        dtype="float32",
        execution="cpu",
        max_tokens=origin.knots[-1],
        target=Target(
            work=_WORK, verify=_verify_terms(cells, origin), host=(term("host", host[0], host[1:3]),)
        ),
        drafters={DRAFTER: _drafter(drafts, host[3:], term)},
        error=error,
        sources=(Source(name="vllm-cpu", what=origin.source),),
        notes="vLLM 0.32 (vllm-cpu), eager, one thread, random weights; CPU time of the engine's thread.",
    )


def _hats(tokens: int, knots: tuple[int, ...]) -> list[float]:
    """Weights of the curve's points at ``tokens``."""
    return [float(np.interp(tokens, knots, np.arange(len(knots)) == i)) for i in range(len(knots))]


def _host_row(cell: Cell) -> list[float]:
    drafts = float(cell.drafts)
    return [1.0, cell.tokens, cell.sequences, drafts, drafts * cell.tokens]


def _draft_row(cell: Cell) -> list[float]:
    further = max(cell.depth - 1, 0)
    return [1.0, cell.tokens, further, further * cell.sequences]


def _verify_terms(cells: Sequence[Cell], origin: Origin) -> tuple[Term, ...]:
    design = [[*_hats(cell.tokens, origin.knots), cell.query_context] for cell in cells]
    *curve, context = fitted(design, [cell.verify_ms for cell in cells])
    ns = tuple(round(value * MS) for value in curve)
    source = origin.source
    return (
        Term(
            name="tokens", mark="measured", source=source, curve=Curve(over="tokens", x=origin.knots, ns=ns)
        ),
        Term(
            name="context",
            mark="measured",
            source=source,
            per_ns={"query_context_tokens": round(context * MS, 1)},
        ),
    )


def _term(source: str, name: str, fixed_ms: float, slopes_ms: Sequence[float]) -> Term:
    """A straight line; slopes are per token and per sequence."""
    variables: tuple[Variable, Variable] = ("tokens", "sequences")
    per_ns = {v: round(ms * MS, 1) for v, ms in zip(variables, slopes_ms, strict=False)}
    return Term(name=name, mark="measured", source=source, fixed_ns=round(fixed_ms * MS), per_ns=per_ns)


def _drafter(drafts: Sequence[float], host: Sequence[float], term: Callable[..., Term]) -> Drafter:
    first, each = drafts[:2], drafts[2:]
    return Drafter(
        kind=DRAFTER,
        work=_DRAFT_WORK,
        first=(term("first_pass", first[0], first[1:]), term("host_of_drafting", host[0], host[1:])),
        next=(term("next_pass", each[0], [0.0, each[1]]),),
    )


def _work(name: str, layers: int, hidden: int, heads: int, kv_heads: int, mlp: int) -> ModelWork:
    """Llama shapes of the recordings' model files: head size 64, 8192 tokens, fp32."""
    attention = 2 * hidden * heads * 64 + 2 * hidden * kv_heads * 64
    parameters = layers * (attention + 3 * hidden * mlp) + 2 * 8192 * hidden
    return ModelWork(
        name=name,
        parameters=parameters,
        weight_bytes=4 * parameters,
        read_bytes=4 * parameters,
        flops_per_token=2 * parameters,
        kv_bytes_per_token=layers * 2 * kv_heads * 64 * 4,
    )


_WORK: Final = _work("llama-88m-random", 12, 768, 12, 4, 2048)
_DRAFT_WORK: Final = _work("llama-6m-random", 3, 256, 4, 2, 704)
_DEVICE: Final = Device(
    name="one core of a shared x86 server",
    memory_bytes=16e9,
    bandwidth_bytes_per_s=1e10,
    peak_flops_per_s=1e11,
    source="round numbers, no datasheet: only step times are used",
)


# -- prices and errors -----------------------------------------------------------------------------


class Prices:
    """Step times of a profile as the engine charges them in ``vllm_v1``, in ms."""

    def __init__(self, profile: Profile) -> None:
        habits = DraftHabits(over_scheduled=True, idle_pass=True, uniform=True)
        self.plain = StepCost(profile, None, 4096, (), habits)
        self.drafting = StepCost(profile, profile.drafters[DRAFTER], 4096, (), habits)

    def step_ms(self, tokens: int, sequences: int, depth: int, drafts: bool, query_context: float) -> float:
        """One step; ``depth`` is that of the drafts made in it."""
        cost = self.drafting if drafts else self.plain
        ns = cost.verify.ns(tokens, sequences, tokens, 0.0, query_context)
        ns += cost.host.ns(tokens, sequences, tokens)
        if drafts:
            ns += cost.draft_ns(tokens, sequences, 0, 0, 0, [(max(depth - 1, 0), sequences, 0)])
        return ns / MS


def cell_error(prices: Prices, cell: Cell) -> float:
    """Priced over measured step, less 1."""
    priced = prices.step_ms(cell.tokens, cell.sequences, cell.depth, cell.drafts, cell.query_context)
    return priced / cell.step_ms - 1


def held_out(cells: Sequence[Cell]) -> dict[str, list[float]]:
    """Errors of each configuration's cells under the fit to all other configurations."""
    found = {}
    for config in dict.fromkeys(cell.config for cell in cells):
        prices = Prices(profile_of([cell for cell in cells if cell.config != config]))
        found[config] = [cell_error(prices, cell) for cell in cells if cell.config == config]
    return found


def calibrated(recorded: Recorded) -> Profile:
    """The profile of the closed-loop steps, with its held-out error stated."""
    cells = cells_of(recorded)
    errors = np.abs([error for found in held_out(cells).values() for error in found])
    basis = f"median over {len(errors)} cells, each priced by the fit to the other configurations"
    return profile_of(cells, StatedError(relative=round(float(np.median(errors)), 4), basis=basis))
