"""The ridge: step tokens at which a verify pass turns from memory- to compute-bound."""

from __future__ import annotations

from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.profile import Profile


def ridge_tokens(profile: Profile) -> float | None:
    """Tokens at which the part that grows equals the floor, without context; ``None`` if not within reach.

    A measured profile's fit states it. Otherwise the floor is one token's pass and the growth that of
    the upper half of the profile's range. A mixture of experts has none: it grows with the experts
    reached before it grows with work.
    """
    report = profile.fit.get("verify")
    if report is not None and report.ridge_tokens is not None:
        return report.ridge_tokens
    if profile.target.work.experts is not None:
        return None
    top = profile.max_tokens
    one, half, most = (pass_ns(profile.target.verify, decode_shape(n, 0)) for n in (1, top // 2, top))
    slope = (most - half) / (top - top // 2)
    return one / slope if slope > 0 and one / slope < top else None
