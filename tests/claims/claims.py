"""What each claim's scenario gave: the tables and numbers of docs/claims.md."""

from __future__ import annotations

from calibrate.profile import Variable
from sim.cost.breakdown import breakdown_ns
from sim.cost.work import step_bytes, step_flops
from tests.claims import theory
from tests.claims.measure import (
    Steps,
    cells,
    first_wave,
    full_steps,
    predicted_gain,
    request_sum,
    tpot_ms,
    whole_run_tokens_per_s,
)

Row = tuple[str, ...]
Table = tuple[Row, list[Row]]
"""A head and its rows."""


def flops_per_token(steps: Steps) -> float:
    """FLOPs of target and drafter per output token."""
    return float(step_flops(steps.columns, steps.profile, steps.drafter).mean()) / steps.emitted


def bytes_per_token(steps: Steps) -> float:
    """Bytes moved by target and drafter per output token."""
    return float(step_bytes(steps.columns, steps.profile, steps.drafter).mean()) / steps.emitted


def work_per_token() -> Table:
    """Claim 1: work per token over that of plain decoding."""
    name = "1-work-per-token"
    off = full_steps(name, "base", "off")
    rows: list[Row] = [("0", "1", "1", "1", "1")]
    for k in (1, 3, 5, 8):
        steps = full_steps(name, "base", f"static(k={k})")
        e = theory.tokens_per_round(0.7, k)
        ratios = (work(steps) / work(off) for work in (flops_per_token, bytes_per_token))
        rows.append((f"{k}", f"{e:.3f}", f"{(k + 1) / e:.3f}", *(f"{ratio:.3f}" for ratio in ratios)))
    return ("depth k", "E(k)", "FLOPs per token: bound (k+1)/E(k)", "simulated", "bytes per token"), rows


def memory_bound() -> Table:
    """Claim 2: a pass over one sequence by its tokens."""
    rows: list[Row] = []
    one = full_steps("2-memory-bound", "base", "off")
    for policy in ("off", "static(k=1)", "static(k=3)", "static(k=7)"):
        steps = full_steps("2-memory-bound", "base", policy)
        tokens = round(steps.mean("tokens"))
        row = (
            f"{tokens}",
            f"{theory.bandwidth_ms(steps.profile, tokens, 1, steps.context):.2f}",
            f"{theory.compute_ms(steps.profile, tokens, tokens * steps.context):.3f}",
            f"{steps.target_ms:.2f}",
            f"{steps.target_ms / one.target_ms:.3f}",
            f"{steps.draft_ms:.2f}",
        )
        rows.append(row)
    head = ("tokens in the pass", "bytes / bandwidth, ms", "FLOPs / peak, ms", "step without drafter, ms")
    return (*head, "over one token", "drafter, ms"), rows


def memory_bound_numbers() -> dict[str, str]:
    """Claim 2: one token in numbers."""
    one = full_steps("2-memory-bound", "base", "off")
    drafter = full_steps("2-memory-bound", "base", "static(k=7)").drafter
    assert drafter is not None
    assert drafter.work is not None
    work = one.profile.target.work
    imbalance = theory.bandwidth_ms(one.profile, 1, 1, one.context) / theory.compute_ms(
        one.profile, 1, one.context
    )
    parts = breakdown_ns(one.columns, one.profile, None)
    shares = {term.split(".")[-1]: ns / sum(parts.values()) for term, ns in parts.items()}
    return {
        "gigabytes": f"{theory.pass_bytes(work, 1, 1, one.context) / 1e9:.1f}",
        "gigaflop": f"{work.flops_per_token / 1e9:.1f}",
        "imbalance": f"{imbalance:.0f}",
        "ridge": f"{theory.ridge_tokens(one.profile):.0f}",
        "shares": ", ".join(f"{term} {share:.1%}" for term, share in shares.items() if share > 5e-4),
        "draft_gigabytes": f"{drafter.work.read_bytes / 1e9:.1f}",
    }


def two_sequences() -> Table:
    """Claim 3: plain decoding by sequences, on three kinds of model."""
    rows = [_breadth_row(model, n) for model in ("hybrid", "dense", "moe") for n in (1, 2, 4, 8)]
    head = ("model", "sequences", "step, ms", "over one sequence", "step per token, ms")
    return (*head, "bytes over one sequence"), rows


def _breadth_row(model: str, n: int) -> Row:
    one, steps = (full_steps("3-two-sequences", f"{model}, c={count}", "off") for count in (1, n))
    work = steps.profile.target.work
    moved, least = (
        theory.pass_bytes(work, count, count, count * s.context) for count, s in ((n, steps), (1, one))
    )
    return (
        work.name if n == 1 else "",
        f"{n}",
        f"{steps.step_ms:.2f}",
        f"{steps.step_ms / one.step_ms:.3f}",
        f"{steps.step_ms / n:.2f}",
        f"{moved / least:.3f}",
    )


def breadth_and_depth() -> tuple[Steps, Steps]:
    """Claim 4: steps of 8 sequences by 1 token, and of 1 sequence by 8."""
    name = "4-breadth-or-depth"
    return full_steps(name, "c=8", "off"), full_steps(name, "c=1", "static(k=7)")


def breadth_or_depth() -> Table:
    """Claim 4: the two passes."""
    rows: list[Row] = []
    for steps, title in zip(breadth_and_depth(), ("8 sequences x 1", "1 sequence x 8"), strict=True):
        row = (
            title,
            f"{steps.mean('tokens'):.0f}",
            f"{steps.target_ms:.3f}",
            f"{steps.draft_ms:.2f}",
            f"{steps.emitted:.2f}",
            f"{steps.emitted / steps.mean('sequences'):.2f}",
            f"{steps.token_ms:.2f}",
        )
        rows.append(row)
    head = ("pass", "tokens", "step without drafter, ms", "drafter, ms", "tokens emitted", "per sequence")
    return (*head, "ms per token of a sequence"), rows


def breadth_or_depth_numbers() -> dict[str, str]:
    """Claim 4: the difference and what explains it."""
    breadth, depth = breadth_and_depth()
    difference = breadth.target_ms - depth.target_ms
    parts = explained_ms(breadth, depth)
    return {
        "difference": f"{difference:.3f} ms, {difference / depth.target_ms:.1%}",
        "explained": ", ".join(f"{part} {ms:.3f} ms" for part, ms in parts.items() if abs(ms) > 5e-4),
        "draft_share": f"{depth.draft_ms / depth.target_ms:.0%}",
    }


def explained_ms(breadth: Steps, depth: Steps) -> dict[str, float]:
    """What differs between two passes of equally many tokens, by the variable that it depends on."""
    return {
        "sequences (recurrent state, attention)": _linear_ms(breadth, depth, "sequences"),
        "KV read": _linear_ms(breadth, depth, "context_tokens"),
        "query-key products": _linear_ms(breadth, depth, "query_context_tokens"),
    }


def _linear_ms(one: Steps, other: Steps, variable: Variable) -> float:
    slope = sum(term.per_ns.get(variable, 0.0) for term in one.profile.target.verify)
    return slope * (one.mean(variable) - other.mean(variable)) / 1e6


def fixed_depth_at_load() -> Table:
    """Claim 5: three depths at low and at high load."""
    rows = [_load_row(label, k) for label in cells("5-fixed-depth-at-load") for k in (0, 3, 5)]
    head = ("sequences", "depth", "step, ms", "tokens per step and sequence", "ms per token", "speedup")
    return (*head, "TPOT of the requests, ms"), rows


def _load_row(label: str, k: int) -> Row:
    name, policy = "5-fixed-depth-at-load", f"static(k={k})" if k else "off"
    off, steps = full_steps(name, label, "off"), full_steps(name, label, policy)
    each = tpot_ms(name, label, policy)
    return (
        "" if k else label.removeprefix("c="),
        f"{k}",
        f"{steps.step_ms:.1f}",
        f"{steps.emitted / steps.mean('sequences'):.2f}",
        f"{steps.token_ms:.1f}",
        f"{off.token_ms / steps.token_ms:.2f}",
        f"{each.min():.1f} to {each.max():.1f}",
    )


def waste() -> Table:
    """Claim 6: rejected share of the verified drafts, by acceptance and depth."""
    rows: list[Row] = []
    for label in cells("6-waste"):
        a = float(label.removeprefix("alpha="))
        pairs = ((theory.waste(a, k), wasted("6-waste", label, k)) for k in (1, 3, 7))
        rows.append((f"{a}", *(f"{share:.1%}" for pair in pairs for share in pair)))
    titles = (title for k in (1, 3, 7) for title in (f"k = {k}: formula", "simulated"))
    return ("acceptance a", *titles), rows


def wasted(name: str, label: str, k: int) -> float:
    """Share of the verified drafts that were rejected."""
    policy = f"static(k={k})"
    accepted, drafted = (request_sum(name, label, policy, column) for column in ("accepted", "drafted"))
    return 1 - accepted / drafted


def disable_at_load() -> Table:
    """Claim 7: throughput of off, fixed depth, and fixed depth below a threshold."""
    name, rows = "7-disable-at-load", []
    for label in cells(name):
        steps = (full_steps(name, label, policy) for policy in ("off", "static(k=3)", "disable"))
        rows.append((*label.split(", c="), *(f"{each.tokens_per_s:.0f}" for each in steps)))
    return ("engine", "sequences", "off", "static, k = 3", "disable"), rows


def adapt_to_batch() -> Table:
    """Claim 8: throughput of two fixed depths and two policies that follow the batch."""
    name, rows = "8-adapt-to-batch", []
    for label in cells(name):
        policies = ("off", "static(k=3)", "table", "goodput")
        off, static, *adaptive = (full_steps(name, label, policy).tokens_per_s for policy in policies)
        shown = (f"{value:.0f} ({value / max(off, static) - 1:+.1%})" for value in adaptive)
        rows.append((label.removeprefix("c="), f"{off:.0f}", f"{static:.0f}", *shown))
    return ("sequences", "off", "static, k = 3", "table", "goodput"), rows


def adapt_to_batch_numbers() -> dict[str, str]:
    """Claim 8: the depth that goodput found in between."""
    steps = full_steps("8-adapt-to-batch", "c=128", "goodput")
    return {"goodput_depth": f"{steps.mean('drafted') / steps.mean('sequences'):.1f}"}


def depth_per_sequence() -> Table:
    """Claim 9: throughput of uniform depths and of one depth per sequence."""
    labels = cells("9-depth-per-sequence")
    rows = [_gain_row(label, whole_run) for label in labels for whole_run in (False, True)]
    return ("sequences", "over", "0", "1", "2", "3", "5", "per sequence", "gain", "theory"), rows


def _gain_row(label: str, whole_run: bool) -> Row:
    name = "9-depth-per-sequence"
    value = whole_run_tokens_per_s if whole_run else _first_wave_tokens_per_s
    uniform = [value(name, label, f"static(k={k})" if k else "off") for k in (0, 1, 2, 3, 5)]
    own, best = value(name, label, "per sequence"), max(uniform)
    gains = (own / best - 1, predicted_gain(name, label, closed_loop=whole_run))
    return (
        label.removeprefix("c="),
        "whole run" if whole_run else "same sequences",
        *(f"**{each:.0f}**" if each == best else f"{each:.0f}" for each in uniform),
        f"{own:.0f}",
        *(f"{gain:+.1%}" for gain in gains),
    )


def _first_wave_tokens_per_s(name: str, label: str, policy: str) -> float:
    return first_wave(name, label, policy).tokens_per_s
