"""What makes U02 to U07: each scenario without the switch or the term that its effect comes from."""

from __future__ import annotations

from functools import cache
from typing import Final

from tests.situations.case import Ablation, Check, three, within
from tests.situations.crossovers import CONTEXTS, DEPTH_3, OFF
from tests.situations.dynamics import DEPTH_2, GRAPHS, OWN_LOSS, RESTS, RUNS, burst_flips, burst_s
from tests.situations.passes import DEPTHS05, DRAFT_S, LOADS07, TARGET_S, WITH_S
from tests.situations.replay import changed, rates, ratios, scenario, value
from tests.situations.streams import DRAFTERS, PLAIN_MS, Row04
from tests.situations.trees import CHAIN_NAME, TREE_NAME

# -- U02 -----------------------------------------------------------------------------------------


@cache
def over_off(profile: str, contexts: tuple[int, ...] = CONTEXTS) -> tuple[float, ...]:
    """Speed of k=3 over that of off at some contexts, with another profile."""
    found = rates(
        "u02-context",
        profile=f"{profile}.json",
        policies=["off", {"policy": "static", "k": 3}],
        sweep={"workload.lengths.input": list(contexts)},
    )
    return tuple(found[at, "static(k=3)"] / found[at, "off"] for at in map(load02, contexts))


@cache
def free_at_depth_zero(contexts: tuple[int, ...]) -> tuple[float, ...]:
    """Speed of the schedule over that of off when depth 0 costs nothing of its own."""
    (schedule,) = (each for each in scenario("u02-context").policies if each.title == "off above 128")
    found = rates(
        "u02-context",
        engine__depth_zero_overhead_per_sequence="0us",
        policies=[schedule.model_dump(exclude_none=True)],
        sweep={"workload.lengths.input": list(contexts)},
    )
    off = [value("u02-context", "off", "output_tokens_per_s", at) for at in map(load02, contexts)]
    return tuple(found[load02(at), "off above 128"] / o for at, o in zip(contexts, off, strict=True))


def load02(context: int) -> str:
    """Label of a load of U02."""
    return f"input={context}"


def a02() -> Ablation:
    """Attention's time makes the crossing, depth 0's own cost keeps the schedule below off."""
    loads = tuple(map(load02, CONTEXTS))
    seen = tuple(three / off for three, off in zip(DEPTH_3, OFF, strict=True))
    stands = ratios("u02-context", "static(k=3)", "output_tokens_per_s", loads)
    schedule = ratios("u02-context", "off above 128", "output_tokens_per_s", loads)
    flat, line = (over_off(f"dense-31b-h100-{name}-u02") for name in ("flat", "line"))
    flops = over_off("dense-31b-h100-flops-u02", CONTEXTS[1:3])
    free = free_at_depth_zero(CONTEXTS[::3])
    return Ablation(
        """The crossing: the profile's term over context (`dense-31b-h100-flat-u02.json` has none). Where it
        lies: the windows (`...-line-u02.json` has none) and how they share attention's time with the other
        layers (`...-flops-u02.json`: by FLOPs instead of KV bytes, fitted to the same ends). The schedule:
        `depth_zero_overhead_per_sequence`.""",
        (
            ("context", *map(str, CONTEXTS)),
            ("reported k=3 / off", *three(seen)),
            ("as it stands", *three(stands)),
            ("attention free", *three(flat)),
            ("no windows", *three(line)),
            ("windows priced by FLOPs", "", *three(flops), ""),
            ("schedule / off, as it stands", *three(schedule)),
            ("depth_zero_overhead_per_sequence: 0", f"{free[0]:.3f}", "", "", f"{free[1]:.3f}"),
        ),
        (
            Check("With attention free k=3 stays below 0.8 of off at every context.", max(flat) < 0.8),
            Check(
                "With every layer reading everything 900 and 1900 tokens are over 0.06 below the report.",
                all(got < want - 0.06 for got, want in zip(line[1:3], seen[1:3], strict=True)),
            ),
            Check(
                "The report at 900 and 1900 tokens lies between the prices by FLOPs and by KV bytes.",
                all(lo < want < hi for lo, want, hi in zip(flops, seen[1:3], stands[1:3], strict=True)),
            ),
            Check(
                "With depth 0 at no cost of its own the schedule is off, to 1 %.",
                within(free, (1.0, 1.0), 0.01),
            ),
        ),
    )


# -- U03 -----------------------------------------------------------------------------------------


@cache
def bursts_without_a_threshold() -> tuple[float, float]:
    """Seconds per burst and changes of depth per second, both losses, depth 2 up to 8 requests."""
    chosen: dict[str, object] = {
        "profiles": {OWN_LOSS: "qwen3.5-122b-gb10-plus19-u03.json"},
        "policies": [{"policy": "per_batch_size", "table": [[1, 8, 2], [9, 512, 0]], "label": "schedule"}],
        "sweep": {},
        "engine__draft_at_depth_zero": True,
    }
    (found,) = changed("u03-threshold", **chosen).values()
    return found.mean("e2el_mean_ms") / 1e3, found.mean("depth_flips_per_s")


def a03() -> Ablation:
    """Lost graphs and a drafter that runs at depth 0, one at a time; and no threshold in the load."""
    off, fixed = (burst_s(policy, GRAPHS[0], RESTS) for policy in ("off", DEPTH_2))
    arms = {
        "both, as it stands": (OWN_LOSS, RUNS),
        "draft_at_depth_zero: false": (OWN_LOSS, RESTS),
        "graphs kept (profile full graphs)": (GRAPHS[0], RUNS),
        "neither": (GRAPHS[0], RESTS),
    }
    took = {name: burst_s("schedule", *arm) for name, arm in arms.items()}
    both, rests, kept, neither = took.values()
    answer, flips = bursts_without_a_threshold()
    return Ablation(
        """The schedule is slower than off by `draft_at_depth_zero` and by lost graphs (19 % on every pass),
        and is at depth 0 at all by its threshold. The fixed depths keep their graphs.""",
        (
            ("schedule `[[1,4,2],[5,512,0]]`", "seconds for eight requests", "over off", "over depth 2"),
            *((name, f"{t:.1f}", f"{t / off:.2f}", f"{t / fixed:.2f}") for name, t in took.items()),
        ),
        (
            Check("Without either it takes as long as off, to 1 %.", abs(neither / off - 1) < 0.01),
            Check(
                "Lost graphs alone cost 15 to 20 % of off's time, the drafter at depth 0 alone 5 to 10 %.",
                0.15 < rests / off - 1 < 0.20 and 0.05 < kept / off - 1 < 0.10,
            ),
            Check("Both together cost over 25 %.", both / off > 1.25),
            Check(
                "With the threshold above the load (8 instead of 4) depth never changes, and an answer takes "
                "under 8 s with graphs lost.",
                flips == 0 and answer < 8 and burst_flips("schedule", OWN_LOSS, RUNS) > 0,
            ),
        ),
    )


# -- U04 -----------------------------------------------------------------------------------------


def speedup04(row: Row04, host_ms: float) -> float:
    """A drafter's speedup over plain decoding at the posted acceptance, with host time in every round."""
    (found,) = changed(
        row.scenario,
        engine__step_overhead=f"{1e3 * host_ms:.0f}us",
        policies=[{"policy": "static", "k": row.depth}],
        workload__num_requests=4,
    ).values()
    off = value(row.scenario, "off", "tpot_mean_ms")
    return off / found.mean("tpot_mean_ms") * row.accept / found.mean("acceptance_length")


@cache
def a04() -> Ablation:
    """Host time per round turns two wins into losses; no one constant does it for all."""
    least = min(row.residual_ms for row in DRAFTERS)
    same = tuple(speedup04(row, least) for row in DRAFTERS)
    own = tuple(speedup04(row, row.residual_ms) for row in DRAFTERS)
    seen = tuple(row.observed for row in DRAFTERS)
    return Ablation(
        """`engine.step_overhead`, host time of every round: none, the least that a drafter's observed round
        leaves, and each drafter's own. The last comes back by construction; that it turns two drafters is
        what counts.""",
        (
            ("speedup", *(row.name for row in DRAFTERS)),
            ("observed", *three(seen)),
            ("step_overhead: 0", *three(tuple(row.simulated for row in DRAFTERS))),
            (f"step_overhead: {least:.1f} ms", *three(same)),
            (f"its own: {', '.join(f'{row.residual_ms:.1f}' for row in DRAFTERS)} ms", *three(own)),
        ),
        (
            Check("Without host time all three are wins.", min(row.simulated for row in DRAFTERS) > 1),
            Check(f"With {least:.1f} ms a round for each, all three still are.", min(same) > 1),
            Check(
                "With its own, each is what was observed, to 1 %, and DSpark and DFlash2 are losses.",
                all(abs(got / want - 1) < 0.01 for got, want in zip(own, seen, strict=True))
                and max(own[1:]) < 1 < own[0],
            ),
            Check(
                "Its own is over a third of a plain step for DSpark, a fifteenth for MTP.",
                DRAFTERS[1].residual_ms > PLAIN_MS / 3 and round(PLAIN_MS / DRAFTERS[0].residual_ms) == 15,
            ),
        ),
    )


# -- U05 -----------------------------------------------------------------------------------------


def a05() -> Ablation:
    """A verify pass that does not grow makes depth free."""
    names = tuple(f"static(k={depth})" for depth in DEPTHS05)
    stands = tuple(1 / ratios("u05-verify-widths", name, "tpot_mean_ms", ("base",))[0] for name in names)
    found = rates("u05-verify-widths", "tpot_mean_ms", profile="nemotronh-30b-a3b-mlx-flat-u05.json")
    flat = tuple(found["base", "off"] / found["base", name] for name in names)
    tokens = tuple(value("u05-verify-widths", name, "acceptance_length") for name in names)
    return Ablation(
        """The growth of a verify pass with its width, which experts make;
        `nemotronh-30b-a3b-mlx-flat-u05.json` takes 8.47 ms at any width.""",
        (
            ("depth", *map(str, DEPTHS05)),
            ("speedup before drafting, as it stands", *three(stands)),
            ("verify pass of one length", *three(flat)),
            ("break-even tokens then", *three(tuple(t / f for t, f in zip(tokens, flat, strict=True)))),
        ),
        (
            Check(
                "With a verify pass of one length each depth beats the one before it.",
                list(flat) == sorted(flat),
            ),
            Check(
                "Depth 7 then gives all of its tokens: over 4 times as fast.", flat[-1] > 4 > 3 * stands[-1]
            ),
            Check(
                "A round then breaks even at one token, to 1 %.",
                within([f / t for f, t in zip(flat, tokens, strict=True)], (1.0,) * 4, 0.01),
            ),
        ),
    )


# -- U06 -----------------------------------------------------------------------------------------

FEW06: Final = (8, 32, 64)


def a06() -> Ablation:
    """Verified tokens at no cost leave a tree's gain the same at any batch."""
    loads = tuple(f"c={n}" for n in FEW06)
    metric = "output_tokens_per_s"
    stands = tuple(
        value("u06-trees", TREE_NAME, metric, at) / value("u06-trees", CHAIN_NAME, metric, at) for at in loads
    )
    found = rates(
        "u06-trees",
        profile="llama-3.1-8b-h100-free-tokens-u06.json",
        sweep={"workload.arrival.max_concurrency": list(FEW06)},
    )
    free = tuple(found[at, TREE_NAME] / found[at, CHAIN_NAME] for at in loads)
    return Ablation(
        """What a verified token costs; `llama-3.1-8b-h100-free-tokens-u06.json` has all of a step's growth
        paid per sequence.""",
        (
            ("tree / chain at sequences", *map(str, FEW06)),
            ("as it stands", *three(stands)),
            ("verified tokens free", *three(free)),
        ),
        (
            Check(
                "With verified tokens free the tree wins by 12 to 18 % at 8, 32 and 64 sequences.",
                all(1.12 < ratio < 1.18 for ratio in free),
            ),
            Check("Its gain then differs by less than 0.03 between them.", max(free) - min(free) < 0.03),
            Check("As it stands it falls by over 0.15.", stands[0] - stands[-1] > 0.15),
        ),
    )


# -- U07 -----------------------------------------------------------------------------------------


def a07() -> Ablation:
    """The drafter's ranks make the loss; its passes as served alone overstate it."""
    seen = tuple(with_s / without for with_s, without in zip(WITH_S, TARGET_S, strict=True))[1:]
    got = ratios("u07-draft-tp", "static(k=8)", "tpot_mean_ms", LOADS07)
    tokens = value("u07-draft-tp", "static(k=8)", "acceptance_length", LOADS07[0])
    alone = tuple((8 * d + t) / tokens / t for d, t in zip(DRAFT_S[1:], TARGET_S[1:], strict=True))
    return Ablation(
        """The number of GPUs of the drafter (`...-draft1-u07.json` against `...-draft2-` and `...-draft4-`),
        and the 2.0 ms a pass that a drafter served alone spends on handing work over, by formula.""",
        (
            ("time with over without", "TP 2", "TP 4"),
            ("reported", *three(seen)),
            ("drafter on as many GPUs", *three(got[1:3])),
            ("drafter on one GPU", *three(got[3:])),
            ("drafter on as many, passes as when served alone", *three(alone)),
        ),
        (
            Check(
                "On one GPU the drafter is no loss at TP 2 and under 20 % at TP 4.",
                got[3] < 1 and got[4] < 1.2,
            ),
            Check(
                "With passes as when served alone TP 2 and TP 4 are 15 to 30 % over the report.",
                all(1.15 < a / s < 1.30 for a, s in zip(alone, seen, strict=True)),
            ),
        ),
    )
