"""What each claim's scenario gave, as a section of docs/claims.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sim.cost.breakdown import breakdown_ns
from sim.cost.work import step_bytes, step_flops
from tests.claims import theory
from tests.claims.measure import (
    Steps,
    cells,
    first_wave,
    full_steps,
    request_sum,
    tpot_ms,
    whole_run_tokens_per_s,
)

Row = tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """One section: ``scenario`` was run, ``head`` and ``rows`` are its table."""

    scenario: str
    title: str
    verdict: str
    text: str
    head: Row
    rows: tuple[Row, ...]


def flops_per_token(steps: Steps) -> float:
    """FLOPs of target and drafter per output token."""
    return float(step_flops(steps.columns, steps.profile, steps.drafter).mean()) / steps.emitted


def bytes_per_token(steps: Steps) -> float:
    """Bytes moved by target and drafter per output token."""
    return float(step_bytes(steps.columns, steps.profile, steps.drafter).mean()) / steps.emitted


def work_per_token() -> Claim:
    """Claim 1."""
    name, depths = "1-work-per-token", (1, 3, 5, 8)
    off = full_steps(name, "base", "off")
    rows = [("0", "1", "1", "1", "1")]
    for k in depths:
        steps = full_steps(name, "base", f"static(k={k})")
        tokens = theory.tokens_per_round(0.7, k)
        flops, moved = (
            (f(steps) / f(off)) for f in (flops_per_token, bytes_per_token)
        )
        rows.append((f"{k}", f"{tokens:.3f}", f"{(k + 1) / tokens:.3f}", f"{flops:.3f}", f"{moved:.3f}"))
    return Claim(
        name,
        "Speculation raises the FLOPs per token",
        "holds",
        "A round of depth k computes k+1 tokens and emits E(k) = (1-a^(k+1))/(1-a), so the target alone needs (k+1)/E(k) "
        "times the FLOPs of plain decoding; the drafter comes on top. What falls is the bytes per token: speculation "
        "pays in FLOPs for bandwidth. Qwen3.5-27B, MTP drafter, a = 0.7, eight sequences.",
        ("depth k", "E(k)", "FLOPs per token, bound (k+1)/E(k)", "FLOPs per token, simulated", "bytes per token"),
        tuple(rows),
    )


def memory_bound() -> Claim:
    """Claim 2."""
    name, rows = "2-memory-bound", []
    one = full_steps(name, "base", "off")
    for policy in ("off", "static(k=1)", "static(k=3)", "static(k=7)"):
        steps = full_steps(name, "base", policy)
        tokens = round(steps.mean("tokens"))
        read = theory.bandwidth_ms(steps.profile, tokens, 1, steps.context)
        compute = theory.compute_ms(steps.profile, tokens, tokens * steps.context)
        rows.append(
            (
                f"{tokens}",
                f"{read:.2f}",
                f"{compute:.3f}",
                f"{steps.target_ms:.2f}",
                f"{steps.target_ms / one.target_ms:.3f}",
                f"{steps.draft_ms:.2f}",
            )
        )
    parts = breakdown_ns(one.columns, one.profile, None)
    shares = {term: ns / sum(parts.values()) for term, ns in parts.items()}
    listed = ", ".join(f"{term.split('.')[-1]} {share:.1%}" for term, share in shares.items())
    return Claim(
        name,
        "One-token decoding is bound by memory",
        "holds",
        f"One token moves {theory.pass_bytes(one.profile.target.work, 1, 1, one.context) / 1e9:.1f} GB and computes "
        f"{one.profile.target.work.flops_per_token / 1e9:.1f} GFLOP: at the H200's datasheet rates the bytes take "
        "two hundred times as long. The pass stays memory-bound up to the ridge, "
        f"{theory.ridge_tokens(one.profile):.0f} tokens, and up to 8 tokens it takes within 10 % of a pass of one. Two tokens "
        "take as long as eight: that bump is in the measured matrix multiplications. The step "
        "of one token by terms: " + listed + ". The drafter is not free: an MTP pass reads the 2.5 GB of the target's output layer.",
        ("tokens in the pass", "bytes / bandwidth, ms", "FLOPs / peak, ms", "step without drafter, ms", "over one token", "drafter, ms"),
        tuple(rows),
    )


def two_sequences() -> Claim:
    """Claim 3."""
    name, rows = "3-two-sequences", []
    for model in ("hybrid", "dense", "moe"):
        one = full_steps(name, f"{model}, c=1", "off")
        for n in (1, 2, 4, 8):
            steps = full_steps(name, f"{model}, c={n}", "off")
            moved = theory.pass_bytes(steps.profile.target.work, n, n, n * steps.context)
            least = theory.pass_bytes(one.profile.target.work, 1, 1, one.context)
            rows.append(
                (
                    steps.profile.target.work.name if n == 1 else "",
                    f"{n}",
                    f"{steps.step_ms:.2f}",
                    f"{steps.step_ms / one.step_ms:.3f}",
                    f"{steps.step_ms / n:.2f}",
                    f"{moved / least:.3f}",
                )
            )
    return Claim(
        name,
        "Two sequences take no longer per token than one",
        "holds for dense and hybrid models; **not for a mixture of experts**",
        "Two sequences share one reading of the weights, so each waits about as long for its token as if it were alone (within "
        "10 %), and the time per token of the batch halves. Of Qwen3.5's 7 %, 6.5 % are the measured matrix "
        "multiplications at m = 2, and the rest is the recurrent state of the second sequence. With experts, two tokens "
        "choose other experts: 128 (1 - (1 - 8/128)^n) of them are read, and the step grows with the bytes. There, "
        "breadth costs from the second sequence on; per token it is still cheaper.",
        ("model", "sequences", "step, ms", "over one sequence", "step per token, ms", "bytes over one sequence"),
        tuple(rows),
    )


def breadth_or_depth() -> Claim:
    """Claim 4."""
    name = "4-breadth-or-depth"
    breadth, depth = full_steps(name, "c=8", "off"), full_steps(name, "c=1", "static(k=7)")
    shapes = [(breadth, "8 sequences x 1"), (depth, "1 sequence x 8")]
    rows = [
        (
            title,
            f"{steps.mean('tokens'):.0f}",
            f"{steps.target_ms:.3f}",
            f"{steps.draft_ms:.2f}",
            f"{steps.emitted:.2f}",
            f"{steps.emitted / steps.mean('sequences'):.2f}",
            f"{steps.token_ms:.2f}",
        )
        for steps, title in shapes
    ]
    parts = explained_ms(breadth, depth)
    listed = ", ".join(f"{part} {ms:.3f} ms" for part, ms in parts.items())
    return Claim(
        name,
        "Eight sequences by one token cost the same pass as one sequence by eight",
        "holds for the pass; the drafter is extra",
        f"The two passes differ by {breadth.target_ms - depth.target_ms:.3f} ms, "
        f"{breadth.target_ms / depth.target_ms - 1:.1%}. The terms that explain it: {listed}. Breadth moves eight sequences one token each; "
        "depth moves one sequence (1-a^8)/(1-a) = 4.16 tokens (a = 0.8, simulated a little less, because answers end), and wastes the others. "
        "Depth also pays for its drafter, which here is a third of the pass.",
        ("pass", "tokens", "step without drafter, ms", "drafter, ms", "tokens emitted", "per sequence", "ms per token of a sequence"),
        tuple(rows),
    )


def explained_ms(breadth: Steps, depth: Steps) -> dict[str, float]:
    """What differs between two passes of equally many tokens, by the variable that it depends on."""
    terms = breadth.profile.target.verify
    return {
        label: sum(term.per_ns.get(variable, 0.0) for term in terms)  # type: ignore[call-overload]
        * (breadth.mean(variable) - depth.mean(variable))
        / 1e6
        for variable, label in (
            ("sequences", "per sequence (recurrent state, attention)"),
            ("context_tokens", "KV read"),
            ("query_context_tokens", "query-key products"),
        )
    }


def fixed_depth_at_load() -> Claim:
    """Claim 5."""
    name, rows = "5-fixed-depth-at-load", []
    for label in cells(name):
        off = first_wave(name, label, "off")
        for k in (0, 3, 5):
            policy = f"static(k={k})" if k else "off"
            steps, each = first_wave(name, label, policy), tpot_ms(name, label, policy)
            rows.append(
                (
                    label.removeprefix("c=") if not k else "",
                    f"{k}",
                    f"{steps.step_ms:.1f}",
                    f"{steps.emitted / steps.mean('sequences'):.2f}",
                    f"{steps.token_ms:.1f}",
                    f"{off.token_ms / steps.token_ms:.2f}",
                    f"{each.min():.1f} to {each.max():.1f}",
                )
            )
    return Claim(
        name,
        "At high load a fixed depth slows everyone",
        "holds",
        "The depth that nearly halves the time per token at 8 sequences is past the ridge at 256: T(256, k) has grown by more "
        "than E(k). It is not a matter of luck: the request with the best luck under depth 3 takes longer per "
        "token than the one with the worst without speculation. a = 0.6, `vllm_v1`.",
        ("sequences", "depth", "step, ms", "tokens per step and sequence", "ms per token", "speedup", "TPOT of the requests, ms"),
        tuple(rows),
    )


def waste() -> Claim:
    """Claim 6."""
    name, rows = "6-waste", []
    for label in cells(name):
        a = float(label.removeprefix("alpha="))
        row = [f"{a}"]
        for k in (1, 3, 7):
            row += [f"{theory.waste(a, k):.1%}", f"{wasted(name, label, k):.1%}"]
        rows.append(tuple(row))
    return Claim(
        name,
        "Waste grows as acceptance falls",
        "holds",
        "The share of drafts that were verified and thrown away is 1 - a(1-a^k)/(k(1-a)). It rises as acceptance falls, and with depth.",
        ("acceptance a", *(title for k in (1, 3, 7) for title in (f"k = {k}, formula", "simulated"))),
        tuple(rows),
    )


def wasted(name: str, label: str, k: int) -> float:
    """Share of the verified drafts that were rejected."""
    policy = f"static(k={k})"
    accepted, drafted = (request_sum(name, label, policy, column) for column in ("accepted", "drafted"))
    return 1 - accepted / drafted


def disable_at_load() -> Claim:
    """Claim 7."""
    name = "7-disable-at-load"
    rows = [
        (
            *label.split(", c="),
            *(f"{first_wave(name, label, policy).tokens_per_s:.0f}" for policy in ("off", "static(k=3)", "disable")),
        )
        for label in cells(name)
    ]
    return Claim(
        name,
        "Disabling above a batch size restores throughput there",
        "holds, less the price of the loaded drafter",
        "`disable_by_batch_size` at 112. Below the threshold it is static depth 3, step for step. Above, it is plain decoding, "
        "step for step, if the engine runs no drafter at depth 0 (`ideal`). vLLM V1's runner calls the drafter even then, which costs its first pass "
        "(`vllm_v1`). Output tokens per second, a = 0.6.",
        ("engine", "sequences", "off", "static, k = 3", "disable"),
        tuple(rows),
    )


def adapt_to_batch() -> Claim:
    """Claim 8."""
    name, rows = "8-adapt-to-batch", []
    policies = ("off", "static(k=3)", "table", "goodput")
    for label in cells(name):
        off, static, *adaptive = (first_wave(name, label, policy).tokens_per_s for policy in policies)
        best = max(off, static)
        listed = (f"{value:.0f} ({value / best - 1:+.1%})" for value in adaptive)
        rows.append((label.removeprefix("c="), f"{off:.0f}", f"{static:.0f}", *listed))
    return Claim(
        name,
        "Adapting depth to the batch follows the better of both",
        "holds within 4 %",
        "A table over the batch size (3 up to 111 sequences, then 0) and the goodput rule, against the two fixed depths between which they choose. "
        "In brackets: over the better of the two. What a table loses at high load is the first pass of a drafter that "
        "has nothing to draft; goodput also probes now and then. At 128 goodput finds depth 1, better than "
        "both. Output tokens per second, a = 0.6, `vllm_v1`.",
        ("sequences", "off", "static, k = 3", "table", "goodput"),
        tuple(rows),
    )


def depth_per_sequence() -> Claim:
    """Claim 9."""
    name, rows = "9-depth-per-sequence", []
    for label in cells(name):
        for shown, value in (("same sequences", _wave), ("whole run", whole_run_tokens_per_s)):
            uniform = {k: value(name, label, f"static(k={k})" if k else "off") for k in (0, 1, 2, 3, 5)}
            best = max(uniform, key=lambda k: uniform[k])
            own = value(name, label, "per sequence")
            rows.append(
                (
                    label.removeprefix("c="),
                    shown,
                    *(f"{'**' * (k == best)}{each:.0f}{'**' * (k == best)}" for k, each in uniform.items()),
                    f"{own:.0f} ({own / uniform[best] - 1:+.1%})",
                )
            )
    return Claim(
        name,
        "Depth per sequence beats uniform depth when acceptance differs",
        "holds; in a closed loop most of the gain goes to the easy requests' places",
        "Half of the requests accept a draft with 0.9, half with 0.2. The policy (`scenarios/claims/known_rates.py`) knows "
        "the two rates, infers by Bayes' rule which a request has, and spends drafts by the marginal rule. While the "
        "same sequences run, it beats the best uniform depth by what the rule predicts. Over a whole closed loop "
        "less remains: easy requests leave sooner, so hard ones fill the batch, the faster the deeper the easy ones "
        "go. A rule that is best for every step is not for that reason best for the run. Output tokens per second, uniform depths 0 to 5.",
        ("sequences", "over", "0", "1", "2", "3", "5", "per sequence"),
        tuple(rows),
    )


def _wave(name: str, label: str, policy: str) -> float:
    return first_wave(name, label, policy).tokens_per_s


def all_claims() -> Iterable[Claim]:
    """The nine claims, in order."""
    return (
        work_per_token(),
        memory_bound(),
        two_sequences(),
        breadth_or_depth(),
        fixed_depth_at_load(),
        waste(),
        disable_at_load(),
        adapt_to_batch(),
        depth_per_sequence(),
    )
