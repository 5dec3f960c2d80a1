"""Batch against context: the best fixed depth of a round and its gain over plain decoding, from costs alone.

For every batch and context the time of a decode-only round is asked from the same tables that the
engine charges, and divided by the tokens that the acceptance source gives on average. Gains under the
profile's error are even. Nothing here is simulated: no queue, no prompts, no spread of acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.engine.simulate import Setup
from sim.report.examples import Examples, replica_of
from sim.report.layout import Layout
from sim.report.model import Chart, PolicyStyle, Row, Table
from sim.report.vega import PANEL_WIDTH, SETTING, altair, finished, values

CONTEXTS: Final = (256, 1024, 4096, 16384, 65536)


@dataclass(frozen=True)
class Crossing:
    """The best depth of one batch at one context, and its gain over plain decoding in tokens per time.

    ``error`` is the profile's; a gain within it is even. ``fits`` is whether the KV memory holds it.
    """

    batch: int
    context: int
    depth: int
    gain: float
    error: float
    fits: bool

    @property
    def even(self) -> bool:
        """Whether the gain is within the profile's error."""
        return abs(self.gain) <= self.error

    @property
    def words(self) -> str:
        """``3: +41 ± 9 %``, ``even`` or ``does not fit``."""
        if not self.fits:
            return "does not fit"
        if self.even or self.depth == 0:
            return "even" if self.depth else "0"
        margin = f" ± {100 * self.error * (1 + self.gain):.0f}" if self.error else ""
        return f"{self.depth}: {100 * self.gain:+.0f}{margin} %"


def crossings(setup: Setup) -> list[Crossing]:
    """Every batch (powers of two up to the most sequences) at every context that the engine allows."""
    if setup.drafter is None or setup.max_depth == 0:
        return []
    plain = replica_of(_without_drafter(setup)).cost
    replica = replica_of(setup)
    depths = np.arange(min(setup.max_depth, setup.drafter.max_depth) + 1)
    tokens = _tokens_per_round(setup, depths)
    error = setup.profile.error.relative if setup.profile.error else 0.0
    room = replica.scheduler.pool.capacity * setup.engine.block_size
    found = []
    for context in (c for c in CONTEXTS if c < setup.engine.max_model_len):
        for batch in _batches(setup.engine.max_num_seqs):
            within = depths[batch * (depths + 1) <= replica.cost.max_tokens]
            total = float(batch * context)
            rate = tokens[within] / replica.cost.round_ns(batch, within, total)
            off = 1.0 / float(plain.target_ns(batch, batch, total))
            best = int(rate[1:].argmax()) + 1 if len(within) > 1 else 0
            gain = float(rate[best]) / off - 1 if best else 0.0
            wins = gain > -error
            found.append(
                Crossing(batch, context, best if wins else 0, gain if wins else 0.0, error, total <= room)
            )
    return found


def crossover(layout: Layout, examples: Examples, styles: Sequence[PolicyStyle]) -> Chart | None:
    """The map of batch and context; ``None`` if nothing drafts."""
    setups = {setting: examples.setup(setting, layout) for setting in layout.settings}
    found = {setting: crossings(setup) for setting, setup in setups.items()}
    rows: list[Row] = [
        {
            "setting": setting,
            "batch": each.batch,
            "context": each.context,
            "gain": 0.0 if each.even or not each.fits else round(100 * each.gain, 1),
            "label": _short(each),
            "words": each.words,
        }
        for setting, crossing in found.items()
        for each in crossing
    ]
    if not rows:
        return None
    alt = altair()
    top = max(20.0, *(row["gain"] for row in rows))
    scale = alt.Scale(domain=[0, top], range=["#7d828b22", "#2f7fd0"])
    base = alt.Chart().encode(
        x=alt.X("batch:O", title="batch (sequences)", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("context:O", title="context (tokens per sequence)", sort="descending"),
        tooltip=[alt.Tooltip(n) for n in ("batch:O", "context:O", "words:N")],
    )
    legend = alt.Legend(title="gain over off (%)", orient="top")
    chart = (
        alt.layer(
            base.mark_rect(stroke="#88888855").encode(color=alt.Color("gain:Q", scale=scale, legend=legend)),
            base.mark_text(fontSize=12).encode(text="label:N"),
            data=values(rows),
        )
        .transform_filter(SETTING)
        .properties(width=2 * PANEL_WIDTH, height=190)
    )
    error = next(iter(next(c for c in found.values() if c))).error
    title = "Up to which batch and context does a fixed depth pay?"
    text = f"{title} The best depth in each field; = is even with off, - does not fit the KV memory."
    note = (
        "The number is the best fixed depth, the colour its gain over plain decoding in tokens per time; 0 "
        f"is plain decoding, = is even (the gain is within the profile's error of {100 * error:.0f} %), - "
        "does not fit the KV memory. From step costs and mean acceptance alone: no queue, no prompts."
    )
    spec = finished(chart, styles, layout.settings, text)
    return Chart("crossover", title, text, spec, _table(title, found, note), note)


def _table(title: str, found: dict[str, list[Crossing]], note: str) -> Table:
    """Contexts in rows, batches in columns; ``depth: gain ± error``."""
    batches = sorted({each.batch for crossing in found.values() for each in crossing})
    rows = []
    for setting, crossing in found.items():
        words = {(each.context, each.batch): each.words for each in crossing}
        for context in dict.fromkeys(each.context for each in crossing):
            head = f"{setting}, {context:,} tokens" if setting else f"{context:,} tokens"
            rows.append((head, *(words.get((context, batch), "") for batch in batches)))
    return Table(title, ("context", *(f"batch {batch}" for batch in batches)), tuple(rows), note)


def _short(each: Crossing) -> str:
    if not each.fits:
        return "-"
    return "=" if each.even and each.depth else str(each.depth)


def _batches(most: int) -> list[int]:
    powers = [2**i for i in range(most.bit_length()) if 2**i <= most]
    return powers if powers[-1] == most else [*powers, most]


def _tokens_per_round(setup: Setup, depths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean tokens of a round at every depth, over the classes by their requests."""
    counts = np.bincount(setup.requests.class_id, minlength=len(setup.requests.classes))
    by_class = [[process.expected_tokens_per_round(int(k)) for k in depths] for process in setup.processes]
    return np.asarray(np.average(np.asarray(by_class), axis=0, weights=counts), dtype=np.float64)


def _without_drafter(setup: Setup) -> Setup:
    from dataclasses import replace

    return replace(setup, drafter=None, max_depth=0)
