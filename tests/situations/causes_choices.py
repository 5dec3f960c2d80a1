"""What makes U13 and U15: each scenario without the switch or the term that its effect comes from."""

from __future__ import annotations

from functools import cache

from tests.situations.case import Ablation, Check, falls
from tests.situations.choices import (
    CLEAN,
    DEPTHS,
    LOADED,
    MANY,
    OFF,
    STEPS15,
    WORKLOAD32,
    best15,
    rate13,
    simulated15,
)
from tests.situations.replay import rates

# -- U13 -----------------------------------------------------------------------------------------


@cache
def clean_at_32(probes: int | None = None, rests: str = "0us", drafts: bool = False) -> float:
    """Tok/s at 32 requests on the clean engine: a schedule that is off there, or goodput.

    ``probes``: idle steps between goodput's probes; ``rests``: what depth 0 costs per sequence;
    ``drafts``: the drafter runs at depth 0.
    """
    schedule = {"policy": "draft_len_schedule", "k": 4, "max_concurrency": 16}
    goodput = {"policy": "goodput", "k_max": 4, "explore_every": probes}
    (rate,) = rates(
        "u13-wrong-signal",
        profiles={CLEAN: "qwen2.5-7b-a40-clean-u13.json"},
        policies=[schedule if probes is None else goodput],
        workload=WORKLOAD32,
        sweep={},
        engine__depth_zero_overhead_per_sequence=rests,
        engine__draft_at_depth_zero=drafts,
    ).values()
    return rate


def a13() -> Ablation:
    """What a loaded drafter costs at depth 0 makes the residue; probes and passes do not."""
    clean, resting, drafting = clean_at_32(), clean_at_32(rests="246us"), clean_at_32(drafts=True)
    never, often = clean_at_32(probes=0), clean_at_32(probes=10)
    loaded = rate13("off", LOADED, MANY)
    arms = {
        "off above 16": clean,
        "depth_zero_overhead_per_sequence: 246us": resting,
        "draft_at_depth_zero: true": drafting,
        "goodput, no probes": never,
        "goodput, a probe every 10 idle steps": often,
    }
    return Ablation(
        """`depth_zero_overhead_per_sequence` on the engine whose off costs nothing: 7.9 ms a step of 32, the
        difference of the two engines' plain steps. Beside it, what a draft pass at depth 0 and
        probing would cost.""",
        (
            ("tok/s at 32 requests, clean engine", "simulated", "against the target alone"),
            *((name, f"{rate:.1f}", f"{rate / OFF[MANY] - 1:+.1%}") for name, rate in arms.items()),
        ),
        (
            Check("Without it a rule that is off loses under 1 %.", abs(clean / OFF[MANY] - 1) < 0.01),
            Check(
                "With it such a rule is the loaded engine's off, to 1 %, and loses 17 to 19 %.",
                abs(resting / loaded - 1) < 0.01 and 0.17 < 1 - resting / OFF[MANY] < 0.19,
            ),
            Check(
                "A probe every ten idle steps loses under 5 %.", 0.95 < often / OFF[MANY] < never / OFF[MANY]
            ),
            Check("A draft pass at depth 0 loses over 25 %.", drafting < 0.75 * OFF[MANY]),
        ),
    )


# -- U15 -----------------------------------------------------------------------------------------


@cache
def dense15() -> dict[int, tuple[float, ...]]:
    """Tok/s of every depth by batch when every expert is read in every step."""
    policies = [{"policy": "static", "k": depth} for depth in DEPTHS]
    found = rates("u15-depth-by-batch", profile="qwen3-235b-dense-u15.json", policies=policies)
    return {b: tuple(found[f"batch {b}", f"static(k={k})"] for k in DEPTHS) for b in STEPS15}


def a15() -> Ablation:
    """Experts make a further draft dear at batch 1."""
    stands = {batch: simulated15(batch) for batch in STEPS15}
    dense = dense15()
    slower = [a / b for a, b in zip(stands[1], dense[1], strict=True)]
    gains = {name: by[1][-1] / by[1][3] for name, by in (("moe", stands), ("dense", dense))}
    return Ablation(
        """The term of the experts; `qwen3-235b-dense-u15.json` has it at its full height in every step, as
        where every weight is read whatever the rows.""",
        (
            ("tok/s at depth", *map(str, DEPTHS)),
            *(
                (f"batch {batch}, {name}", *(f"{rate:.0f}" for rate in by[batch]))
                for batch in STEPS15
                for name, by in (("as it stands", stands), ("all experts read", dense))
            ),
        ),
        (
            Check("With all experts read the best depth at batch 1 is 6, not 4.", best15(dense[1]) == 6),
            Check(
                "Depth 6 then gains on depth 4 at batch 1; as it stands it loses.",
                gains["dense"] > 1 > gains["moe"],
            ),
            Check(
                "At batch 64, where most experts are read anyway, the best depth stays 2.",
                best15(dense[64]) == 2 == best15(stands[64]),
            ),
            Check(
                "Batch 1 is then slower at every depth, most at depth 1.",
                falls(slower) and slower[-1] > 1,
            ),
        ),
    )
