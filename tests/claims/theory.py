"""What the claims must come to: closed forms, roofline bounds, and a profile's terms added up.

Nothing here uses ``sim``: costs are evaluated from the profile's JSON by interpolation, a second
implementation of what the simulator tabulates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from calibrate.profile import Curve, Drafter, ModelWork, Profile, Term

Shape = Mapping[str, float]


def tokens_per_round(a: float, k: int) -> float:
    """E(k) = (1 - a^(k+1)) / (1 - a): Leviathan et al. 2023, eq. 1."""
    return (1 - a ** (k + 1)) / (1 - a)


def accepted_variance(a: float, k: int) -> float:
    """Variance of the drafts accepted in a round: P(accepted >= j) = a^j, 1 <= j <= k."""
    j = np.arange(1, k + 1)
    mean = float((a**j).sum())
    return float(((2 * j - 1) * a**j).sum()) - mean**2


def waste(a: float, k: int) -> float:
    """Share of drafts rejected: 1 - a (1 - a^k) / (k (1 - a))."""
    return 1 - a * (1 - a**k) / (k * (1 - a))


def ridge_tokens(profile: Profile) -> float:
    """Tokens at which a pass that reads its weights once computes as long as it reads."""
    work, device = profile.target.work, profile.device
    read_s = work.read_bytes / device.bandwidth_bytes_per_s
    return read_s * device.peak_flops_per_s / work.flops_per_token


def touched_experts(work: ModelWork, tokens: float) -> float:
    """Experts of a layer that ``tokens`` uniformly routed tokens use (MoESD, arXiv 2505.19645)."""
    if work.experts is None:
        return 0.0
    e = work.experts
    return float(e.count * (1 - (1 - e.active / e.count) ** tokens))


def pass_bytes(work: ModelWork, tokens: float, sequences: float, context: float) -> float:
    """Bytes that one pass must move: weights, experts, KV of the context, state read and written."""
    experts = work.experts.layers * work.experts.bytes_each if work.experts else 0.0
    moved = work.read_bytes + experts * touched_experts(work, tokens)
    return moved + work.kv_bytes_per_token * context + 2 * work.state_bytes_per_sequence * sequences


def bandwidth_ms(profile: Profile, tokens: float, sequences: float, context: float) -> float:
    """Least time of a pass by the memory's datasheet bandwidth."""
    moved = pass_bytes(profile.target.work, tokens, sequences, context)
    return 1e3 * moved / (profile.device.bandwidth_bytes_per_s * profile.device.count)


def compute_ms(profile: Profile, tokens: float, query_context: float) -> float:
    """Least time of a pass by the device's datasheet FLOP/s."""
    work = profile.target.work
    flops = work.flops_per_token * tokens + work.attention_flops_per_query_context * query_context
    return 1e3 * flops / (profile.device.peak_flops_per_s * profile.device.count)


def terms_ms(terms: Iterable[Term], shape: Shape) -> float:
    """The terms of one pass added up at one shape."""
    return sum(_term_ns(term, shape) for term in terms) / 1e6


def _term_ns(term: Term, shape: Shape) -> float:
    linear = term.fixed_ns + sum(ns * shape.get(name, 0.0) for name, ns in term.per_ns.items())
    return linear + (_curve_ns(term.curve, shape[term.curve.over]) if term.curve else 0.0)


def _curve_ns(curve: Curve, at: float) -> float:
    assert curve.between == "linear"
    assert at <= curve.x[-1], "beyond what the profile measured"
    return float(np.interp(at, curve.x, curve.ns)) if at else 0.0


def decode_shape(sequences: float, depth: float, context: float) -> dict[str, float]:
    """A step of ``sequences`` decoding at one depth, each with ``context`` tokens in its KV."""
    tokens = sequences * (depth + 1)
    return {
        "tokens": tokens,
        "sequences": sequences,
        "logits": tokens,
        "context_tokens": sequences * context,
        "query_context_tokens": tokens * context,
    }


def target_ms(profile: Profile, sequences: float, depth: float, context: float) -> float:
    """Target pass, sampling and host time of such a step."""
    target = profile.target
    shape = decode_shape(sequences, depth, context)
    return terms_ms((*target.verify, *target.accept, *target.host), shape)


def draft_ms(drafter: Drafter, sequences: float, depth: int, first: float, context: float) -> float:
    """The drafter's passes for a uniform depth; the first one is over ``first`` tokens."""
    if depth == 0:
        return 0.0
    shape = decode_shape(sequences, 0, context)
    further = terms_ms(drafter.next, shape)
    return terms_ms(drafter.first, {**shape, "tokens": first}) + (depth - 1) * further


def round_ms(
    profile: Profile, drafter: Drafter, sequences: float, depth: int, a: float, context: float
) -> float:
    """A whole step at a uniform depth and iid acceptance, the first draft pass over what was kept."""
    kept = sequences * tokens_per_round(a, depth)
    return target_ms(profile, sequences, depth, context) + draft_ms(drafter, sequences, depth, kept, context)


def crossover(profile: Profile, drafter: Drafter, depth: int, a: float, context: float, idle: bool) -> int:
    """Fewest sequences at which ``depth`` emits no more tokens per time than depth 0.

    ``idle`` adds the pass that a loaded drafter runs at depth 0, over the step's tokens.
    """
    for n in range(1, 513):
        plain = target_ms(profile, n, 0, context) + idle * draft_ms(drafter, n, 1, n, context)
        if tokens_per_round(a, depth) * plain <= round_ms(profile, drafter, n, depth, a, context):
            return n
    raise AssertionError("no crossover within 512 sequences")


def mixed_rate(
    profile: Profile, drafter: Drafter, groups: tuple[tuple[float, float, int], ...], context: float
) -> float:
    """Output tokens per ms when each group (sequences, acceptance, depth) has a depth of its own."""
    n = sum(count for count, _, _ in groups)
    drafts = sum(count * k for count, _, k in groups)
    emitted = sum(count * tokens_per_round(a, k) for count, a, k in groups)
    time = target_ms(profile, n, drafts / n, context)
    deepest = max(k for _, _, k in groups)
    if deepest:
        time += draft_ms(drafter, n, 1, emitted, context)
    for level in range(1, deepest):
        rows = sum(count for count, _, k in groups if k > level)
        time += terms_ms(drafter.next, decode_shape(rows, 0, context))
    return emitted / time


def gain_of_own_depths(
    profile: Profile,
    drafter: Drafter,
    sizes: tuple[float, float],
    rates: tuple[float, float],
    context: float,
    closed_loop: bool = False,
) -> float:
    """Best rate with a depth (at most 5) per group, over the best uniform of 0, 1, 2, 3, 5, less 1.

    ``sizes`` are the sequences of each group in the batch, or, in a ``closed_loop``, its share of
    the requests: a request then holds its place for 1/E(k) rounds per token, so the groups' places
    are in the ratio of size / E(k).
    """

    def rate(*depths: int) -> float:
        held = [
            size / (tokens_per_round(a, k) if closed_loop else 1)
            for size, a, k in zip(sizes, rates, depths, strict=True)
        ]
        places = [sum(sizes) * each / sum(held) for each in held]
        return mixed_rate(profile, drafter, tuple(zip(places, rates, depths, strict=True)), context)

    own = max(rate(easy, hard) for easy in range(6) for hard in range(6))
    return own / max(rate(k, k) for k in (0, 1, 2, 3, 5)) - 1
