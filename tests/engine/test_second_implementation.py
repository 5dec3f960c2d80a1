"""The vectorised engine against the plain reference of vLLM's scheduler, on random systems.

Both get the same arrivals, lengths, luck and step costs; every step must agree. This covers what
the recordings do not hold: other drafters, small blocks, every limit tight at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Policy
from sim.policies.config import Bounds
from sim.policies.off import Off
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.static import Static
from tests.engine.modelled import RecordedAcceptance, linear_profile, requests
from tests.reference.vllm_scheduler import ReferenceConfig, ReferenceScheduler, Step

LIMIT = 256
CLOCK_MS = (20.0, 0.5, 2.0, 0.05, 1.5)


@dataclass(frozen=True)
class System:
    """One random system: a reference configuration, the requests and their luck."""

    config: ReferenceConfig
    arrivals_ms: tuple[int, ...]
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    runs: tuple[tuple[int, ...], ...]
    groups: tuple[int, ...]
    shared: int


def lengths(n: int) -> st.SearchStrategy[list[int]]:
    """Output lengths of ``n`` requests; some reach the context limit."""
    return st.lists(st.sampled_from([1, 2, 7, 20, 45, 90, LIMIT]), min_size=n, max_size=n)


@st.composite
def systems(draw: st.DrawFn) -> System:
    """Small systems with every limit tight now and then."""
    block_size = draw(st.sampled_from([4, 16, 32]))
    seqs = draw(st.sampled_from([1, 3, 8]))
    depth = draw(st.sampled_from([0, 1, 3, 7]))
    drafter = draw(st.sampled_from(["draft_model", "eagle", "mtp", "dflash", "ngram"])) if depth else "off"
    table: tuple[tuple[int, int, int], ...] = ()
    if depth and draw(st.booleans()):
        a, b = draw(st.integers(1, 3)), draw(st.integers(0, 2))
        table = ((1, a, depth), (a + 1 + b, a + 3 + b, depth // 2), (a + 4 + b, 99, 0))
    full = -(-(LIMIT + 8) // block_size) + 1
    caching = draw(st.booleans())
    least = 16  # some tests set another depth, up to 7, whose slots and padding must fit
    config = ReferenceConfig(
        block_size=block_size,
        num_blocks=full + draw(st.sampled_from([0, 2, 6, 1000])),
        max_num_seqs=seqs,
        max_num_batched_tokens=max(seqs * 2, least, draw(st.sampled_from([17, 24, 64, 2048]))),
        max_model_len=LIMIT,
        drafter=drafter,
        depth=depth,
        depth_table=table,
        long_prefill_threshold=draw(st.sampled_from([0, 0, 9, 40])),
        prefix_caching=caching,
        greedy=draw(st.booleans()),
    )
    n = draw(st.integers(1, 14))
    prompts = draw(st.lists(st.sampled_from([1, 2, 16, 33, 65, 97, 150, 200]), min_size=n, max_size=n))
    outputs = [min(o, LIMIT - p) for o, p in zip(draw(lengths(n)), prompts, strict=True)]
    groups = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    gaps = draw(st.lists(st.sampled_from([0, 1, 7, 40, 300, 2000]), min_size=n, max_size=n))
    luck = np.random.Generator(np.random.Philox(draw(st.integers(0, 10**6))))
    runs = tuple(tuple(luck.integers(0, 8, size=o).tolist()) for o in outputs)
    arrivals = tuple(np.cumsum(gaps).tolist())
    shared = draw(st.sampled_from([0, 10, 64, 130]))
    return System(config, arrivals, tuple(prompts), tuple(outputs), runs, tuple(groups), shared)


@dataclass
class ReferenceRun:
    """Drives the reference under the modelled clock (integer microseconds)."""

    system: System
    scheduler: ReferenceScheduler = field(init=False)
    now_us: int = 0
    steps: list[tuple[int, ...]] = field(default_factory=list)
    first_us: dict[int, int] = field(default_factory=dict)
    finish_us: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = ReferenceScheduler(self.system.config)

    def run(self) -> ReferenceRun:
        """All requests to the end."""
        arrived = 0
        arrivals = [ms * 1000 for ms in self.system.arrivals_ms]
        while arrived < len(arrivals) or self.scheduler.requests:
            if not self.scheduler.requests:
                self.now_us = max(self.now_us, arrivals[arrived])
            while arrived < len(arrivals) and arrivals[arrived] <= self.now_us:
                self._add(arrived)
                arrived += 1
            self._step()
        return self

    def _add(self, request: int) -> None:
        s = self.system
        self.scheduler.add(request, s.prompts[request], s.outputs[request], s.groups[request], s.shared)

    def _step(self) -> None:
        step = self.scheduler.schedule()
        a, b, d0, d1, d2 = (round(1000 * ms) for ms in CLOCK_MS)
        self.now_us += a + b * step.num_tokens
        if self.system.config.depth and self.scheduler.drafter_fits:
            self.now_us += d0 + d1 * step.num_tokens + d2 * max(0, step.next_depth - 1)
        self.steps.append(
            (
                self.now_us * 1000,
                step.num_tokens,
                len(step.scheduled),
                sum(step.drafts.values()),
                len(step.preempted),
                step.waiting,
                self.system.config.num_blocks - 1 - self.scheduler.free_blocks,
            )
        )
        found = dict.fromkeys(step.scheduled, LIMIT)  # a look-up that always finds enough
        for request in self.scheduler.update(self._sampled(step), found):
            self.finish_us[request] = self.now_us
        self.scheduler.check_integrity()

    def _sampled(self, step: Step) -> dict[int, int]:
        sampled = {}
        for request in step.scheduled:
            state = self.scheduler.requests[request]
            if not state.prefilling:
                run = 0 if request in step.empty else self.system.runs[request][state.produced]
                sampled[request] = min(run, step.drafts.get(request, 0)) + 1
                self.first_us.setdefault(request, self.now_us)
        return sampled


def policy_of(config: ReferenceConfig) -> Policy:
    if not config.depth:
        return Off()
    if config.depth_table:
        bounds = Bounds(config.depth)
        return PerBatchSizeConfig(policy="per_batch_size", table=config.depth_table).build(bounds)
    return Static(config.depth)


def setup_of(system: System) -> Setup:
    config = system.config
    a, b, d0, d1, d2 = CLOCK_MS
    kind = {"dflash": "parallel", "off": "draft_model"}.get(config.drafter, config.drafter)
    profile = linear_profile(a, b, draft=(d0, d1, d2), kind=kind)
    plain = requests(np.array(system.arrivals_ms) / 1e3, system.prompts, system.outputs)
    shared = np.full(len(plain), system.shared)
    return Setup(
        requests=replace(plain, prefix_group=np.array(system.groups), prefix_tokens=shared),
        profile=profile,
        drafter=profile.drafters["d"],
        engine=EngineConfig(
            preset="vllm_v1",
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=config.max_model_len,
            block_size=config.block_size,
            kv_blocks=config.num_blocks,
            long_prefill_token_threshold=config.long_prefill_threshold,
            prefix_caching=config.prefix_caching,
            sampling="greedy" if config.greedy else "T=1",
            capture_sizes=(),
        ),
        processes=(RecordedAcceptance(system.runs),),
        max_depth=config.depth,
    )


@settings(max_examples=150, deadline=None)
@given(systems())
def test_both_implementations_take_the_same_steps(system: System) -> None:
    """Clock, tokens, sequences, drafts, preemptions, queue and held blocks agree in every step."""
    reference = ReferenceRun(system).run()
    run = simulate(setup_of(system), policy_of(system.config))
    columns = ("end_ns", "tokens", "sequences", "drafted", "preempted", "waiting", "kv_blocks")
    ours = list(zip(*(run.steps[name].tolist() for name in columns), strict=True))
    assert ours == reference.steps
    n = len(system.prompts)
    assert run.requests["first_token_ns"].tolist() == [reference.first_us[i] * 1000 for i in range(n)]
    assert run.requests["finish_ns"].tolist() == [reference.finish_us[i] * 1000 for i in range(n)]
