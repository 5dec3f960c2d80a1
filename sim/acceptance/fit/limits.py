"""What the data cannot tell: said beside every fit, so that nobody reads more into it."""

from __future__ import annotations

from sim.acceptance.fit.evidence import Detail, Evidence

_BY_DETAIL: dict[Detail, tuple[str, ...]] = {
    "mean": (
        "Nothing about positions: every draft was taken to be accepted with one chance, independently (iid).",
        "Nothing about how requests differ: iid understates their spread, by half where they do, so tails of "
        "latency come out too short.",
    ),
    "counts": (
        "How requests differ, and so the tails of latency.",
        "Whether rates that rise with position come from easy requests or from easy stretches: beta per "
        "request takes all for the one and spreads requests too far, markov for the other and too little.",
    ),
    "requests": (
        "Whether hard stretches persist inside a request: rounds have no order here.",
        "Other depths: each request was seen at one.",
    ),
    "rounds": (
        "Depths beyond those drafted, and what would have become of drafts behind a rejection.",
        "Other depths, but through the process: each request was seen at one depth.",
    ),
    "positions": (
        "Depths beyond the recording.",
        "What a drafter that sees its own earlier drafts would propose after them: recorded positions follow "
        "the target's tokens.",
    ),
}


def cannot_tell(evidence: Evidence) -> tuple[str, ...]:
    """One sentence per thing that this evidence leaves open."""
    found = list(_BY_DETAIL[evidence.detail])
    if evidence.detail in ("mean", "counts") and len(evidence.depths) == 1:
        k = evidence.depths[0]
        found.append(
            f"Other depths: all rounds drafted {k}. Rates by position belong to their depth, as rounds start "
            "behind rejections; count at two depths to see how much that matters."
        )
    if evidence.quality is None:
        found.append(
            "How good the drafter's confidences are; state confidence: {auc: ...} where a policy asks."
        )
    return tuple(found)


def not_alpha(evidence: Evidence) -> str | None:
    """Why accepted / drafted must not be written as alpha, with the numbers of this evidence."""
    groups = [group for group in evidence.by_depth() if group.depth > 1]
    if not groups:
        return None
    group = groups[-1]
    rate = max(0.0, group.tokens_per_round - 1) / group.depth
    return (
        f"accepted / drafted is {rate:.3g} at depth {group.depth}. It is no per-token rate, and "
        "refused as alpha: a rejection ends its round, and the drafts behind it count as drafted."
    )
