"""Prefill first, whole prompts, reservation, swapping: the engine against a plain second implementation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.off import Off
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests
from tests.reference.other_schedulers import PlainScheduler, Request, Rules

CLOCK_MS = (20.0, 0.5, 2.0, 0.05, 1.5)
BLOCK_NS = 1_000_000
"""What moving one block between host and device takes."""


@dataclass(frozen=True)
class Traffic:
    """Requests, with the drafts that would be accepted at every output position."""

    arrivals_ms: tuple[int, ...]
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    runs: tuple[tuple[int, ...], ...]


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    """Any mixture of rules, every limit tight now and then."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    depth = draw(st.sampled_from([0, 0, 1, 3]))
    slots = 1 if depth else 0
    longest = 100 + 60 + 2 * depth
    return Rules(
        budget=draw(st.sampled_from([101, 160, 2048])) if draw(st.booleans()) else 130,
        max_num_seqs=draw(st.sampled_from([1, 3, 8])),
        block_size=block_size,
        blocks=-(-longest // block_size) + draw(st.sampled_from([0, 2, 10, 1000])),
        depth=depth,
        lookahead=depth,
        slots=slots,
        prompts_first=draw(st.booleans()),
        most_in_a_row=draw(st.sampled_from([0, 1, 2])),
        whole_prompts=draw(st.booleans()),
        reserved_output=draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
        host_blocks=draw(st.sampled_from([None, 0, 12, 1000])),
        victim=draw(st.sampled_from(["last", "fewest_output"])),
        requeue=draw(st.sampled_from(["front", "back"])),
    )


@st.composite
def traffic(draw: st.DrawFn) -> Traffic:
    """A dozen requests at most, prompts to 100 tokens and answers to 60."""
    n = draw(st.integers(1, 12))
    prompts = draw(st.lists(st.sampled_from([1, 2, 16, 40, 99, 100]), min_size=n, max_size=n))
    outputs = draw(st.lists(st.sampled_from([1, 2, 9, 30, 60]), min_size=n, max_size=n))
    gaps = draw(st.lists(st.sampled_from([0, 0, 7, 60, 400]), min_size=n, max_size=n))
    luck = np.random.Generator(np.random.Philox(draw(st.integers(0, 10**6))))
    runs = tuple(tuple(luck.integers(0, 4, size=o).tolist()) for o in outputs)
    return Traffic(tuple(np.cumsum(gaps).tolist()), tuple(prompts), tuple(outputs), runs)


@dataclass
class PlainRun:
    """The plain scheduler under the modelled clock, in integer microseconds."""

    rules: Rules
    traffic: Traffic
    now_us: int = 0
    steps: list[tuple[int, ...]] = field(default_factory=list)
    finish_us: dict[int, int] = field(default_factory=dict)

    def run(self) -> PlainRun:
        """All requests to the end."""
        scheduler, t = PlainScheduler(self.rules), self.traffic
        arrivals, arrived = [ms * 1000 for ms in t.arrivals_ms], 0
        while len(self.finish_us) < len(arrivals):
            if not scheduler.waiting and not scheduler.running:
                self.now_us = max(self.now_us, arrivals[arrived])
            while arrived < len(arrivals) and arrivals[arrived] <= self.now_us:
                scheduler.waiting.append(Request(arrived, t.prompts[arrived], t.outputs[arrived]))
                arrived += 1
            self._step(scheduler)
        return self

    def _step(self, scheduler: PlainScheduler) -> None:
        step = scheduler.schedule()
        a, b, d0, d1, d2 = (round(1000 * ms) for ms in CLOCK_MS)
        tokens = sum(step.tokens.values())
        self.now_us += a + b * tokens + step.moved * (BLOCK_NS // 1000)
        if self.rules.depth and step.tokens:
            self.now_us += d0 + d1 * tokens + d2 * (self.rules.depth - 1)
        row = (self.now_us * 1000, tokens, len(step.tokens), sum(step.drafts.values()), len(step.preempted))
        held = self.rules.blocks - scheduler.free
        self.steps.append((*row, len(scheduler.waiting), held))
        emitted = {
            r.number: min(self.traffic.runs[r.number][r.produced], step.drafts.get(r.number, 0)) + 1
            for r in scheduler.emits()
        }
        self.finish_us |= dict.fromkeys(scheduler.update(emitted), self.now_us)


def engine_run(rules: Rules, t: Traffic) -> RunRecords:
    """The engine under the same rules: vLLM's, with the switches that say otherwise."""
    a, b, d0, d1, d2 = CLOCK_MS
    profile = linear_profile(a, b, draft=(d0, d1, d2), kind="draft_model")
    size = rules.block_size * profile.target.work.kv_bytes_per_token
    host: dict[str, Any] = {"preemption": "recompute"}
    if rules.host_blocks is not None:
        host = {
            "preemption": "swap",
            "swap_space": f"{round(size * rules.host_blocks)}B",
            "swap_bandwidth": f"{size / BLOCK_NS}GB/s",
        }
    engine = EngineConfig.model_validate(
        {
            "preset": "vllm_v1",
            "null_block": False,
            "pad_new_decodes": False,
            "capture_sizes": (),
            "max_num_seqs": rules.max_num_seqs,
            "max_num_batched_tokens": rules.budget,
            "block_size": rules.block_size,
            "kv_blocks": max(rules.blocks, 2),
            "prefill": "first" if rules.prompts_first else "mixed",
            "max_prefill_steps": rules.most_in_a_row,
            "chunked_prefill": not rules.whole_prompts,
            "reserved_output": rules.reserved_output,
            "victim": rules.victim,
            "requeue": rules.requeue,
        }
        | host
    )
    setup = Setup(
        requests(np.array(t.arrivals_ms) / 1e3, t.prompts, t.outputs),
        profile,
        profile.drafters["d"],
        engine,
        (RecordedAcceptance(t.runs),),
        rules.depth,
    )
    return simulate(setup, Static(rules.depth) if rules.depth else Off())


@settings(max_examples=100, deadline=None)
@given(rules(), traffic())
def test_both_implementations_take_the_same_steps(rules: Rules, traffic: Traffic) -> None:
    """Clock, tokens, sequences, drafts, preemptions, queue and held blocks agree in every step."""
    plain = PlainRun(rules, traffic).run()
    run = engine_run(rules, traffic)
    columns = ("end_ns", "tokens", "sequences", "drafted", "preempted", "waiting", "kv_blocks")
    assert list(zip(*(run.steps[name].tolist() for name in columns), strict=True)) == plain.steps
    assert run.requests["finish_ns"].tolist() == [
        plain.finish_us[i] * 1000 for i in range(len(traffic.prompts))
    ]


@settings(max_examples=25, deadline=None)
@given(rules(), traffic())
def test_with_whole_answers_reserved_nothing_is_preempted(rules: Rules, traffic: Traffic) -> None:
    """GUARANTEED_NO_EVICT keeps its promise, whatever else the engine does."""
    run = engine_run(replace(rules, reserved_output=1.0), traffic)
    assert run.steps["preempted"].sum() == 0


@settings(max_examples=25, deadline=None)
@given(rules(), traffic())
def test_no_step_mixes_prompts_with_decodes_when_prompts_come_first(rules: Rules, traffic: Traffic) -> None:
    """A step with a prompt of several tokens emits at most one token for each of its sequences."""
    run = engine_run(replace(rules, prompts_first=True), traffic)
    prefills = run.steps["prefill_tokens"] > 0
    assert np.all(run.steps["drafted"][prefills] == 0)


@settings(max_examples=25, deadline=None)
@given(rules(), traffic(), st.integers(1, 3))
def test_prefill_steps_in_a_row_end_after_the_most_while_sequences_decode(
    rules: Rules, traffic: Traffic, most: int
) -> None:
    """While somebody has emitted and is not done, no more than so many steps pass without an emission of it.

    Counted as prefill steps without a decode between two decode steps.
    """
    rules = replace(rules, prompts_first=True, most_in_a_row=most, blocks=10_000)
    run = engine_run(rules, traffic)
    r = run.requests
    row = 0
    for prefill, start in zip(run.steps["prefill_tokens"] > 0, run.steps["start_ns"], strict=True):
        decoding = bool(np.any((r["first_token_ns"] <= start) & (start < r["finish_ns"])))
        row = row + 1 if prefill and decoding else 0
        assert row <= most
