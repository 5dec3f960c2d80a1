"""Trees in the engine: what they cost and hold, and holes that steps without drafts leave behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.profile import Profile, Term
from sim.engine.batch import Arena, RunningBatch, Sequence
from sim.engine.client import Client
from sim.engine.config import EngineConfig
from sim.engine.holes import Holes
from sim.engine.simulate import Setup, build_replica, collect, simulate
from sim.errors import InputError
from sim.policies.base import Batch, Depths, Policy, PolicyDefaults, Tree
from sim.policies.static import Static
from sim.policies.tree import TreeDrafts
from sim.results.run_records import RunRecords
from sim.streams import uniforms
from tests.acceptance.helpers import build, z_of_mean
from tests.acceptance.test_tree import TREES
from tests.engine.modelled import FixedPath, linear_profile, requests
from tests.engine.test_second_implementation import System, setup_of, systems

SIX = Tree(2, 3, 6)


class Varied(TreeDrafts):
    """Any number of nodes, another one for every sequence and step."""

    def draft_depths(self, batch: Batch) -> Depths:
        """From none to all."""
        return (batch.request + batch.context_tokens) % (self.nodes + 1)


class Blink(PolicyDefaults):
    """Depth ``k``, but none in the given steps."""

    def __init__(self, k: int, blind: set[int], loss: float) -> None:
        self.k, self.blind, self.acceptance_loss, self.step = k, blind, loss, -1

    def draft_depths(self, batch: Batch) -> Depths:
        """All or nothing."""
        self.step += 1
        return 0 if self.step in self.blind else self.k


def profile(kind: str = "eagle") -> Profile:
    """20 ms + 0.5 ms a token; first draft pass 2 ms + 0.05 a token, further ones 1.5 ms + 0.25 a row."""
    base = linear_profile(20.0, 0.5, draft=(2.0, 0.05, 1.5), kind=kind)
    row = Term(name="row", mark="analytic", source="test", per_ns={"tokens": 0.25e6})
    further = (*base.drafters["d"].next, row) if kind == "eagle" else ()
    drafter = base.drafters["d"].model_copy(update={"next": further})
    return base.model_copy(update={"drafters": {"d": drafter}})


def run(policy: Policy, model: Profile | None = None, **given: Any) -> RunRecords:
    """``count`` sequences of 8 and ``output`` tokens, an engine that holds all of them."""
    alpha, sibling, depth = given.pop("alpha", 0.0), given.pop("sibling", 0.0), given.pop("depth", 3)
    count, output, model = given.pop("count", 4), given.pop("output", 40), model or profile()
    process = build(depth, 0, process="iid", alpha=alpha, sibling=sibling)
    most = policy.tree.nodes if policy.tree else depth
    engine = EngineConfig(**{"preset": "vllm_v1", "kv_blocks": 10_000, "capture_sizes": (), **given})
    arrivals = requests(np.zeros(count), 8, output)
    return simulate(Setup(arrivals, model, model.drafters["d"], engine, (process,), most), policy)


def steady(records: RunRecords, column: str) -> int:
    """A column's value while all sequences decode."""
    values = records.steps[column][5:20]
    assert len(set(values.tolist())) == 1
    return int(values[0])


# -- costs, by hand --------------------------------------------------------------------------------


@pytest.mark.parametrize(("preset", "first"), [("vllm_v1", 28), ("ideal", 4)])
def test_a_tree_is_drafted_in_depth_passes_and_verified_in_one(preset: str, first: int) -> None:
    """Four sequences, six nodes, width two: verify 4 x 7 tokens, then two passes of 4 x 2 rows."""
    records = run(TreeDrafts(SIX), preset=preset)
    assert steady(records, "tokens") == 28
    assert steady(records, "verify_ns") == (20 + 0.5 * 28) * 1e6
    assert steady(records, "draft_passes") == 3
    assert steady(records, "draft_first_tokens") == first
    assert steady(records, "draft_next_tokens") == 16
    assert steady(records, "draft_ns") == (2 + 0.05 * first + 2 * (1.5 + 0.25 * 8)) * 1e6


def test_every_expanded_node_reads_its_sequence_again() -> None:
    """One pass over the KV for the step, then two passes of two rows each: five times."""
    records = run(TreeDrafts(SIX))
    steps = slice(5, 20)
    read = records.steps["draft_context_tokens"][steps]
    np.testing.assert_array_equal(read, 5 * records.steps["context_tokens"][steps])


def test_heads_that_propose_all_levels_at_once_run_one_pass() -> None:
    """Medusa's tree: no pass after the first."""
    records = run(TreeDrafts(SIX), profile("parallel"))
    assert steady(records, "draft_passes") == 1
    assert steady(records, "draft_ns") == 3_400_000  # 2 ms + 0.05 ms x 28


def test_sequences_without_a_tree_are_not_drafted_for() -> None:
    """With per-sequence drafting, only those that get nodes are rows of the further passes."""

    class Some(TreeDrafts):
        def draft_depths(self, batch: Batch) -> Depths:
            return np.where(batch.request < 1, self.nodes, 0)

    records = run(Some(SIX), preset="ideal", output=90)
    assert steady(records, "draft_next_tokens") == 2 * 2
    assert steady(records, "drafted") == 6


def test_kv_is_held_for_all_nodes_ahead() -> None:
    """Blocks of one token: what is computed, and six slots more for each of four sequences."""
    records = run(TreeDrafts(SIX), block_size=1)
    steps = slice(5, 20)
    held = records.steps["kv_blocks"][steps]
    np.testing.assert_array_equal(held, records.steps["context_tokens"][steps] + 4 * 6)


def test_drafted_counts_nodes_and_accepted_what_is_kept() -> None:
    """Every draft right, three levels: three of six nodes are kept in every round."""
    records = run(TreeDrafts(SIX), alpha=1.0, count=1, output=41)
    assert records.requests["drafted"].tolist() == [60]
    assert records.requests["accepted"].tolist() == [30]
    assert records.requests["rounds"].tolist() == [10]


# -- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["ideal", "vllm_v1"])
@settings(max_examples=15, deadline=None)
@given(systems(), st.integers(1, 7))
def test_a_tree_of_width_one_is_static(preset: str, system: System, depth: int) -> None:
    """Every column of every record is the same."""
    setup = setup_of(system)
    setup = replace(setup, engine=setup.engine.model_copy(update={"preset": preset}), max_depth=depth)
    tree, chain = simulate(setup, TreeDrafts(Tree(1, depth, depth))), simulate(setup, Static(depth))
    for ours, theirs in ((tree.steps, chain.steps), (tree.requests, chain.requests)):
        for name, values in ours.items():
            np.testing.assert_array_equal(values, theirs[name], err_msg=name)


@settings(max_examples=30, deadline=None)
@given(systems(), TREES, st.sampled_from([TreeDrafts, Varied]), st.sampled_from(["ideal", "vllm_v1"]))
def test_requests_memory_and_time_are_conserved_with_trees(
    system: System, tree: Tree, policy: type[TreeDrafts], preset: str
) -> None:
    """Every request ends once with all its tokens; blocks balance; no more is accepted than levels allow."""
    setup = setup_of(system)
    process = build(tree.depth, process="iid", alpha=0.6, sibling=0.4)
    more = -(-2 * tree.nodes // setup.engine.block_size)
    update = {
        "preset": preset,
        "kv_blocks": (setup.engine.kv_blocks or 0) + more,
        "max_num_batched_tokens": setup.engine.max_num_batched_tokens + tree.nodes,
    }
    engine = setup.engine.model_copy(update=update)
    setup = replace(setup, engine=engine, processes=(process,), max_depth=tree.nodes)
    env = simpy.Environment(initial_time=0)
    replica = build_replica(env, setup, policy(tree))
    client = Client(env, setup.requests, replica, engine.max_model_len)

    def check(request: int) -> None:
        client.done(request)
        replica.scheduler.check_integrity()

    replica.done = check
    env.process(client.run())
    env.process(replica.run())
    env.run(until=client.finished)
    records = collect(setup, replica)
    assert records.requests["output_tokens"].tolist() == list(system.outputs)
    assert records.steps["emitted"].sum() == sum(system.outputs)
    assert replica.scheduler.pool.free == replica.scheduler.pool.capacity
    assert np.all(records.steps["start_ns"][1:] >= records.steps["end_ns"][:-1])
    r = records.requests
    assert np.all(r["accepted"] <= np.minimum(r["drafted"], tree.depth * r["rounds"]))
    assert r["drafted"].sum() == records.steps["drafted"].sum()


def test_a_budget_that_cuts_a_tree_leaves_its_likeliest_nodes() -> None:
    """Four tokens a step are three of six nodes: as good as a tree of three."""
    given = {"alpha": 0.5, "sibling": 0.4, "count": 1, "output": 400, "max_num_batched_tokens": 4}
    cut, small = run(TreeDrafts(SIX), **given), run(TreeDrafts(Tree(2, 3, 3)), **given)
    for name in ("rounds", "accepted", "drafted"):
        np.testing.assert_array_equal(cut.requests[name], small.requests[name])


def test_a_tree_policy_is_told_what_acceptance_lacks() -> None:
    with pytest.raises(InputError, match="sibling"):
        run(TreeDrafts(SIX), sibling=None)


def test_a_tree_policy_cannot_ask_for_confidence() -> None:
    class Curious(TreeDrafts):
        wants_confidence = True

    with pytest.raises(InputError, match="chains alone"):
        run(Curious(SIX))


# -- holes -----------------------------------------------------------------------------------------


def test_a_step_without_drafts_loses_the_stated_share_of_acceptance_for_good() -> None:
    """Drafts that would all be accepted are then accepted as iid ones at 1 - loss."""
    records = run(Blink(3, {4}, 0.3), preset="ideal", alpha=1.0, count=40, output=400)
    rounds = records.steps["drafted"] > 0
    before, after = np.flatnonzero(rounds)[:4], np.flatnonzero(rounds)[4:60]
    np.testing.assert_array_equal(records.steps["accepted"][before], records.steps["drafted"][before])
    mean = records.steps["accepted"][after] / records.steps["sequences"][after]
    assert abs(z_of_mean(mean, 0.7 + 0.49 + 0.343)) < 4


def test_there_is_no_hole_where_the_drafter_ran_all_the_same() -> None:
    """At depth 0 vLLM V1 runs the drafter's first pass, which keeps its KV whole."""
    for engine in ({"preset": "vllm_v1"}, {"preset": "ideal", "model": profile("ngram")}):
        records = run(Blink(3, {4}, 1.0), alpha=1.0, output=100, **engine)
        np.testing.assert_array_equal(records.requests["accepted"], records.requests["drafted"])


def test_only_sequences_that_lived_through_the_step_have_the_hole() -> None:
    """Requests that are admitted later accept everything."""
    records = run(Blink(3, {4}, 1.0), preset="ideal", alpha=1.0, count=8, max_num_seqs=4)
    accepted, drafted = records.requests["accepted"], records.requests["drafted"]
    assert np.all(accepted[:4] == 4 * 3)
    assert np.all(drafted[:4] > accepted[:4])
    np.testing.assert_array_equal(accepted[4:], drafted[4:])


def holed(produced: int) -> list[int]:
    """Runs from output position 20 on, all 3 before, of a sequence holed after ``produced`` tokens."""
    arena, batch = Arena(1, 50, 3, False), RunningBatch(1)
    pointer = arena.put(FixedPath(np.full(40, 3, dtype=np.uint8)), 40)  # type: ignore[arg-type]
    sequence = Sequence(7, 0, prompt_tokens=5, output_tokens=40, arrival_ns=0, sent_ns=0, produced=produced)
    batch.append(sequence, pointer, granted=1, held=0)
    Holes(batch, arena, seed=3, loss=0.4, depth=3).punch()
    runs: list[int] = arena.runs[pointer + 20 : pointer + 40].tolist()
    return runs


def test_which_drafts_are_lost_belongs_to_their_positions() -> None:
    """Whenever the hole is made, the draft for position p is kept if its own draw is below 0.6."""
    draws = uniforms(3, "acceptance/holes", 7, 43)
    expected = [next((j for j in range(3) if draws[p + j] >= 0.6), 3) for p in range(20, 40)]
    assert holed(0) == holed(13) == holed(20) == expected


def test_a_second_step_without_drafts_loses_nothing_more() -> None:
    """Which drafts are lost belongs to their positions, so the same are lost again."""
    once = run(Blink(3, {4}, 0.5), preset="ideal", alpha=0.9, count=30, output=300)
    thrice = run(Blink(3, {4, 5, 6}, 0.5), preset="ideal", alpha=0.9, count=30, output=300)
    rates = [r.requests["accepted"] / r.requests["rounds"] for r in (once, thrice)]
    assert abs(z_of_mean(rates[0] - rates[1], 0.0)) < 4


def test_a_preempted_sequence_is_whole_again() -> None:
    """Its drafter KV is rebuilt with the target's; the sequence that stayed keeps its hole."""
    given = {"block_size": 4, "kv_blocks": 34, "count": 2, "output": 80, "max_model_len": 100}
    records = run(Blink(3, {2}, 1.0), preset="ideal", alpha=1.0, **given)
    stayed, left = records.requests["preemptions"].tolist()
    assert (stayed, left > 0) == (0, True)
    assert records.requests["accepted"][0] == 2 * 3
    assert records.requests["accepted"][1] > 2 * 3


def test_trees_lose_drafts_as_chains_do() -> None:
    """With everything lost, no node is accepted after the step without drafts."""

    class BlinkingTree(Blink):
        tree = SIX

    records = run(BlinkingTree(6, {4}, 1.0), preset="ideal", alpha=1.0)
    rounds = np.flatnonzero(records.steps["drafted"] > 0)
    assert np.all(records.steps["accepted"][rounds[:4]] == 12)
    assert np.all(records.steps["accepted"][rounds[4:]] == 0)
