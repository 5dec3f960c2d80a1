"""Runs leadline's engine on a recorded configuration, and finds where it first differs from vLLM.

Luck is fed: the accepted counts of the recording, and how many drafts a look-up drafter found.
Everything else is leadline's own. Compared are, in every step, its end, tokens, sequences, drafts,
preemptions, queue and held KV blocks, and of every request first token and finish.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Batch, Depths, Policy, PolicyDefaults
from sim.policies.config import Bounds
from sim.policies.off import Off
from sim.policies.per_batch_size import PerBatchSizeConfig
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from sim.workload.requests import Requests
from tests.engine.modelled import RecordedAcceptance, linear_profile
from tests.referee.rules import RULES

Recording = dict[str, Any]

COLUMNS = ("end_ns", "tokens", "sequences", "drafted", "preempted", "waiting", "kv_blocks")
KINDS = {"draft_model": "draft_model", "eagle": "eagle", "medusa": "ngram", "ngram": "ngram"}
SLACK_NS = 2000
"""Recordings round times to a tenth of a microsecond, and the first ones added floats."""


@dataclass(frozen=True)
class Difference:
    """The first disagreement: in which step (or of which request), on what, and both values."""

    where: str
    what: str
    vllm: int
    leadline: int

    def __str__(self) -> str:
        return f"{self.where}: {self.what} is {self.vllm} in vLLM and {self.leadline} in leadline"


class Found(PolicyDefaults):
    """Proposes as many drafts as the recorded look-up found: they depend on the tokens themselves."""

    def __init__(self, recording: Recording) -> None:
        self.k = recording["config"]["k"]
        self.prompts = [r[1] for r in recording["config"]["requests"]]
        self.found: dict[tuple[int, int], int] = {}
        produced = [0] * len(self.prompts)
        for step in recording["steps"]:
            for name, drafts in step[4].items():
                self.found[int(name), produced[int(name)]] = drafts
            for name, new in step[5].items():
                produced[int(name)] += new

    def draft_depths(self, batch: Batch) -> Depths:
        """The drafts with which each sequence was scheduled next."""
        pairs = zip(batch.request.tolist(), batch.context_tokens.tolist(), strict=True)
        return np.array([self.found.get((r, t - self.prompts[r]), 0) for r, t in pairs], dtype=np.int64)


class FoundAtFixedDepth(Found, Static):
    """The same under a fixed depth, which vLLM pads to."""


def load(path: Path) -> Recording:
    """A recording, packed or not."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    recording: Recording = json.loads(text)
    return recording


def drafter_of(config: Recording) -> str:
    """Kind of drafter, also of the first recordings, which named it in ``spec``."""
    if config["spec"] in ("off", "ngram"):
        return str(config["spec"])
    return str(config.get("drafter", "draft_model"))


def policy_of(recording: Recording) -> Policy:
    """The recording's policy."""
    config = recording["config"]
    if config["spec"] == "off":
        return Off()
    static = config["spec"] != "table"
    if drafter_of(config) == "ngram":
        return FoundAtFixedDepth(recording) if static else Found(recording)
    if not static:
        table = tuple(tuple(row) for row in config["table"])
        return PerBatchSizeConfig(policy="per_batch_size", table=table).build(Bounds(config["k"]))
    return Static(config["k"])


def accepted_runs(recording: Recording) -> list[list[int]]:
    """Run length at each output position where a recorded round started."""
    runs = [[0] * row[2] for row in recording["config"]["requests"]]
    produced = [0] * len(runs)
    for step in recording["steps"]:
        for name, new in step[5].items():
            request = int(name)
            if new:
                runs[request][produced[request]] = new - 1
                produced[request] += new
    return runs


def requests_of(config: Recording) -> Requests:
    """The recorded requests, with their prefix groups."""
    rows = config["requests"]
    columns = np.array([row[:3] for row in rows], dtype=float).T
    aborts = np.full(len(rows), -1, dtype=np.int64)
    for request, time in config.get("aborts", []):
        aborts[request] = round(time * 1e9)
    groups = np.array([row[3] if len(row) > 3 else -1 for row in rows], dtype=np.int64)
    return Requests(
        arrival_ns=np.round(columns[0] * 1e9).astype(np.int64),
        prompt_tokens=columns[1].astype(np.int64),
        output_tokens=columns[2].astype(np.int64),
        class_id=np.zeros(len(rows), dtype=np.int64),
        max_concurrency=config.get("max_concurrency"),
        prefix_group=groups,
        prefix_tokens=np.full(len(rows), config.get("shared_tokens", 64)),
        abort_ns=aborts,
    )


def setup_of(recording: Recording) -> Setup:
    """leadline's scenario for a recording."""
    config = recording["config"]
    a, b, d0, d1, d2 = config["clock"]
    drafter = drafter_of(config)
    free = drafter in ("ngram", "off")
    profile = linear_profile(
        a, b, draft=(0.0, 0.0, 0.0) if free else (d0, d1, d2), kind=KINDS.get(drafter, "ngram")
    )
    return Setup(
        requests=requests_of(config),
        profile=profile,
        drafter=profile.drafters["d"],
        engine=EngineConfig(
            preset="vllm_v1",
            max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            max_model_len=config.get("max_model_len", 512),
            block_size=config["block_size"],
            kv_blocks=config["num_gpu_blocks"],
            long_prefill_token_threshold=config.get("long_prefill_threshold", 0),
            prefix_caching=config["prefix_caching"],
            # Synthetic acceptance changes the answer; without it equal prompts are answered alike.
            sampling="greedy" if config["spec"] == "off" else None,
            capture_sizes=(),
        ),
        processes=(RecordedAcceptance(accepted_runs(recording)),),
        max_depth=config.get("k", 0),
    )


def first_difference(recording: Recording, without: str | None = None) -> Difference | None:
    """Run leadline on the recording's configuration; where the two part, if they do.

    ``without`` names a rule to take away first (``rules``), for the sake of the difference.
    """
    setup = setup_of(recording)
    if without is not None:
        setup = RULES[without](setup)
    run = simulate(setup, policy_of(recording))
    return _in_steps(recording, run) or _in_requests(recording, run)


def _in_steps(recording: Recording, run: RunRecords) -> Difference | None:
    expected = [_row(step) for step in recording["steps"]]
    ours = list(zip(*(run.steps[name].tolist() for name in COLUMNS), strict=True))
    for number, (theirs, mine) in enumerate(zip(expected, ours, strict=False)):
        for name, a, b in zip(COLUMNS, theirs, mine, strict=True):
            if a is not None and abs(a - b) > (SLACK_NS if name == "end_ns" else 0):
                return Difference(f"step {number}", name, a, b)
    if len(expected) != len(ours):
        return Difference("run", "steps", len(expected), len(ours))
    return None


def _row(step: list[Any]) -> tuple[int | None, ...]:
    blocks = step[8] if len(step) > 8 else None
    return (round(step[0] * 1e9), step[1], len(step[3]), sum(step[4].values()), len(step[6]), step[7], blocks)


def _in_requests(recording: Recording, run: RunRecords) -> Difference | None:
    ours = zip(
        *(run.requests[name].tolist() for name in ("request", "first_token_ns", "finish_ns")), strict=True
    )
    done = {row[0]: row[1:] for row in ours}
    for number, (first, finish, _) in enumerate(recording["requests"]):
        if finish is None:
            continue
        mine = done.get(number, (-1, -1))
        for name, a, b in zip(("first_token_ns", "finish_ns"), (first, finish), mine, strict=True):
            if abs(round(a * 1e9) - b) > SLACK_NS:
                return Difference(f"request {number}", name, round(a * 1e9), b)
    return None
