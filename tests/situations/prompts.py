"""U08 and U09: prompts that leave no time to decode, and a cached unit that is computed anew."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from sim.results.metrics import Metrics, measure
from sim.results.run_records import RunRecords
from sim.scenario.load import expand
from sim.sweep.prepare import make_run
from tests.situations.case import Case, Check
from tests.situations.replay import scenario

# -- U08 -----------------------------------------------------------------------------------------

FIRST, CAPPED, MIXED = "prompts first", "four in a row", "mixed"
NEAR, FAR = "6/s", "4/s"
FROM_S, TO_S = 60, 180
"""Seconds of arrivals that are counted: all but the first minute, while streams gather."""
REPORTED_DECODES: Final = 37 / 900
"""Decode batches per second under heavy load: 36 to 38 in 15 minutes."""


@cache
def run_of(name: str, load: str, seed: int = 0) -> RunRecords:
    """Records of one cell of a situation with one policy."""
    cell = next(cell for cell in expand(scenario(name)) if cell.label == load).scenario
    return make_run(cell, cell.policies[0], seed)[0]


def decodes_per_s(rule: str, load: str) -> float:
    """Steps that decode, per second while requests arrive, the first minute left out."""
    steps = run_of("u08-prefill-first", f"{rule}, {load}").steps
    counted = (steps["end_ns"] > FROM_S * 10**9) & (steps["end_ns"] < TO_S * 10**9)
    return float(np.count_nonzero((steps["decodes"] > 0) & counted)) / (TO_S - FROM_S)


@cache
def metrics(rule: str, load: str) -> Metrics:
    """All metrics of one cell of U08."""
    return measure(run_of("u08-prefill-first", f"{rule}, {load}"), "none")


def seconds(rule: str, load: str, metric: str) -> float:
    """A latency of U08 in seconds."""
    return metrics(rule, load)[metric] / 1e3


def share(rule: str, load: str, metric: str) -> float:
    """A share of U08."""
    return metrics(rule, load)[metric]


def u08() -> Case:
    """Prompts first starve decoding just before they fill the device."""
    loads = ((FIRST, FAR), (FIRST, NEAR), (CAPPED, NEAR), (MIXED, NEAR))
    rate = {at: decodes_per_s(*at) for at in loads}
    p99 = {at: seconds(*at, "itl_p99_ms") for at in loads}
    starved = (FIRST, NEAR)
    return Case(
        "U08",
        "Why does decoding stop while prompts keep coming, with the KV cache half empty?",
        "sglang issue 32549: production chat, 360 requests/min, prompts of 3,000 to 6,000 tokens, drafting",
        ("u08-prefill-first",),
        """A prefill batch of 8,192 tokens takes the 0.313 s that 2,863 of them in 15 minutes leave; prompts
        of 3,000 to 6,000 tokens are 3 % more than those batches hold. The thread gives
        neither a decode step, nor a draft pass, nor acceptance, nor the answers' length: assumed, and all but
        irrelevant to how often anybody decodes. Its 250 streams at 6 requests/s say that clients wait some 42
        seconds, which is the timeout here. KV holds 4 million tokens (assumed). One switch differs between
        the columns: `prefill: first`, the same with `max_prefill_steps: 4`, and `prefill: mixed`.""",
        (
            ("", *(f"{rule}, {load}" for rule, load in loads)),
            ("decode steps per s", *(f"{rate[at]:.2f}" for at in loads)),
            ("reported", "", f"{REPORTED_DECODES:.2f}", "", ""),
            ("ITL p99", *(f"{p99[at]:.1f} s" for at in loads)),
            ("ITL mean", *(f"{seconds(*at, 'itl_mean_ms'):.2f} s" for at in loads)),
            ("TTFT p99", *(f"{seconds(*at, 'ttft_p99_ms'):.1f} s" for at in loads)),
            ("KV peak", *(f"{share(*at, 'kv_peak_share'):.0%}" for at in loads)),
            ("clients that gave up", *(f"{share(*at, 'timed_out_share'):.0%}" for at in loads)),
        ),
        (
            Check(
                "Where prompts fill the device and come first, ten seconds pass without a decode step.",
                rate[starved] < 0.1,
            ),
            Check(
                "At two thirds of that load there are more than five a second.",
                rate[FIRST, FAR] > 5,
            ),
            Check("Meanwhile KV is less than half full.", share(*starved, "kv_peak_share") < 0.5),
            Check(
                "The p99 of ITL is over five seconds, its mean under two.",
                p99[starved] > 5 > 2.5 * seconds(*starved, "itl_mean_ms"),
            ),
            Check(
                "At most four prefill steps in a row restore more than one decode step in two seconds, and "
                "a p99 of ITL below two seconds.",
                rate[CAPPED, NEAR] > 0.5 and p99[CAPPED, NEAR] < 2,
            ),
            Check(
                "Mixed chunks decode in every step: more than two a second, p99 of ITL under a second.",
                rate[MIXED, NEAR] > 2 and p99[MIXED, NEAR] < 1,
            ),
        ),
        """What is left to decode is what prompts do not take, so the rate of decode steps falls to nothing
        over the last few per cent of load; where in them the reported system stood, and so its 0.04 a
        second, cannot be told. No rule makes room: with decoding restored the device is asked for more than
        it has, and most clients still give up. But a stream that moves on tells that apart from one that
        hangs, and the mean ITL hides it: almost all gaps are between the few lucky steps.""",
    )


# -- U09 -----------------------------------------------------------------------------------------

DROP, KEEP = "with the drop", "without"
SEEDS: Final = range(5)
HIT_RATE: Final = {DROP: 0.238, KEEP: 0.647}
TOK_S: Final = {DROP: 149.6, KEEP: 241.9}
COLD: Final = 4
"""Requests of the first turn, which the report does not time."""


def hit_rate(load: str) -> float:
    """Share of all prompt tokens that were not computed; no request of the case is preempted."""
    runs = [run_of("u09-last-block", load, seed) for seed in SEEDS]
    return float(
        np.mean([1 - r.steps["prefill_tokens"].sum() / r.requests["prompt_tokens"].sum() for r in runs])
    )


def warm_tok_s(load: str) -> float:
    """Output tokens per second from the first request of the second turn on, mean over seeds."""
    rates = []
    for seed in SEEDS:
        r = run_of("u09-last-block", load, seed).requests
        warm = r["request"] >= COLD
        spent = r["finish_ns"][warm].max() - r["sent_ns"][warm].min()
        rates.append(1e9 * r["output_tokens"][warm].sum() / spent)
    return float(np.mean(rates))


def accepted(load: str) -> float:
    """Share of the drafts that were accepted."""
    r = run_of("u09-last-block", load).requests
    return float(r["accepted"].sum() / r["drafted"].sum())


def u09() -> Case:
    """A large unit makes the drop expensive."""
    hits = {load: hit_rate(load) for load in (DROP, KEEP)}
    rate = {load: warm_tok_s(load) for load in (DROP, KEEP)}
    ratio = rate[KEEP] / rate[DROP]
    return Case(
        "U09",
        "What does computing the last cached block anew cost, where a block is 1,648 tokens?",
        "vLLM issue 53670: Qwen3.8-27B on two RTX 5090, MTP k=2, 4 sessions, shared prefix of 3,100 tokens",
        ("u09-last-block",),
        """Unit, sessions, prefix, answers of 192 tokens and 83.1 % accepted drafts as posted; four turns a
        session, the first of them cold. What later turns add is not in the part of the thread that was read:
        taken as the answer before them and 58 tokens of a question, 250 together. Two numbers, a round of
        four sessions and the cost of a prompt token, are fitted to the two throughputs, so those come back by
        construction; the hit rates are predicted. One switch differs between the rows: `drop_last_hit`.""",
        (
            ("", "hit rate", "reported", "warm tok/s", "reported", "accepted drafts"),
            *(
                (
                    load,
                    f"{hits[load]:.1%}",
                    f"{HIT_RATE[load]:.1%}",
                    f"{rate[load]:.1f}",
                    f"{TOK_S[load]}",
                    f"{accepted(load):.1%}",
                )
                for load in (DROP, KEEP)
            ),
        ),
        (
            Check(
                "Both hit rates are within ten points of the report.",
                all(abs(hits[load] - HIT_RATE[load]) < 0.10 for load in hits),
            ),
            Check(
                "Both throughputs come back to within 1 %.",
                all(abs(rate[x] / TOK_S[x] - 1) < 0.01 for x in rate),
            ),
            Check("Without the drop it is 1.4 to 1.8 times as fast.", 1.4 < ratio < 1.8),
            Check("The drop changes no acceptance.", accepted(DROP) == accepted(KEEP)),
        ),
        """A hit ends at a multiple of 1,648 tokens, where the recurrent state is kept, and the drop takes one
        whole unit off it. Prompts of 3,100 to 3,850 tokens hold one or two units, so half of the turns lose
        all they could have found and the others half. In blocks of 16 tokens the same drop would cost
        16 tokens a request.""",
    )
