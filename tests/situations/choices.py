"""U13 and U15: whether to speculate, judged by acceptance or by cost, and which depth at which batch."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from sim.sweep import run_scenario
from tests.situations.case import Case, Check
from tests.situations.replay import scenario, value

# -- U13 -----------------------------------------------------------------------------------------

CLEAN, LOADED = "clean", "loaded"
ONE, MANY = "batch 1", "batch 32"
OFF: Final = {ONE: 33.8, MANY: 867.8}
RESTING: Final = {ONE: 33.41, MANY: 715.1}
"""Reported tok/s of the target alone, and of the engine with a drafter that is switched off."""

REPORTED: Final = {
    "off": ("33.8", "867.8", "33.4", "715.1"),
    "static(k=1)": ("", "", "41.7", "733.5"),
    "static(k=2)": ("", "", "45.4", "677.9"),
    "static(k=3)": ("", "", "50.6", "589.8"),
    "static(k=4)": ("", "", "56.4", ""),
}
WORKLOAD32: Final = {
    "arrival": {"process": "closed", "max_concurrency": 32},
    "lengths": {"input": 1, "output": 96},
    "num_requests": 128,
}
"""The load ``batch 32`` of the scenario."""

BY_ACCEPTANCE: Final = ("off below 0.8", "sglang_ema")
BY_COST: Final = ("goodput(k_max=4)", "leadline(k_max=4)")
U13_ARMS: Final = (*REPORTED, "off below 0.8", "off below 0.9", "sglang_ema", *BY_COST)


def rate13(policy: str, engine: str, batch: str) -> float:
    """Output tok/s of one policy on one engine."""
    return value("u13-wrong-signal", policy, "output_tokens_per_s", f"{engine}, {batch}")


def loss13(policy: str) -> float:
    """What a policy loses against off at 32 requests, on an engine where off costs nothing."""
    return 1 - rate13(policy, CLEAN, MANY) / rate13("off", CLEAN, MANY)


def accepted13(batch: str) -> float:
    """Share of drafts accepted at depth 1."""
    return 1 - value("u13-wrong-signal", "static(k=1)", "draft_waste_share", f"{CLEAN}, {batch}")


@cache
def with_a_pass_at_depth_zero() -> float:
    """Output tok/s at 32 requests of a schedule that is off there but runs the drafter's first pass."""
    chosen = scenario(
        "u13-wrong-signal",
        engine__draft_at_depth_zero=True,
        profiles={CLEAN: "qwen2.5-7b-a40-clean-u13.json"},
        policies=[{"policy": "draft_len_schedule", "k": 4, "max_concurrency": 16}],
        workload=WORKLOAD32,
        sweep={},
    )
    (cell,) = run_scenario(chosen).comparison.cells
    return cell.policies[0].mean("output_tokens_per_s")


def u13() -> Case:
    """Acceptance is the same at every load; what a draft costs is not."""
    best = max(rate13(policy, LOADED, MANY) for policy in U13_ARMS)
    idle = with_a_pass_at_depth_zero()
    return Case(
        "U13",
        "Should acceptance decide whether to speculate?",
        """vLLM PR 26504, comment of 2026-06-12, and its logs (KookiesNKareem/spec-goodput-control):
        Qwen2.5-7B on an A40 drafted by its own AWQ copy, vLLM 0.6.3""",
        ("u13-wrong-signal",),
        """Plain steps from the target's own tok/s. What drafting costs is fitted to depths 1 and 4 at one
        request and 1, 2 and 3 at 32; acceptance 0.9 per draft (0.90, 0.86, 0.89 and 0.91, 0.85, 0.83 accepted
        of drafted at depths 1, 2, 3). Two engines: "clean" is started without a drafter, and off is that;
        on "loaded" off takes what the report's engine took with a drafter loaded and switched off. Loads
        between 1 and 32 are not replayed: a draft's cost per sequence is not in these profiles.""",
        (
            ("tok/s", f"{ONE}, reported", CLEAN, LOADED, f"{MANY}, reported", CLEAN, LOADED),
            *(_u13_row(policy) for policy in U13_ARMS),
        ),
        (
            Check(
                "Acceptance at depth 1 is 0.86 to 0.91 at both loads.",
                all(0.86 < accepted13(batch) < 0.91 for batch in (ONE, MANY)),
            ),
            Check(
                "At one request depth 4 is best, 56.4 tok/s against 33.8, to 1 %.",
                abs(rate13("static(k=4)", CLEAN, ONE) / 56.4 - 1) < 0.01
                and _best_depth13(ONE) == "static(k=4)",
            ),
            Check(
                "Its depths 2 and 3, predicted, are within 10 %.", all(_near13(k, ONE, 0.1) for k in (2, 3))
            ),
            Check("At 32 requests off is best: 867.8 tok/s.", _best_depth13(MANY) == "off"),
            Check(
                "Rules that watch acceptance go on speculating and lose 15 to 22 % (reported: 15, 21 %).",
                all(0.15 <= round(loss13(policy), 2) <= 0.22 for policy in BY_ACCEPTANCE),
            ),
            Check(
                "A threshold of 0.9 that stops them there stops them at one request, too.",
                loss13("off below 0.9") < 0.1 and rate13("off below 0.9", CLEAN, ONE) < 1.1 * OFF[ONE],
            ),
            Check(
                "On the clean engine rules that weigh cost are within 3 % of the best choice at both loads.",
                all(rate13(p, CLEAN, ONE) > 0.97 * rate13("static(k=4)", CLEAN, ONE) for p in BY_COST)
                and all(abs(loss13(p)) < 0.03 for p in BY_COST),
            ),
            Check(
                "With a drafter loaded no rule reaches 0.86 of the engine without one at 32 requests.",
                best < 0.86 * OFF[MANY],
            ),
            Check(
                "An engine where off costs nothing promises rules that turn off 20 % more than was measured.",
                all(rate13(policy, CLEAN, MANY) > 1.2 * RESTING[MANY] for policy in BY_COST),
            ),
            Check(
                "That residue is not probing: goodput's probes cost less than 1 %.",
                0 <= loss13(BY_COST[0]) < 0.01,
            ),
            Check("Nor a draft pass at depth 0, which would cost more than 25 %.", idle < 0.75 * OFF[MANY]),
        ),
        f"""Acceptance says how many tokens a round brings, not how long it takes: from one request to 32 the
        round of depth 1 grows from {1e3 * 1.9 / 41.7:.0f} to {32e3 * 1.9 / 733.5:.0f} ms for the same
        1.9 tokens a request. The engine that can speculate at all is 18 % slower when it does not: 0.24 ms
        a step for every request beyond the first. The report traces this to the engine's own path (no
        asynchronous output processing); a spot check on vLLM 0.22 found 15 %, n-gram drafting included.
        No rule can win that back; it belongs into the steps of every policy but off. A draft pass at
        depth 0 would leave {idle:.0f} tok/s.""",
    )


def _u13_row(policy: str) -> tuple[str, ...]:
    clean, many, loaded, many_loaded = REPORTED.get(policy, ("",) * 4)
    seen = (" / ".join(filter(None, pair)) for pair in ((clean, loaded), (many, many_loaded)))
    cells = ([f"{rate13(policy, engine, batch):.1f}" for engine in (CLEAN, LOADED)] for batch in (ONE, MANY))
    return (policy, *(cell for one, two in zip(seen, cells, strict=True) for cell in (one, *two)))


def _best_depth13(batch: str) -> str:
    return max(REPORTED, key=lambda policy: rate13(policy, CLEAN, batch))


def _near13(depth: int, batch: str, share: float) -> bool:
    reported = float(REPORTED[f"static(k={depth})"][2])
    return abs(rate13(f"static(k={depth})", LOADED, batch) / reported - 1) < share


# -- U15 -----------------------------------------------------------------------------------------

DEPTHS: Final = (1, 2, 3, 4, 5, 6)
STEPS15: Final = {
    1: (162, 188, 195, 199, 199, 188),
    16: (1268, 1451, 1531, 1537, 1464, 1413),
    64: (3353, 3693, 3555, 3400, 3222, 3054),
}
"""Reported tok/s by batch, for 1 to 6 draft steps."""

FITTED: Final = ((1, 1), (1, 6), (64, 1), (64, 6))
ALPHA: Final = 0.7
OTHERS: Final = (0.6, 0.8)


def tokens15(depth: int, alpha: float) -> float:
    """Tokens a round."""
    return float(sum(alpha**j for j in range(depth + 1)))


def experts(rows: float) -> float:
    """Share of 128 experts that ``rows`` reach when each draws eight of its own."""
    return float(1.0 - (1 - 8 / 128) ** rows)


def parts(batch: int, depth: int, experts_count: bool) -> tuple[float, ...]:
    """What a round's ms are linear in: one, experts (or sequences), rows, draft passes."""
    rows = batch * (depth + 1)
    return (1.0, experts(rows) if experts_count else batch, rows, depth)


@cache
def fitted(alpha: float, experts_count: bool) -> tuple[float, ...]:
    """Coefficients through depths 1 and 6 at batch 1 and 64, in ms."""
    seen = [1e3 * b * tokens15(k, alpha) / STEPS15[b][k - 1] for b, k in FITTED]
    return tuple(np.linalg.solve([parts(b, k, experts_count) for b, k in FITTED], seen).tolist())


def law(batch: int, alpha: float = ALPHA, experts_count: bool = True) -> tuple[float, ...]:
    """Tok/s of every depth by that formula."""
    ms = [float(np.dot(fitted(alpha, experts_count), parts(batch, k, experts_count))) for k in DEPTHS]
    return tuple(1e3 * batch * tokens15(k, alpha) / t for k, t in zip(DEPTHS, ms, strict=True))


def simulated15(batch: int) -> tuple[float, ...]:
    """Tok/s of every depth."""
    return tuple(
        value("u15-depth-by-batch", f"static(k={k})", "output_tokens_per_s", f"batch {batch}") for k in DEPTHS
    )


def best15(rates: tuple[float, ...]) -> int:
    """The depth with the most tok/s."""
    return DEPTHS[int(np.argmax(rates))]


def u15() -> Case:
    """The best depth falls with the batch, and experts decide how fast steps grow."""
    got = {batch: simulated15(batch) for batch in STEPS15}
    line = law(16, experts_count=False)
    return Case(
        "U15",
        "Which depth at which batch, on a large mixture of experts?",
        "sglang PR 22246: Qwen3-235B-A22B with EAGLE-3, 1 to 6 draft steps, batch 1 to 64",
        ("u15-depth-by-batch",),
        f"""Costs fitted to depths 1 and 6 at batch 1 and 64: {_u15_costs()}. The middle term is the share of
        the 128 experts that n rows reach with eight each (config of the model). Acceptance is not in the
        thread: {ALPHA} per draft is assumed. Other depths, and batch 16, are predicted. The last row puts a
        straight line over the sequences in the place of the experts.""",
        (
            ("tok/s at depth", *map(str, DEPTHS)),
            *(row for batch in STEPS15 for row in _u15_rows(batch, got[batch])),
            *(
                (f"batch 16, by formula, acceptance {alpha}", *(f"{rate:.0f}" for rate in law(16, alpha)))
                for alpha in OTHERS
            ),
            ("batch 16, by formula, a line for the experts", *(f"{rate:.0f}" for rate in line)),
        ),
        (
            Check(
                "The four fitted speeds come back to within 1.5 %.",
                all(abs(got[b][k - 1] / STEPS15[b][k - 1] - 1) < 0.015 for b, k in FITTED),
            ),
            Check("At batch 1 the best depth is 4 or 5.", best15(got[1]) in (4, 5)),
            Check("At batch 64 it is 2.", best15(got[64]) == 2),
            Check("At batch 16, predicted, it is 3 or 4.", best15(got[16]) in (3, 4)),
            Check(
                "The fitted batches' other depths are within 3 %, batch 16 within 6 %.",
                all(_within15(got[b], b, 0.03) for b in (1, 64)) and _within15(got[16], 16, 0.06),
            ),
            Check(
                "The formula and the simulation agree to 2 %.",
                all(np.allclose(got[batch], law(batch), rtol=0.02) for batch in STEPS15),
            ),
            Check(
                "With acceptance 0.6 or 0.8 instead, fitted again, the best depths are in the same ranges.",
                all(_ranges_hold(alpha) for alpha in OTHERS),
            ),
            Check(
                "A straight line over sequences is over 20 % too fast at batch 16.",
                all(rate > 1.2 * seen for rate, seen in zip(line, STEPS15[16], strict=True)),
            ),
            Check(
                "A rule that weighs cost (goodput) is within 4 % of the best fixed depth at each.",
                all(_goodput15(batch) > 0.96 * max(got[batch]) for batch in STEPS15),
            ),
        ),
        """A few sequences already reach most experts, so steps grow fast up to some 32 rows and slowly after:
        at batch 1 a further draft is dear for the experts it opens, at 16 it is nearly free, at 64 it is
        dear again for the arithmetic. The best depths do not hang on the assumed acceptance; the speed at
        batch 16 does, so that it is near the report says little. At batch 1 goodput's average over single
        rounds wanders, which costs it what it loses.""",
    )


def _u15_costs() -> str:
    base, reached, row, draft = fitted(ALPHA, True)
    step = f"{base:.2f} + {reached:.2f} (1 - (1 - 8/128)^n) + {row:.3f} n ms"
    return f"a step of n rows takes {step}, a draft pass {draft:.2f} ms"


def _u15_rows(batch: int, got: tuple[float, ...]) -> tuple[tuple[str, ...], ...]:
    return (
        (f"batch {batch}, reported", *map(str, STEPS15[batch])),
        (f"batch {batch}, simulated", *(f"{rate:.0f}" for rate in got)),
    )


def _within15(rates: tuple[float, ...], batch: int, share: float) -> bool:
    return bool(np.allclose(rates, STEPS15[batch], rtol=share))


def _ranges_hold(alpha: float) -> bool:
    ranges = {1: (4, 5), 16: (3, 4), 64: (2,)}
    return all(best15(law(batch, alpha)) in inside for batch, inside in ranges.items())


def _goodput15(batch: int) -> float:
    return value("u15-depth-by-batch", "goodput(k_max=6)", "output_tokens_per_s", f"batch {batch}")
