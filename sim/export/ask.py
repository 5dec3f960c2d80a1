"""A policy's depth at every batch size, asked by running it.

The policy serves a batch of constant size at one context, with the scenario's engine, costs and
acceptance, until it has settled; its depth there is the mean of what was verified per sequence. So any
policy can be asked: one that learns has learnt, one that trims by confidence has trimmed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np

from sim.engine.simulate import Setup, simulate
from sim.export.settings import Rows
from sim.policies.config import Bounds, PolicyConfig
from sim.policies.custom import CustomConfig
from sim.results.run_records import RunRecords
from sim.scenario.model import Scenario
from sim.sweep.prepare import prepare
from sim.workload.requests import Requests

_OUTPUT: Final = 128
_ROUNDS: Final = 1500
"""Sequence-rounds that a batch of any size is run for, at the least; about 40 steps at large ones."""
_SETTLING: Final = 0.25
"""Share of the steps that are left out at the start."""


def mean_context(requests: Requests) -> int:
    """Tokens of context of the mean decoding step: prompt and half the output, weighed by the output."""
    prompt, output = (a.astype(np.float64) for a in (requests.prompt_tokens, requests.output_tokens))
    return max(1, round(float((output * (prompt + output / 2)).sum() / output.sum())))


def depth_rows(scenario: Scenario, policy: PolicyConfig, context: int | None = None) -> Rows:
    """The policy's depths from batch 1 to ``max_num_seqs``.

    ``context`` is the mean context of a sequence, that of the workload by default. Batches that do not
    fit the KV memory keep the depth of the largest that does. Between batch sizes where the depth is
    the same it is taken to stay.
    """
    seed = scenario.run.seeds[0]
    setup = prepare(scenario, policy, seed)
    tokens = mean_context(setup.requests) if context is None else context
    own = policy
    if isinstance(policy, CustomConfig):
        own = policy.model_copy(update={"search": str(scenario.folder / policy.search)})
    most = scenario.engine.max_num_seqs

    @cache
    def depth(batch: int) -> int | None:
        return settled_depth(setup, own, batch, tokens)

    sizes = [size for size in _sizes(most) if depth(size) is not None]
    return _merged(_split(sizes, depth), most)


def settled_depth(setup: Setup, policy: PolicyConfig, batch: int, context: int) -> int | None:
    """The depth at one batch size and context, rounded; ``None`` if that batch never runs whole."""
    requests = _steady(setup.requests, batch, context)
    records = simulate(replace(setup, requests=requests), policy.build(Bounds(setup.max_depth)))
    return _depth_of(records, batch)


def _steady(requests: Requests, batch: int, context: int) -> Requests:
    """As many clients as the batch has sequences, all with requests of one length."""
    output = max(2, min(_OUTPUT, context))
    count = batch * max(1, -(-_ROUNDS // (batch * output // 3 + 1)))
    kinds = np.resize(requests.class_id, count)
    return Requests(
        arrival_ns=np.zeros(count, dtype=np.int64),
        prompt_tokens=np.full(count, max(1, context - output // 2), dtype=np.int64),
        output_tokens=np.full(count, output, dtype=np.int64),
        class_id=kinds,
        classes=requests.classes,
        max_concurrency=batch,
    )


def _depth_of(records: RunRecords, batch: int) -> int | None:
    """Mean drafts verified per sequence over the settled steps in which all were decoding."""
    steps = records.steps
    whole = np.flatnonzero((steps["decodes"] == batch) & (steps["sequences"] == batch))
    settled = whole[int(_SETTLING * len(whole)) :]
    if not len(settled):
        return None
    return int(np.floor(steps["drafted"][settled].mean() / batch + 0.5))


def _sizes(most: int) -> list[int]:
    """Batch sizes to ask at: 1, 2, 3, 4, 6, 8, 12, ... and the largest."""
    found = {size for power in range(17) for size in (2**power, 3 * 2**power) if size < most}
    return sorted(found | {most})


def _split(sizes: list[int], depth: Callable[[int], int | None]) -> list[tuple[int, int]]:
    """(batch, depth) at the sizes, and where between them the depth changes, found by halving."""
    found = [(sizes[0], depth(sizes[0]) or 0)]
    for low, high in pairwise(sizes):
        found += [*_changes(low, high, depth), (high, depth(high) or 0)]
    return found


def _changes(low: int, high: int, depth: Callable[[int], int | None]) -> list[tuple[int, int]]:
    if high - low < 2 or depth(low) == depth(high):
        return []
    middle = (low + high) // 2
    at = [(middle, depth(middle) or 0)]
    return [*_changes(low, middle, depth), *at, *_changes(middle, high, depth)]


def _merged(found: list[tuple[int, int]], most: int) -> Rows:
    """Rows of equal depth; the last one reaches the largest batch."""
    starts = [found[0], *(b for a, b in pairwise(found) if a[1] != b[1])]
    ends = [start - 1 for start, _ in starts[1:]] + [most]
    firsts = [1, *(start for start, _ in starts[1:])]
    return tuple((first, last, k) for first, last, (_, k) in zip(firsts, ends, starts, strict=True))
