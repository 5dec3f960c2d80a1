"""Every switch does something: for each there is a small scenario whose records it changes.

A new switch needs a line in ``CHANGES``: a scene in which it matters, and two of its values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import ArrayLike

from calibrate.profile import Profile, Term
from sim.engine.behaviour import Behaviour, BehaviourSettings
from sim.engine.config import EngineConfig
from sim.engine.presets import PRESETS
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Policy
from sim.policies.disable_by_batch_size import DisableByBatchSize
from sim.policies.oracle import Oracle
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests
from tests.engine.switches import values_of


@dataclass(frozen=True)
class Scene:
    """Requests and an engine; vLLM's V1 with memory for all, but for what ``engine`` says."""

    engine: dict[str, Any] = field(default_factory=dict)
    policy: Policy = field(default_factory=lambda: Static(3))
    kind: str = "eagle"
    arrival_s: ArrayLike = (0.0, 0.0, 0.05, 0.3, 0.31)
    prompt: ArrayLike = (40, 90, 33, 64, 64)
    output: ArrayLike = (12, 30, 20, 9, 25)
    shared: int = 0

    def run(self, **switch: Any) -> RunRecords:
        """The records with one switch set."""
        plain = requests(self.arrival_s, self.prompt, self.output)
        n = len(plain)
        runs = [[(7 * request + 3 * position) % 4 for position in range(64)] for request in range(n)]
        profile = hybrid(linear_profile(5.0, 0.1, draft=(1.0, 0.02, 0.5), kind=self.kind))
        limits = {"kv_blocks": 100_000, "block_size": 4, "max_model_len": 256}
        return simulate(
            Setup(
                requests=replace(plain, prefix_group=np.zeros(n, int), prefix_tokens=np.full(n, self.shared)),
                profile=profile,
                drafter=profile.drafters["d"],
                engine=EngineConfig.model_validate(limits | self.engine | switch),
                processes=(RecordedAcceptance(runs),),
                max_depth=3,
            ),
            self.policy,
        )


def hybrid(profile: Profile) -> Profile:
    """The profile with host time, a little state per sequence, and passes that cost more in pieces."""
    work = profile.target.work.model_copy(update={"state_bytes_per_sequence": 8e5})
    host, extra = (Term(name=n, mark="analytic", source="test", fixed_ns=1e6) for n in ("host", "extra"))
    more = {"work": work, "host": (host,), "piecewise_extra": (extra,), "eager_extra": (extra, extra)}
    return profile.model_copy(update={"target": profile.target.model_copy(update=more)})


TIGHT: Final = {"kv_blocks": 72, "prefix_caching": False}
"""Memory for two or three of the five requests."""
CRAMPED: Final = Scene(TIGHT, arrival_s=np.zeros(5), prompt=(33, 40, 64, 20, 64), output=(50, 60, 50, 60, 60))
LATE_LONGEST: Final = Scene(TIGHT, arrival_s=np.zeros(5), prompt=(64, 64, 33, 20, 20), output=60)
SPARSE: Final = Scene(policy=DisableByBatchSize(3, 2))
DEEP_AND_SHALLOW: Final = Scene(policy=Oracle(3))
SHARING: Final = Scene({"prefix_caching": True, "prefix_unit": 16}, shared=33)

CHANGES: Final[dict[str, tuple[Scene, Any, Any]]] = {
    "draft_at_depth_zero": (SPARSE, False, True),
    "draft_pass_over": (Scene(), "scheduled", "emitted"),
    "draft_for_finished": (Scene(), False, True),
    "draft_uniformly": (DEEP_AND_SHALLOW, False, True),
    "draft_past_end": (Scene(), False, True),
    "lookahead": (Scene(), False, True),
    "draft_slots": (Scene({"max_num_batched_tokens": 24}, kind="draft_model"), False, True),
    "null_block": (CRAMPED, False, True),
    "dummy_drafts": (Scene({"max_model_len": 120}), False, True),
    "pad_new_decodes": (Scene(prompt=(1, 90, 1, 1, 64)), False, True),
    "pad_queries": (DEEP_AND_SHALLOW, False, True),
    "prefix_caching": (SHARING, False, True),
    "drop_last_hit": (SHARING, False, True),
    "capture_sizes": (Scene(), (), (16, 64)),
    "graphs": (Scene({"capture_sizes": (16, 64)}), "full", "none"),
    "varying_depth_graphs": (
        Scene({"capture_sizes": (16, 64)}, policy=DisableByBatchSize(3, 2)),
        "kept",
        "piecewise",
    ),
    "capture_multiples": (Scene({"capture_sizes": (6, 30, 64)}), False, True),
    "overlap_host": (Scene(), False, True),
    "async_scheduling": (Scene(), False, True),
    "stale_decisions": (SPARSE, 0, 2),
    "pad_depths": (DEEP_AND_SHALLOW, False, True),
    "drafter_limit_stops_all": (Scene({"drafter_max_model_len": 60, "dummy_drafts": False}), False, True),
    "checkpoint_states": (Scene(), False, True),
    "prefill": (Scene(), "mixed", "first"),
    "mixed_under_speculation": (Scene(), False, True),
    "chunked_prefill": (Scene({"max_num_batched_tokens": 100}), False, True),
    "reserved_output": (CRAMPED, 0.0, 1.0),
    "preemption": (CRAMPED, "recompute", "swap"),
    "victim": (LATE_LONGEST, "last", "fewest_output"),
    "requeue": (CRAMPED, "front", "back"),
    # A new switch: "name": (a scene in which it matters, one value, another).
}


def same(a: RunRecords, b: RunRecords) -> bool:
    """Whether two runs wrote down the same."""
    if a.kv_blocks_total != b.kv_blocks_total or a.steps.keys() != b.steps.keys():
        return False
    tables = ((a.requests, b.requests), (a.steps, b.steps))
    return all(np.array_equal(x[name], y[name]) for x, y in tables for name in x)


@pytest.mark.parametrize("name", Behaviour.model_fields)
def test_every_switch_changes_the_records_of_some_scene(name: str) -> None:
    """``CHANGES`` has a line for it, and its two values give different runs."""
    assert name in CHANGES, f"add a line for {name} to CHANGES, with a scene in which it matters"
    scene, one, other = CHANGES[name]
    assert not same(scene.run(**{name: one}), scene.run(**{name: other}))


def test_every_switch_may_be_set_alone_and_is_drawn() -> None:
    """Settings have the preset's names, and the random systems know every switch's type."""
    assert set(BehaviourSettings.model_fields) == set(Behaviour.model_fields)
    for switch in Behaviour.model_fields.values():
        values_of(switch)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_a_valid_behaviour(preset: str) -> None:
    """Every value that a preset sets is one that a scenario may set."""
    values = PRESETS[preset].model_dump()  # type: ignore[index]
    assert Behaviour.model_validate(values) == PRESETS[preset]  # type: ignore[index]
