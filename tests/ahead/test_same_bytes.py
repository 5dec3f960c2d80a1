"""The compiled engine against the stepping one, byte for byte, on random systems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calibrate.profile import Profile, Term
from sim.acceptance.base import Path
from sim.acceptance.lookup import LookupProcess
from sim.ahead.asked import open_replica
from sim.ahead.choose import why_asked, why_stepped
from sim.ahead.run import ROUTER_CODES, run_ahead
from sim.cost.graphs import GraphMode
from sim.engine.client import serve
from sim.engine.simulate import Setup, simulate
from sim.fleet import fleet
from sim.fleet.config import RouterName
from sim.fleet.fleet import Member, simulate_fleet
from sim.policies.by_batch import ByBatch
from sim.policies.config import Bounds
from sim.policies.disable_by_batch_size import DisableByBatchSize
from sim.policies.goodput import Goodput
from sim.policies.mlc_auto import MlcAuto
from sim.policies.off import Off
from sim.policies.per_batch_size import PerBatchSize
from sim.policies.registry import POLICIES as REGISTRY
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from sim.streams import uniforms
from tests.bench.decisions import NEEDED
from tests.engine.test_second_implementation import System, setup_of, systems
from tests.reference.vllm_scheduler import ReferenceConfig

POLICIES: dict[str, Any] = {
    "off": Off,
    "static": lambda: Static(3),
    "deep": lambda: Static(7),
    "threshold": lambda: DisableByBatchSize(4, 3),
    "table": lambda: PerBatchSize(((1, 1, 7), (2, 3, 2), (4, 9, 0)), 7, "scheduled"),
    "sampling": lambda: PerBatchSize(((1, 2, 5), (3, 9, 1)), 7, "sampling"),
    "mlc": lambda: MlcAuto(7, 12),
}
SMALL = System(
    ReferenceConfig(
        block_size=16,
        num_blocks=40,
        max_num_seqs=3,
        max_num_batched_tokens=64,
        max_model_len=256,
        drafter="draft_model",
        depth=3,
        depth_table=(),
        long_prefill_threshold=0,
        prefix_caching=False,
        greedy=True,
    ),
    (0, 5, 300),
    (33, 2, 65),
    (20, 7, 45),
    ((3,) * 20, (0,) * 7, (2,) * 45),
    (0, 0, 0),
    0,
)
SWITCHES = (
    "draft_at_depth_zero",
    "draft_for_finished",
    "draft_uniformly",
    "draft_past_end",
    "lookahead",
    "draft_slots",
    "null_block",
    "dummy_drafts",
    "pad_new_decodes",
    "pad_queries",
    "capture_multiples",
    "overlap_host",
)


def same(ahead: RunRecords, stepped: RunRecords) -> None:
    """Every column, gap and count is equal."""
    assert ahead.requests.keys() == stepped.requests.keys()
    assert ahead.steps.keys() == stepped.steps.keys()
    for name, values in stepped.requests.items():
        np.testing.assert_array_equal(ahead.requests[name], values, err_msg=name)
    for name, values in stepped.steps.items():
        np.testing.assert_array_equal(ahead.steps[name], values, err_msg=name)
    for mine, theirs in zip(ahead.chunk_gaps, stepped.chunk_gaps, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    scalars = (
        "unfinished",
        "timed_out",
        "classes",
        "last_arrival_ns",
        "kv_blocks_total",
        "max_num_seqs",
        "replicas",
    )
    assert [getattr(ahead, name) for name in scalars] == [getattr(stepped, name) for name in scalars]


@dataclass(frozen=True)
class Sparse:
    """An acceptance process that has something to propose at every other position."""

    of: Any
    max_depth: int = 64

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> Path:
        """The path of the other, with matches."""
        path: Any = self.of.path(request, prompt_tokens, output_tokens)
        return replace(path, found=(np.arange(output_tokens) + request) % 3 > 0)


@dataclass(frozen=True)
class Claiming:
    """An acceptance process whose drafter says how sure it is, whatever comes of it."""

    of: Any
    max_depth: int

    def path(self, request: int, prompt_tokens: int, output_tokens: int) -> Path:
        """The path of the other, with claims."""
        path: Any = self.of.path(request, prompt_tokens, output_tokens)
        draws = uniforms(3, "test claims", request, output_tokens * self.max_depth)
        claims = draws.reshape(-1, self.max_depth).astype(np.float32)
        return SimpleNamespace(run=path.run, found=path.found, confidence=lambda: claims)  # type: ignore[return-value]


def _uneven(profile: Profile) -> Profile:
    """The same with context, eager and host terms, none of them whole numbers of ns."""

    def term(name: str, **per_ns: float) -> Term:
        return Term(name=name, mark="analytic", source="test", fixed_ns=333.3, per_ns=per_ns)  # type: ignore[arg-type]

    more = {
        "verify": (
            *profile.target.verify,
            term(
                "v",
                context_tokens=1.7,
                wide_context_tokens=0.37,
                query_context_tokens=0.13,
                prefill_pairs=0.31,
            ),
        ),
        "accept": (term("a", logits=17.77),),
        "host": (term("h", sequences=111.1),),
        "eager_extra": (term("e", tokens=99.9, context_tokens=0.1),),
        "piecewise_extra": (term("p", logits=55.5),),
    }
    drafter = profile.drafters["d"]
    first = (*drafter.first, term("f", context_tokens=0.7, query_context_tokens=0.03, prefill_pairs=0.01))
    following = (*drafter.next, term("n", sequences=77.7, context_tokens=0.71))
    drafters = {"d": drafter.model_copy(update={"first": first, "next": following, "block_tokens": 1})}
    target = profile.target.model_copy(update=more)
    return profile.model_copy(update={"target": target, "drafters": drafters})


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    """Random systems under random switches, some of their clients waiting for a place or going away."""
    system: System = draw(systems())
    setup = setup_of(replace(system, config=replace(system.config, prefix_caching=False)))
    engine = {name: draw(st.booleans()) for name in SWITCHES}
    engine["draft_pass_over"] = draw(st.sampled_from(["scheduled", "emitted"]))
    engine["graphs"] = draw(st.sampled_from(list(get_args(GraphMode))))
    engine["varying_depth_graphs"] = draw(st.sampled_from(["kept", "piecewise"]))
    engine["drafter_max_model_len"] = draw(st.sampled_from([None, 100])) if engine["dummy_drafts"] else None
    engine["depth_zero_overhead"] = draw(st.sampled_from([0, 12_345]))
    engine["capture_sizes"] = draw(st.sampled_from([(), (1, 2, 4, 8, 32), (4, 256)]))
    requests = replace(setup.requests, max_concurrency=draw(st.sampled_from([None, None, 1, 3])))
    if draw(st.booleans()):
        stay = draw(
            st.lists(st.sampled_from([-1, 0, 20, 60, 400]), min_size=len(requests), max_size=len(requests))
        )
        leave: NDArray[np.int64] = np.array(stay, dtype=np.int64) * 1_000_000
        requests = replace(requests, abort_ns=np.where(leave < 0, -1, requests.arrival_ns + leave))
    processes = tuple(Sparse(p) for p in setup.processes) if draw(st.booleans()) else setup.processes
    return replace(
        setup,
        requests=requests,
        profile=_uneven(setup.profile) if draw(st.booleans()) else setup.profile,
        processes=processes,
        max_depth=draw(st.sampled_from([3, 7])),
        engine=setup.engine.model_copy(update=engine),
        keep_steps=draw(st.sampled_from([True, True, False])),
    )


@settings(max_examples=120, deadline=None)
@given(setups(), st.sampled_from(sorted(POLICIES)))
def test_running_ahead_gives_the_bytes_of_stepping(setup: Setup, name: str) -> None:
    """Whatever the switches, limits, luck, clients and policy."""
    policy: ByBatch = POLICIES[name]()
    assert why_stepped(setup, policy) is None
    assert why_asked(setup.requests, [policy], [setup]) is None
    stepped = simulate(setup, POLICIES[name]())
    same(run_ahead(setup, policy), stepped)


@settings(max_examples=40, deadline=None)
@given(setups(), st.sampled_from(sorted(POLICIES)), st.integers(2, 4), st.sampled_from(sorted(ROUTER_CODES)))
def test_a_fleet_runs_ahead_as_it_is_stepped(setup: Setup, name: str, count: int, router: RouterName) -> None:
    """Every router that counts requests sends each to the same replica."""
    setup = replace(setup, requests=replace(setup.requests, max_concurrency=None, abort_ns=None))
    members = [Member(setup, POLICIES[name]()) for _ in range(count)]
    ahead = run_ahead(setup, POLICIES[name](), count, router)
    same(ahead, simulate_fleet(members, router, stepping=True))


@settings(max_examples=60, deadline=None)
@given(setups(), st.sampled_from(sorted(set(REGISTRY) - {"tree"})), st.sampled_from([None, None, 90, 700]))
def test_asking_between_compiled_halves_gives_the_bytes_of_stepping(
    setup: Setup, name: str, patience_ms: int | None
) -> None:
    """Every policy that there is hears and decides the same, whatever the switches and clients."""
    config = REGISTRY[name](policy=name, **NEEDED.get(name, {}))
    setup = replace(
        setup,
        processes=tuple(Claiming(p, setup.max_depth) for p in setup.processes),
        tpot_limits_ns=(25_000_000,),
    )
    if patience_ms is not None:
        setup = replace(setup, requests=replace(setup.requests, timeout_ns=patience_ms * 1_000_000))
    bounds = Bounds(setup.max_depth)
    replica = open_replica(simpy.Environment(), setup, config.build(bounds))
    serve(replica.env, setup.requests, replica, [replica], setup.engine.max_model_len)
    same(replica.records(), simulate(setup, config.build(bounds)))


def test_what_must_be_stepped_says_why() -> None:
    """Policies that learn, content-addressed blocks, clients that wait, matches for some."""
    setup = setup_of(SMALL)
    waiting = replace(setup, requests=replace(setup.requests, max_concurrency=1))
    caching = replace(setup, engine=setup.engine.model_copy(update={"prefix_caching": True}))
    assert "asked" in str(why_asked(setup.requests, [Goodput(3, 0.7, 0.15, 5)], [setup]))
    assert "differ" in str(why_asked(setup.requests, [Static(1), Static(2)], [setup, setup]))
    assert "idle steps" in str(why_stepped(setup, DisableByBatchSize(3, 2, acceptance_loss=0.5)))
    assert "prefix_caching" in str(why_stepped(caching, Off()))
    patient = replace(setup.requests, timeout_ns=1_000_000)
    assert "wait" in str(why_asked(patient, [Off()], [setup]))
    (process,) = setup.processes
    some = replace(setup, processes=(process, LookupProcess(process, 0, 0.5)))
    assert "some classes" in str(why_stepped(some, Off()))
    assert why_asked(waiting.requests, [Off()], [waiting]) is None
    assert "clients" in str(why_asked(waiting.requests, [Off(), Off()], [waiting, waiting]))


def test_clients_that_give_up_are_seen_whichever_engine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiled engine is at hand, who waits too long is still timed out."""
    setup = setup_of(SMALL)
    setup = replace(setup, requests=replace(setup.requests, timeout_ns=200_000_000))
    stepped = simulate(setup, Static(3))
    assert stepped.timed_out > 0
    monkeypatch.setattr(fleet, "repays", lambda setup: True)
    same(simulate_fleet([Member(setup, Static(3))]), stepped)
