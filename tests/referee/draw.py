"""Random configurations for the referee: small systems in which every limit is tight now and then.

A configuration is plain data (JSON): the engine's limits, the drafter, the clock and the requests.
``draw(seed)`` is deterministic in the seed. Keys, all counts in tokens, blocks or requests:

- ``block_size``, ``num_gpu_blocks``, ``max_num_seqs``, ``max_num_batched_tokens``,
  ``max_model_len``, ``long_prefill_threshold`` (0: none), ``prefix_caching``
- ``spec``: ``off``, ``static`` or ``table``; ``drafter``: ``draft_model``, ``eagle``, ``medusa`` or
  ``ngram``; ``k``: the greatest depth; ``rates``: unconditional acceptance by position; ``table``:
  rows (least batch, greatest batch, depth); ``spread``: how far requests differ in acceptance
- ``clock``: a, b, d0, d1, d2 in ms; a step of T tokens takes a + b T, and d0 + d1 T +
  d2 max(0, next depth - 1) more when the drafter runs a model
- ``requests``: [arrival in s, prompt, output] and, with ``shared_tokens``, the group of prompts
  that start with the same tokens; ``max_concurrency``: requests in flight at most, or null
- ``aborts``: [request, time in s] of clients that go away
"""

from __future__ import annotations

import random
from typing import Any

Config = dict[str, Any]

DRAFTERS = ("draft_model", "draft_model", "eagle", "eagle", "medusa", "ngram")
PROMPTS = ((1, 3), (8, 24), (16, 120), (100, 300), (30, 34), (62, 66), (64, 64), (65, 65))
OUTPUTS = ((1, 4), (8, 40), (16, 48), (8, 110))
CLOCKS = ([20.0, 0.5, 2.0, 0.05, 1.5], [5.0, 0.05, 0.5, 0.01, 0.4], [8.0, 2.0, 1.0, 0.2, 0.5])


def draw(seed: int) -> Config:
    """The configuration number ``seed``."""
    r = random.Random(f"referee {seed}")
    config = _limits(r) | _speculation(r) | {"seed": seed, "clock": r.choice(CLOCKS)}
    config["max_num_batched_tokens"] = max(config["max_num_batched_tokens"], config["max_num_seqs"])
    slots = config["max_num_seqs"] * (config.get("k", 0) + 1)
    if config["max_num_batched_tokens"] < slots and r.random() < 0.7:
        config["max_num_batched_tokens"] = slots
    return config | _requests(r, config)


def _limits(r: random.Random) -> Config:
    max_model_len = r.choice([128, 256, 512, 512])
    block_size = r.choice([32, 32, 64])  # vLLM's CPU attention takes multiples of 32
    whole = max_model_len // block_size + 1
    return {
        "block_size": block_size,
        "num_gpu_blocks": whole + r.choice([0, 2, 6, 15, 40, 1000, 1000]),
        "max_num_seqs": r.choice([1, 4, 8, 16, 64]),
        "max_num_batched_tokens": r.choice([16, 64, 128, 256, 2048]),
        "max_model_len": max_model_len,
        "long_prefill_threshold": r.choice([0, 0, 0, 0, 20]),
        "prefix_caching": r.random() < 0.5,
    }


def _speculation(r: random.Random) -> Config:
    spec = r.choice(["off", "static", "static", "static", "table", "table"])
    if spec == "off":
        return {"spec": "off"}
    k, alpha, x, y = (
        r.choice([1, 2, 3, 5, 7]),
        r.choice([0.5, 0.7, 0.85]),
        r.choice([1, 2, 4]),
        r.choice([6, 12]),
    )
    config: Config = {
        "spec": spec,
        "drafter": r.choice(DRAFTERS),
        "k": k,
        "rates": [alpha ** (i + 1) for i in range(k)],
        "spread": r.choice([0.0, 0.0, 0.3]),
    }
    if spec == "table":
        if config["drafter"] == "medusa":
            config["drafter"] = "draft_model"  # vLLM 0.32 fails an assertion on Medusa with a depth table
        gap = r.choice([0, 0, 2])
        config["table"] = [[1, x, k], [x + 1 + gap, y + gap, max(1, k // 2)], [y + gap + 1, 512, 0]]
    return config


def _requests(r: random.Random, config: Config) -> Config:
    """Requests that the engine accepts: every prompt leaves room for a token."""
    count, rate, shared = (
        r.choice([8, 12, 20] if config["max_num_seqs"] < 4 else [12, 20, 30]),
        r.choice([1.0, 3.0, 6.0, 12.0, 50.0]),
        r.choice([0, 20, 64, 100]),
    )
    prompts, outputs = r.sample(PROMPTS, 2), r.choice(OUTPUTS)
    groups, now, rows = r.choice([1, 2, 4]), 0.0, []
    closed = r.random() < 0.25
    for _ in range(count):
        now += 0.0 if closed else r.expovariate(rate)
        prompt = min(r.randint(*r.choice(prompts)), config["max_model_len"] - 1)
        row = [round(now, 6), prompt, min(r.randint(*outputs), config["max_model_len"] - prompt)]
        rows.append([*row, r.randrange(groups)] if config["prefix_caching"] and shared else row)
    aborts = [[i, round(rows[i][0] + r.expovariate(1.0), 6)] for i in r.sample(range(count), 4)]
    return {
        "requests": rows,
        "shared_tokens": shared,
        "max_concurrency": r.choice([2, 5]) if closed or r.random() < 0.1 else None,
        "aborts": sorted(aborts, key=lambda a: a[1]) if r.random() < 0.2 else [],
    }
