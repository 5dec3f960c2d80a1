"""Claims have the quality the scenario states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import rankdata

from sim.errors import InputError
from tests.acceptance.helpers import build

Floats = NDArray[np.float64]
DEPTH = 4
CONFIGS: list[dict[str, Any]] = [
    {"process": "iid", "alpha": 0.7},
    {"process": "per_position", "conditional": [0.6, 0.7, 0.8, 0.85]},
    {"process": "beta", "a": 3.99, "b": 3.48},
    {"process": "latent", "mean": 0.7, "spread": 1.5, "correlation": 0.6, "request_share": 0.3},
    {
        "process": "markov",
        "good": 0.85,
        "bad": 0.4,
        "leave_good": 0.1,
        "leave_bad": 0.15,
        "depth_decay": 0.95,
    },
]
IDS = [str(config["process"]) for config in CONFIGS]


def claims_by_depth(
    config: dict[str, Any], prompt: int = 1, requests: int = 1200
) -> list[tuple[Floats, Floats]]:
    """(claims, accepted) per depth over drafts whose predecessors were accepted."""
    process = build(DEPTH, **config)
    paths = [process.path(request, prompt, 100) for request in range(requests)]
    run = np.concatenate([path.run for path in paths])
    claims = np.concatenate([path.confidence() for path in paths]).astype(np.float64)
    return [(claims[run >= j, j], (run[run >= j] > j).astype(np.float64)) for j in range(DEPTH)]


def area_under_curve(claims: Floats, accepted: Floats) -> float:
    """Mann-Whitney: the chance that an accepted draft outranks a rejected one."""
    ranks, hits = rankdata(claims), accepted.sum()
    return float((ranks[accepted == 1].sum() - hits * (hits + 1) / 2) / (hits * (len(claims) - hits)))


def calibration_error(claims: Floats, accepted: Floats) -> float:
    """Expected calibration error over 15 bins of equal width (Guo et al. 2017)."""
    bins = np.minimum((claims * 15).astype(int), 14)
    gaps = [abs((claims - accepted)[bins == b].sum()) for b in range(15)]
    return float(sum(gaps) / len(claims))


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
@pytest.mark.parametrize("auc", [0.7, 0.85])
def test_measured_auc_is_the_stated_one_at_every_depth(config: dict[str, Any], auc: float) -> None:
    """Within 0.01, at each depth, whatever made the drafts pass."""
    for claims, accepted in claims_by_depth({**config, "confidence": {"auc": auc}}):
        assert area_under_curve(claims, accepted) == pytest.approx(auc, abs=0.01)


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_claims_are_calibrated_at_temperature_1_and_timid_at_2(config: dict[str, Any]) -> None:
    """Calibration error below 0.02 at temperature 1; more than twice that at 2, where claims shrink."""
    fair = claims_by_depth({**config, "confidence": {"auc": 0.85}})
    timid = claims_by_depth({**config, "confidence": {"auc": 0.85, "temperature": 2.0}})
    for (claims, accepted), (shrunk, _) in zip(fair, timid, strict=True):
        error = calibration_error(claims, accepted)
        assert error < 0.02
        assert calibration_error(shrunk, accepted) > max(0.04, 2 * error)
        assert np.all(np.abs(shrunk - 0.5) <= np.abs(claims - 0.5) + 1e-6)


def test_claims_follow_a_decaying_acceptance() -> None:
    """At a context where acceptance has fallen by 2^-1.1, claims are calibrated still."""
    decay = {"from_tokens": 1000, "half_life_tokens": 1000}
    config = {"process": "beta", "a": 8.0, "b": 2.0, "confidence": {}, "decay": decay}
    for claims, accepted in claims_by_depth(config, prompt=2100):
        assert calibration_error(claims, accepted) < 0.02


def test_an_auc_of_one_half_claims_the_base_rate() -> None:
    """A drafter that cannot tell claims the population's rate of that depth, always."""
    process = build(3, process="per_position", conditional=[0.6, 0.7, 0.8], confidence={"auc": 0.5})
    claims = process.path(0, 1, 50).confidence()
    assert claims == pytest.approx(np.tile([0.6, 0.7, 0.8], (50, 1)), abs=1e-6)


def test_a_larger_depth_keeps_the_claims() -> None:
    """Claims for the first depths do not depend on how many follow."""
    for config in CONFIGS:
        deep = build(8, **config, confidence={}).path(2, 1, 80).confidence()
        shallow = build(3, **config, confidence={}).path(2, 1, 80).confidence()
        assert np.array_equal(deep[:, :3], shallow)


def test_claims_behind_a_rejection_tell_nothing_about_it() -> None:
    """Claims at depth 1 have the same mean whether or not draft 0 was accepted (iid)."""
    process = build(2, process="iid", alpha=0.6, confidence={"auc": 0.9})
    path = process.path(0, 1, 40_000)
    claims, passed = path.confidence()[:, 1].astype(np.float64), path.run[:] > 0
    kept, behind = claims[passed], claims[~passed]
    error = np.hypot(kept.std() / np.sqrt(len(kept)), behind.std() / np.sqrt(len(behind)))
    assert abs(kept.mean() - behind.mean()) < 4 * error


def test_asking_for_undescribed_confidence_names_the_fix() -> None:
    """A scenario that states no confidence has none to give."""
    with pytest.raises(InputError, match=r"confidence: \{auc: 0.85\}"):
        build(4, process="iid", alpha=0.5).path(0, 1, 10).confidence()
