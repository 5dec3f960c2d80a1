"""docs/policies.md: every policy over the standard sweep, ``scenarios/policies.yaml``.

``python -m tests.docs.policies --run`` runs the sweep (about 20 minutes on two cores) and keeps its
means in docs/data/policies.csv; without ``--run`` the page and its picture are written from that file.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Final

from calibrate.profile import write_atomically
from sim.results.compare import Cell
from sim.scenario.load import load_scenario
from sim.sweep import run_scenario

ROOT: Final = Path(__file__).resolve().parents[2]
SCENARIO: Final = ROOT / "scenarios" / "policies.yaml"
DATA: Final = ROOT / "docs" / "data" / "policies.csv"
PAGE: Final = ROOT / "docs" / "policies.md"
TEXT: Final = Path(__file__).with_name("policies.md.in")
PICTURE: Final = ROOT / "docs" / "pictures" / "policies.svg"
BOUND: Final = "oracle"
OURS: Final = "leadline"
BY_BATCH: Final = ("per_batch_size", "disable_by_batch_size", "mlc_auto", "draft_len_schedule")
EVEN: Final = 0.01
"""Differences of throughput within this share count as none."""


@dataclass(frozen=True)
class Row:
    """One policy in one cell: means over the seeds. ``half_width`` is that of ``speed``, 95 %."""

    cell: str
    policy: str
    tokens_per_s: float
    half_width: float
    goodput_per_s: float
    waste: float
    depth: float
    flips_per_s: float

    @property
    def chain(self) -> bool:
        """Whether it drafts chains, so that the oracle bounds it."""
        return not self.policy.startswith("tree")

    @property
    def fixed(self) -> bool:
        """Whether it is a fixed depth (or none)."""
        return self.policy == "off" or self.policy.startswith("static")


class Sweep:
    """All rows, by cell and policy, in the scenario's order."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = {(row.cell, row.policy): row for row in rows}
        self.cells = list(dict.fromkeys(cell for cell, _ in self.rows))
        self.policies = list(dict.fromkeys(policy for _, policy in self.rows))

    def of(self, cell: str) -> list[Row]:
        """Rows of one cell."""
        return [self.rows[cell, policy] for policy in self.policies]

    def speed(self, cell: str, policy: str) -> float:
        """Throughput over that of ``off``."""
        return self.rows[cell, policy].tokens_per_s / self.rows[cell, "off"].tokens_per_s

    def regret(self, cell: str, policy: str) -> float:
        """What is missing to the oracle's throughput, as a share of it."""
        return 1 - self.rows[cell, policy].tokens_per_s / self.rows[cell, BOUND].tokens_per_s

    def best_fixed(self, cell: str) -> Row:
        """The best fixed depth of a cell: a point of the static envelope."""
        return max((row for row in self.of(cell) if row.fixed), key=lambda row: row.tokens_per_s)

    def best_other(self, cell: str) -> Row:
        """The best chain policy that is neither the bound nor ours."""
        others = (row for row in self.of(cell) if row.chain and row.policy not in (BOUND, OURS))
        return max(others, key=lambda row: row.tokens_per_s)

    def against_envelope(self, cell: str, policy: str) -> float:
        """Throughput over that of the best fixed depth."""
        return self.rows[cell, policy].tokens_per_s / self.best_fixed(cell).tokens_per_s


def run(jobs: int) -> Sweep:
    """Run the sweep and keep its means."""
    results = run_scenario(load_scenario(SCENARIO), jobs, on_cell=lambda cell: print(cell.cells[0].load))
    rows = [row for cell in results.comparison.cells for row in rows_of(cell)]
    with DATA.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows([getattr(row, field.name) for field in fields(Row)] for row in rows)
    return read()


def rows_of(cell: Cell) -> list[Row]:
    """The rows of one compared cell, rounded to what is kept."""
    from sim.results.compare import paired_difference

    base = cell.policy("off").values("output_tokens_per_s").tolist()
    rows = []
    for policy in cell.policies:
        values = policy.values("output_tokens_per_s").tolist()
        difference = paired_difference("output_tokens_per_s", base, values)
        metrics = ("goodput_per_s", "draft_waste_share", "depth_mean", "depth_flips_per_s")
        others = (float(f"{policy.mean(metric):.4g}") for metric in metrics)
        mean, width = policy.mean("output_tokens_per_s"), difference.ratio_half_width
        rows.append(Row(cell.load, policy.label, float(f"{mean:.6g}"), float(f"{width:.2g}"), *others))
    return rows


def read() -> Sweep:
    """The sweep as it is kept."""
    with DATA.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    numbers = [field.name for field in fields(Row)][2:]
    return Sweep(Row(r["cell"], r["policy"], *(float(r[name]) for name in numbers)) for r in rows)


# -- tables ----------------------------------------------------------------------------------------


def table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown; the first row is the heading."""
    rule = ("---",) * len(rows[0])
    return "".join(f"| {' | '.join(row)} |\n" for row in (rows[0], rule, *rows[1:]))


def by_policy(sweep: Sweep) -> str:
    """One line per policy over all cells, best first."""
    head = (
        "policy",
        "speed-up, mean",
        "worst",
        "best",
        "against the best fixed depth: mean",
        "worst",
        "within 3 %",
        "regret, mean",
        "goodput",
        "drafts wasted",
        "flips/s",
    )
    order = sorted(sweep.policies, key=lambda policy: -geometric_mean(speeds(sweep, policy)))
    return table([head, *(_policy_line(sweep, policy) for policy in order)])


def speeds(sweep: Sweep, policy: str) -> list[float]:
    """Speed-ups of one policy in all cells."""
    return [sweep.speed(cell, policy) for cell in sweep.cells]


def _policy_line(sweep: Sweep, policy: str) -> tuple[str, ...]:
    speed = speeds(sweep, policy)
    envelope = [sweep.against_envelope(cell, policy) for cell in sweep.cells]
    rows = [sweep.rows[cell, policy] for cell in sweep.cells]
    good = sum(row.goodput_per_s for row in rows) / sum(
        sweep.rows[cell, "off"].goodput_per_s for cell in sweep.cells
    )
    within = sum(ratio >= 0.97 for ratio in envelope)
    return (
        f"**{policy}**" if policy == OURS else policy,
        f"{geometric_mean(speed):.3f}",
        f"{min(speed):.2f}",
        f"{max(speed):.2f}",
        f"{geometric_mean(envelope):.3f}",
        f"{min(envelope):.3f}",
        f"{within} of {len(envelope)}",
        f"{fmean(sweep.regret(cell, policy) for cell in sweep.cells):.1%}",
        f"{good:.2f}",
        f"{fmean(row.waste for row in rows):.0%}",
        f"{fmean(row.flips_per_s for row in rows):.1f}",
    )


def by_cell(sweep: Sweep) -> str:
    """One line per cell: who is best, and how far the rest is."""
    head = (
        "model, acceptance, context and clients",
        "best fixed depth",
        "best of the others",
        "leadline",
        "oracle",
        "leadline against the best of the others",
    )
    return table([head, *(_cell_line(sweep, cell) for cell in sweep.cells)])


def _cell_line(sweep: Sweep, cell: str) -> tuple[str, ...]:
    fixed, other = sweep.best_fixed(cell), sweep.best_other(cell)
    gain = sweep.rows[cell, OURS].tokens_per_s / other.tokens_per_s - 1
    return (
        cell,
        f"{fixed.policy} {sweep.speed(cell, fixed.policy):.2f}",
        f"{other.policy} {sweep.speed(cell, other.policy):.2f}",
        f"{sweep.speed(cell, OURS):.2f}",
        f"{sweep.speed(cell, BOUND):.2f}",
        f"{gain:+.1%}" if abs(gain) >= EVEN else f"{gain:+.1%} (even)",
    )


def summary(sweep: Sweep) -> str:
    """What the sweep says, counted: about fixed depths, the others, ours, trees and the bound."""
    lines = (
        _of_fixed(sweep),
        _of_costs(sweep),
        _of_tables(sweep),
        _of_ours(sweep),
        _of_trees(sweep),
        _left(sweep),
    )
    return "".join(f"- {line}\n" for line in lines)


def _envelope(sweep: Sweep, policy: str) -> list[float]:
    return [sweep.against_envelope(cell, policy) for cell in sweep.cells]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _of_fixed(sweep: Sweep) -> str:
    fixed = [policy for policy in sweep.policies if policy.startswith("static")]
    best = max(fixed, key=lambda policy: geometric_mean(_envelope(sweep, policy)))
    ratios = _envelope(sweep, best)
    chosen = {sweep.best_fixed(cell).policy for cell in sweep.cells}
    return (
        f"**No fixed depth fits.** {len(chosen)} different ones are best in some cell; the best single one, "
        f"{best}, is {_percent(geometric_mean(ratios))} against the best of each cell on average and "
        f"{_percent(min(ratios))} in its worst."
    )


def _of_costs(sweep: Sweep) -> str:
    told = ", ".join(_against(sweep, policy) for policy in ("goodput", "adaspec", OURS))
    return (
        "**Rules with a cost model follow the envelope of the fixed depths** without being told the load: "
        f"against the best fixed depth of each cell {told}."
    )


def _against(sweep: Sweep, policy: str) -> str:
    ratios = _envelope(sweep, policy)
    return f"`{policy}` {_percent(geometric_mean(ratios))} (worst {_percent(min(ratios))})"


def _of_tables(sweep: Sweep) -> str:
    named = [policy for policy in sweep.policies if policy.startswith(BY_BATCH)]
    worst = {policy: min(sweep.cells, key=lambda c: sweep.against_envelope(c, policy)) for policy in named}
    told = ", ".join(
        f"`{policy.partition('(')[0]}` {_percent(sweep.against_envelope(cell, policy))} ({cell})"
        for policy, cell in worst.items()
    )
    return (
        "**Rules keyed on the batch alone carry one model's numbers to another.** Their worst cells, against "
        f"the best fixed depth: {told}."
    )


def _of_ours(sweep: Sweep) -> str:
    ours = {cell: sweep.rows[cell, OURS].tokens_per_s for cell in sweep.cells}
    gains = {cell: ours[cell] / sweep.best_other(cell).tokens_per_s - 1 for cell in sweep.cells}
    better = sum(gain >= EVEN for gain in gains.values())
    behind = {cell: gain for cell, gain in gains.items() if gain <= -EVEN}
    worse = "; ".join(f"{cell} {100 * gain:+.1f} %" for cell, gain in behind.items()) or "none"
    even = len(gains) - better - len(behind)
    return (
        f"**`{OURS}` beats the best of all others in the cell by 1 % or more in {better} of {len(gains)} "
        f"cells**, is even (within 1 %) in {even}, and behind in {len(behind)} ({worse}). The best of the "
        "others is another policy from cell to cell, picked in hindsight among some thirty."
    )


def _of_trees(sweep: Sweep) -> str:
    tree = next(policy for policy in sweep.policies if policy.startswith("tree"))

    def mean(model: str, few: bool) -> str:
        cells = [c for c in sweep.cells if c.startswith(model) and (int(c.rpartition("c=")[2]) <= 8) == few]
        return _percent(geometric_mean(sweep.against_envelope(cell, tree) for cell in cells))

    return (
        "**Trees are for few clients of a dense model**: against the best fixed chain the tree is "
        f"{mean('dense', True)} at up to 8 clients and {mean('dense', False)} above; on the MoE "
        f"{mean('moe', True)} and {mean('moe', False)}."
    )


def _left(sweep: Sweep) -> str:
    ours = fmean(sweep.regret(cell, OURS) for cell in sweep.cells)
    fixed = fmean(sweep.regret(cell, sweep.best_fixed(cell).policy) for cell in sweep.cells)
    rows = ((cell, row) for cell in sweep.cells for row in sweep.of(cell) if row.chain)
    nearest = min(sweep.regret(cell, row.policy) for cell, row in rows if row.policy != BOUND)
    return (
        f"**What is left on the table**: {100 * fixed:.1f} % of the oracle's throughput for the best fixed "
        f"depth of each cell, {100 * ours:.1f} % for `{OURS}`: what claims of AUC 0.85 cannot tell. No chain "
        f"policy comes nearer than {100 * nearest:.1f} % to it, anywhere."
    )


# -- picture ---------------------------------------------------------------------------------------


def draw(sweep: Sweep) -> None:
    """The heat map of throughput as a share of the oracle's: policies by cells."""
    import altair as alt

    order = sorted(sweep.policies, key=lambda policy: -geometric_mean(speeds(sweep, policy)))
    values = [
        {
            "policy": policy,
            "cell": cell.rpartition("c=")[2],
            "group": ", ".join(cell.rpartition(" c=")[0].split(", ")),
            "at": number,
            "share": round(1 - sweep.regret(cell, policy), 3),
        }
        for number, cell in enumerate(sweep.cells)
        for policy in order
    ]
    groups = list(dict.fromkeys(value["group"] for value in values))
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_rect()
        .encode(
            x=alt.X("cell:N", sort=None, title=None, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("policy:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("share:Q", title="of oracle", scale=alt.Scale(scheme="viridis", domain=[0.5, 1])),
        )
        .properties(width=110, height=380)
        .facet(facet=alt.Facet("group:N", sort=groups, title="tok/s by number of clients"), columns=6)
        .resolve_scale(x="independent")
    )
    chart.save(str(PICTURE), format="svg")


def page(sweep: Sweep) -> str:
    """The page from its text and the sweep."""
    text = TEXT.read_text(encoding="utf-8")
    parts = {"summary": summary(sweep), "by_policy": by_policy(sweep), "by_cell": by_cell(sweep)}
    for name, made in parts.items():
        text = text.replace(f"<!-- {name} -->", made.rstrip("\n"))
    return text


if __name__ == "__main__":
    DATA.parent.mkdir(exist_ok=True)
    found = run(os.cpu_count() or 1) if "--run" in sys.argv else read()
    write_atomically(PAGE, page(found))
    draw(found)
