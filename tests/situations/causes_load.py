"""What makes U08 to U12: each scenario without the switch or the term that its effect comes from."""

from __future__ import annotations

from functools import cache
from typing import Final

from sim.scenario.load import expand
from sim.sweep.prepare import make_run
from tests.situations.case import Ablation, Check
from tests.situations.dynamics import EMA, N2, N3, phase_rates
from tests.situations.prompts import (
    CAPPED,
    DROP,
    FAR,
    FIRST,
    KEEP,
    MIXED,
    NEAR,
    decodes_per_s,
    hit_rate,
    seconds,
    warm_tok_s,
)
from tests.situations.replay import rates, scenario, value
from tests.situations.streams import BUDGET_CLIENTS

# -- U08 -----------------------------------------------------------------------------------------


def a08() -> Ablation:
    """The rule for prompts, its cap, and the load at which it bites."""
    arms = {
        "prefill: first, 6/s": (FIRST, NEAR),
        "max_prefill_steps: 4": (CAPPED, NEAR),
        "prefill: mixed": (MIXED, NEAR),
        "prefill: first, 4/s": (FIRST, FAR),
    }
    rate = {name: decodes_per_s(*at) for name, at in arms.items()}
    stands, *others = rate.values()
    return Ablation(
        """`prefill: first` without a limit on prefill steps in a row, at a load of prompts that nearly fills
        the device: each of the three alone gives decoding back.""",
        (
            ("one thing changed", "decode steps per s", "ITL p99"),
            *(
                (name, f"{rate[name]:.2f}", f"{seconds(*at, 'itl_p99_ms'):.1f} s")
                for name, at in arms.items()
            ),
        ),
        (
            Check(
                "Each change alone brings back at least fifty times as many decode steps.",
                min(others) > 50 * stands,
            ),
        ),
    )


# -- U09 -----------------------------------------------------------------------------------------


@cache
def in_small_blocks(drop: bool) -> float:
    """Hit rate in blocks of 16 tokens, with or without the last one computed anew."""
    chosen = scenario(
        "u09-last-block", engine__prefix_unit=16, engine__drop_last_hit=drop, sweep={}, run__seeds=1
    )
    (cell,) = expand(chosen)
    run = make_run(cell.scenario, cell.scenario.policies[0], 0)[0]
    return float(1 - run.steps["prefill_tokens"].sum() / run.requests["prompt_tokens"].sum())


def a09() -> Ablation:
    """The drop, and the size of what is dropped."""
    large = {load: hit_rate(load) for load in (DROP, KEEP)}
    small = {DROP: in_small_blocks(True), KEEP: in_small_blocks(False)}
    return Ablation(
        """`drop_last_hit` and `prefix_unit` together: the drop costs as much as a unit holds.""",
        (
            ("hit rate", DROP, KEEP),
            ("prefix_unit: 1648", *(f"{rate:.1%}" for rate in large.values())),
            ("prefix_unit: 16", *(f"{rate:.1%}" for rate in small.values())),
        ),
        (
            Check("In units of 1,648 tokens the drop takes over 40 points.", large[KEEP] - large[DROP] > 0.4),
            Check("In units of 16 it takes under one point.", 0 < small[KEEP] - small[DROP] < 0.01),
            Check("Without the drop the warm turns are faster.", warm_tok_s(KEEP) > 1.4 * warm_tok_s(DROP)),
        ),
    )


# -- U11 -----------------------------------------------------------------------------------------

LOW: Final = {"process": "per_position", "unconditional": [0.68, 0.35, 0.16]}
HIGH: Final = {"process": "per_position", "unconditional": [0.995, 0.985, 0.87]}
NAMES11: Final = (N2, N3, EMA)


@cache
def steady11(kind: str, slow: bool = False) -> dict[str, float]:
    """Tok/s of three policies when every phase is of one kind; ``slow``: depth 3 as in the report's low 1."""
    acceptance = LOW if kind == "low" else HIGH
    names = ("low", "high")
    policies = [each.model_dump(exclude_none=True) for each in scenario("u11-phase-change").policies[:3]]
    profile = "eagle-tree-two-streams-slow-u11.json" if slow else "eagle-tree-two-streams-u11.json"
    found = rates(
        "u11-phase-change",
        policies=policies,
        workload__classes=[{"name": name, "share": 0.5, "acceptance": acceptance} for name in names],
        profile=profile,
    )
    return {name: found["base", name] for name in NAMES11}


def by_turns(low: float, high: float) -> float:
    """Tok/s over phases of equal tokens."""
    return 2 / (1 / low + 1 / high)


def a11() -> Ablation:
    """Without phases there is nothing to adapt to; and what depth 3 would have to cost."""
    stands = {name: phase_rates(name)[-1] for name in NAMES11}
    low, high, slow = steady11("low"), steady11("high"), steady11("low", slow=True)
    turned = {name: by_turns(slow[name], high[name]) for name in NAMES11}
    rows = {
        "as it stands": stands,
        "low acceptance throughout": low,
        "high acceptance throughout": high,
        "depth 3 in low phases as in the report's first": turned,
    }
    return Ablation(
        """Acceptance that changes (one class for all phases takes that out). The last row makes a round of
        depth 3 take, in low phases, the 15.2 ms that 288 tok/s leave
        (`eagle-tree-two-streams-slow-u11.json`), from runs of one kind each: it is what the reported gain
        needs.""",
        (
            ("tok/s over all", *NAMES11),
            *((name, *(f"{rate:.0f}" for rate in row.values())) for name, row in rows.items()),
        ),
        (
            Check(
                "Where acceptance stays low, the moving average is depth 2, to 2 %; where high, depth 3.",
                abs(low[EMA] / low[N2] - 1) < 0.02 and abs(high[EMA] / high[N3] - 1) < 0.02,
            ),
            Check(
                "In neither does it gain over 1 % on the best fixed depth.",
                all(row[EMA] < 1.01 * max(row[N2], row[N3]) for row in (low, high)),
            ),
            Check(
                "With rounds of depth 3 as slow in low phases as in the report's first, depth 2 is about "
                "twice as fast there.",
                1.7 < slow[N2] / slow[N3] < 2.3,
            ),
            Check(
                "The moving average is then 5 to 15 % faster than the best fixed depth over all.",
                1.05 < turned[EMA] / max(turned[N2], turned[N3]) < 1.15,
            ),
        ),
    )


# -- U12 -----------------------------------------------------------------------------------------


def a12() -> Ablation:
    """Drafts take budget: without them, or with budget for them, the batch grows on."""
    loads = [f"c={clients}" for clients in BUDGET_CLIENTS]
    shown = loads[3], loads[5], loads[7]
    stands = [value("u12-token-budget", "static(k=2)", "batch_mean", load) for load in shown]
    sweep = {"workload.arrival.max_concurrency": [int(load[2:]) for load in shown]}
    more = rates("u12-token-budget", "batch_mean", engine__max_num_batched_tokens=96, sweep=sweep)
    off = rates("u12-token-budget", "batch_mean", policies=["off"], sweep=sweep)
    wide = [more[load, "static(k=2)"] for load in shown]
    plain = [off[load, "off"] for load in shown]
    return Ablation(
        """Every decode takes its drafts' tokens of `max_num_batched_tokens`, too: three of 32 at depth 2.""",
        (
            ("sequences per step at clients", *(load[2:] for load in shown)),
            ("as it stands", *(f"{each:.1f}" for each in stands)),
            ("max_num_batched_tokens: 96", *(f"{each:.1f}" for each in wide)),
            ("policy off", *(f"{each:.1f}" for each in plain)),
        ),
        (
            Check("With 96 tokens, three for each of 32, the batch is 32 at 32 clients.", wide[-1] > 31.5),
            Check("Without drafts it is, too, with 32 tokens.", plain[-1] > 31.5),
            Check("As it stands it is under 11.", stands[-1] < 11),
        ),
    )
