"""Case 8: what a pass costs, beside tables of whole passes and beside cells that were left out.

A composed time beside the very tables it was added up from is a *fit*; beside a pass that somebody
else timed as a whole it is a *prediction*. Curves are checked by leaving out every second point and
going straight between the others, attention by fitting one half of its cells and predicting the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from calibrate.compose import checks
from calibrate.compose.catalogue import LLAMA_8B, QWEN_30B
from calibrate.compose.devices import A100, B200, H100, H200
from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.fits import relative_fit
from calibrate.compose.linear import linear_term, vidur_linear_term
from calibrate.compose.model_files import target_shape
from calibrate.compose.moe import moe_term
from calibrate.compose.passes import Kernels
from calibrate.compose.tables import Folders, Ledger
from calibrate.profile import Curve, Term, load_profile
from sim.cost.passes import PassCost
from sim.cost.step_cost import StepCost
from sim.scenario.catalogue import locate
from tests.published.judged import Account, Row, account, error_cell, percent
from tests.published.measure import read

LIMIT: Final = 0.10
SAME: Final = "same tables: a fit"
OTHER: Final = "another source: a prediction"
KINDS: Final = {checks.AIC_8B: SAME, checks.AIC_27B: SAME, checks.VIDUR_8B: SAME}
"""Of the groups of ``calibrate.compose.checks``; all others are ``OTHER``."""

ADIXG: Final = "Qwen3-1.7B H100, every captured forward of adixg, contexts 0 to 32,000"
SAVED: Final = f"{ADIXG}, less what Llama-3.1-8B's pass saves a layer"
ONE_NUMBER: Final = "one number from SpecDecode-Bench's fitted forward"


@dataclass(frozen=True)
class Surface:
    """Rows of one table; ``kind`` says what the comparison is worth."""

    what: str
    kind: str
    rows: tuple[Row, ...]

    @property
    def mean(self) -> float:
        """Mean of the absolute errors."""
        return float(np.mean([abs(row.error) for row in self.rows]))

    @property
    def line(self) -> list[str]:
        """Cells of the page's table."""
        errors = np.array([row.error for row in self.rows])
        held = f"{sum(row.holds for row in self.rows)} of {len(self.rows)}"
        worst = float(errors[np.argmax(np.abs(errors))])
        return [self.what, self.kind, held, f"{100 * self.mean:.1f} %", percent(worst)]


def folders(groundtruth: Path) -> Folders:
    """The kernel tables lie beside the published ones."""
    data = groundtruth.parent / "data"
    return Folders(data / "aiconfigurator_perf", groundtruth, data)


# -- whole passes ----------------------------------------------------------------------------------


@cache
def whole(groundtruth: Path) -> tuple[Surface, ...]:
    """Composed passes beside those of other people."""
    groups: dict[str, list[Row]] = {}
    for check in checks.checks(folders(groundtruth)):
        if check.group not in (checks.FORWARD_17B, checks.FORWARD_17B_8K):
            groups.setdefault(check.group, []).append(Row(check.published_ms, check.composed_ms, LIMIT))
    found = [Surface(group, KINDS.get(group, OTHER), tuple(rows)) for group, rows in groups.items()]
    return (
        *found,
        Surface(ADIXG, OTHER, tuple(_adixg(groundtruth))),
        Surface(SAVED, ONE_NUMBER, tuple(_adixg(groundtruth, saved_ns_per_layer(groundtruth)))),
    )


def saved_ns_per_layer(groundtruth: Path) -> float:
    """What SpecDecode-Bench's fitted pass of Llama-3.1-8B at batch 1 is below its kernels, a layer.

    Kernels timed one by one each pay their start and end; in a captured graph these overlap.
    """
    one = next(each for each in checks.checks(folders(groundtruth)) if each.group == checks.FIT_8B)
    return (
        1e6 * (one.composed_ms - one.published_ms) / target_shape(LLAMA_8B, "", folders(groundtruth)).layers
    )


def _adixg(groundtruth: Path, saved_ns: float = 0.0) -> Iterable[Row]:
    where = folders(groundtruth)
    shape = target_shape("model_configs/Qwen--Qwen3-1.7B.json", "Qwen3-1.7B", where)
    terms = Kernels(where, H100, Ledger()).verify(shape)
    saved = saved_ns * shape.layers
    for row in read(groundtruth / "adixg_h100_forward_ms_by_tokens_and_context.csv"):
        if (row["model"], row["mode"]) == ("Qwen3-1.7B", "cudagraph"):
            at = decode_shape(float(row["n_tokens"]), float(row["context_per_request"]))
            yield Row(float(row["forward_ms"]), (pass_ns(terms, at) - saved) / 1e6, LIMIT)


# -- cells left out --------------------------------------------------------------------------------


@cache
def left_out(groundtruth: Path) -> tuple[Surface, ...]:
    """Cells of the tables themselves, predicted from the other cells."""
    where, ledger = folders(groundtruth), Ledger()
    llama, moe = (target_shape(*each, where) for each in ((LLAMA_8B, "Llama-3.1-8B"), (QWEN_30B, "30B")))
    machines = {"H100": H100, "H200": H200, "B200": B200, "A100": A100}
    tables = {name: Kernels(where, machine, ledger).gemm for name, machine in machines.items()}
    model = "meta-llama/Meta-Llama-3-8B"
    vidur = vidur_linear_term(where, "a100", model, tables["A100"], llama.linears, ledger)
    curves = {
        f"Llama-3.1-8B linear layers, {name}, AIC": linear_term(table, llama.linears, ledger)
        for name, table in tables.items()
    }
    curves["Llama-3-8B linear layers, A100, Vidur"] = vidur
    if moe.moe is not None:
        curves["Qwen3-30B-A3B experts, H100, AIC"] = moe_term(where, "h100_sxm", moe.moe, ledger)
    every = "every second point: a prediction"
    found = [Surface(name, every, tuple(_second(term))) for name, term in curves.items()]
    return (*found, *_attention(groundtruth), _captured(groundtruth))


def _second(term: Term) -> Iterable[Row]:
    """Every second point of a curve, straight between its neighbours."""
    assert term.curve is not None
    yield from _between(np.asarray(term.curve.x, float), np.asarray(term.curve.ns, float))


def _between(x: np.ndarray, ns: np.ndarray) -> Iterable[Row]:
    for at, published in zip(x[1:-1:2], ns[1:-1:2], strict=True):
        yield Row(float(published), float(np.interp(at, x[::2], ns[::2])), LIMIT)


def _attention(groundtruth: Path) -> Iterable[Surface]:
    """Decode attention of 32/8 heads: one half of the cells fitted, the other half predicted."""
    table = read(groundtruth / "aiconfigurator_decode_attention_32q8kv128.csv")
    for gpu in ("h100_sxm", "h200_sxm", "b200_sxm"):
        cells = np.array(sorted(_cells(table, gpu)))
        batch, context, ms = cells.T
        columns = np.stack([np.ones_like(batch), batch, batch * context])
        fitted = relative_fit(list(columns[:, ::2]), ms[::2])
        predicted = np.asarray(fitted.coefficients) @ columns[:, 1::2]
        rows = tuple(Row(float(m), float(p), LIMIT) for m, p in zip(ms[1::2], predicted, strict=True))
        yield Surface(
            f"decode attention, 32/8 heads, {gpu[:4].upper()}, AIC", "the other half: a prediction", rows
        )


def _cells(table: list[dict[str, str]], gpu: str) -> Iterable[tuple[float, float, float]]:
    """Batch, context and ms in the domain of ``calibrate.compose.attention``."""
    for row in table:
        batch, context = float(row["batch_size"]), float(row["isl"]) + float(row["step"])
        plain = row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16"
        if row["gpu"] == gpu and plain and batch <= 512 and 64 <= context <= 32768:
            yield batch, context, float(row["latency"])


# -- captured sizes and the cliff ------------------------------------------------------------------

DSV4: Final = "DeepSeek-V4-Flash verify pass, 4x B300 (vLLM's DSpark post)"
LAYERS: Final = 43
"""Of DeepSeek-V4-Flash, by its config."""

LAUNCHES_MS: Final = 8.3 / 28 * LAYERS
"""An eager step that is bound by launches, at adixg's 0.296 ms a layer."""


@cache
def staircase(groundtruth: Path) -> dict[int, float]:
    """ms by tokens: each captured size up to 1,024, then what the figure has beyond.

    The figure draws a stair: at each corner first the ms before it, then those behind it.
    """
    table = read(groundtruth / "vllm_dspark_cost_tables_dsv4flash_B300_TP4.csv")
    corners = [(int(row["x"]), float(row["ms"])) for row in table if row["curve"] == "verify_ms_vs_tokens"]
    inside = {x: ms for x, ms in reversed(corners) if x < 1025}
    last = next(ms for x, ms in corners if x == 1025)
    return {**dict(sorted(inside.items())), 1024: last, **{x: ms for x, ms in corners if x >= 1025}}


def _captured(groundtruth: Path) -> Surface:
    steps = {x: ms for x, ms in staircase(groundtruth).items() if x <= 1024}
    x, ms = (np.asarray(values, float) for values in (list(steps), list(steps.values())))
    return Surface(DSV4, "every second captured size: a prediction", tuple(_between(x, ms)))


@dataclass(frozen=True)
class Cliff:
    """A pass of ``tokens``: with launches of another model, and with the step at 1,025 tokens given."""

    tokens: int
    launches: Row
    given: Row


@cache
def cliff(groundtruth: Path) -> tuple[Cliff, ...]:
    """Around the largest captured graph; the first is the last that is captured."""
    steps = staircase(groundtruth)
    measured = {x: ms for x, ms in steps.items() if 1024 <= x < 4096}
    own, given = (_engine(steps, floor) for floor in (LAUNCHES_MS, steps[1025]))
    return tuple(
        Cliff(
            x,
            Row(ms, own.verify_ns(x, 1, x, 0, 0, 0) / 1e6, LIMIT),
            Row(ms, given.verify_ns(x, 1, x, 0, 0, 0) / 1e6, LIMIT),
        )
        for x, ms in measured.items()
    )


def _engine(steps: dict[int, float], eager_ms: float) -> StepCost:
    """The cost model with the captured sizes, where an eager step takes ``eager_ms`` at least."""
    captured = {x: ms for x, ms in steps.items() if x <= 1024}
    curve = Curve(x=tuple(captured), ns=tuple(1e6 * ms for ms in captured.values()), between="step")
    verify = (Term(name="verify", mark="measured", source=DSV4, curve=curve),)
    inside = PassCost(verify, 2049)
    grid = (1, 1025, 1280, 1536, 1792, 2048)
    extra = Curve(x=grid, ns=tuple(max(0.0, 1e6 * eager_ms - inside.ns(x, 1, 1)) for x in grid))
    eager = (Term(name="eager_extra", mark="assumed", source=DSV4, curve=extra),)
    base = load_profile(locate("profile", "llama-3.1-8b-h100", Path()))  # its frame alone: no time is kept
    target = base.target.model_copy(update={"verify": verify, "eager_extra": eager})
    return StepCost(base.model_copy(update={"target": target}), None, 2047, tuple(captured))


# -- the page --------------------------------------------------------------------------------------

HEAD: Final = "cells | compared with | within 10 % | mean error | worst"
CLIFF_HEAD: Final = (
    "tokens | measured, ms | launches from elsewhere | error | eager step given at 1,025 | error"
)


def cliff_rows(groundtruth: Path) -> Iterable[list[str]]:
    """Around the last captured graph."""
    for step in cliff(groundtruth):
        yield [
            f"{step.tokens:,}",
            f"{step.launches.published:.2f}",
            f"{step.launches.simulated:.2f}",
            error_cell(step.launches),
            f"{step.given.simulated:.2f}",
            error_cell(step.given),
        ]


def accounts(groundtruth: Path) -> list[Account]:
    """Predictions of whole passes, of cells left out, of the cliff, and what is no prediction."""
    passes = whole(groundtruth)
    what = "cost surfaces:"

    def of(title: str, inputs: str, kind: str, rows: Iterable[Row]) -> Account:
        return account(8, f"{what} {title}", "10 %", inputs, kind, rows)

    return [
        of("whole passes", "kernels added up", "blind", _rows(passes, OTHER)),
        of(
            "cells left out",
            "the other cells of the table",
            "fitted on other cells",
            _rows(left_out(groundtruth)),
        ),
        of(
            "the step past the graphs",
            "captured sizes, launches of another model",
            "blind",
            [step.launches for step in cliff(groundtruth)[1:]],
        ),
        of(
            "a small model's passes",
            "kernels added up, less what another model's pass saves a layer",
            "one number of another source; that it was needed was known",
            _rows(passes, ONE_NUMBER),
        ),
        of("whole passes", "the same kernel tables", "a fit, no prediction", _rows(passes, SAME)),
    ]


def _rows(surfaces: Iterable[Surface], kind: str = "") -> list[Row]:
    return [row for surface in surfaces if kind in ("", surface.kind) for row in surface.rows]
