"""The cases: one workload each, a peer and leadline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.bench.peers import blis, ours, vidur
from tests.bench.peers.dynamo import NAME as DYNAMO
from tests.bench.peers.dynamo import dynamo
from tests.bench.peers.sides import Absent, Case, Side
from tests.bench.peers.traffic import RATE_PER_S, build_traffic, write_for_leadline, write_for_vidur

RATE: Final = 4
PROMPT: Final = 1024
OUTPUT: Final = 256


def cases(home: Path, work: Path, count: int) -> Iterator[Case]:
    """All cases of ``count`` requests; peers are looked for in ``home``, files are written into ``work``."""
    yield _vidur(home, work, count)
    peer = blis.blis(home, count, RATE, PROMPT, OUTPUT)
    engine = {"max_num_seqs": blis.SEQUENCES, "max_num_batched_tokens": blis.BUDGET}
    about = (
        f"{count:,} requests of {PROMPT}/{OUTPUT} tokens, {RATE}/s at fixed intervals. BLIS: Qwen3-14B on an "
        "H100, trained-physics latencies. leadline: Qwen3-8B on an H100, whose steps are shorter, so that a "
        "second of traffic takes more of them."
    )
    workload = ours.constant(RATE, PROMPT, OUTPUT, count)
    yield Case(blis.NAME, about, peer, _ours(work, "blis", "qwen3-8b-h100", workload, engine))
    about = (
        f"{count:,} requests of {PROMPT}/{OUTPUT} tokens, {RATE}/s at fixed intervals. Dynamo: the mocker's "
        "built-in timing and limits. leadline: Llama-3.1-8B on an H100."
    )
    replay = dynamo(home, work, count, RATE, PROMPT, OUTPUT)
    yield Case(DYNAMO, about, replay, _ours(work, "dynamo", "llama-3.1-8b-h100", workload, {}))


def _vidur(home: Path, work: Path, count: int) -> Case:
    lengths = vidur.lengths_of(home)
    about = (
        f"{count:,} requests, lengths of Azure's chat trace as Vidur ships them (splitwise_conv), at most "
        f"4,096 tokens together, Poisson arrivals at {RATE_PER_S}/s: the same list for both. Llama-3-8B on "
        f"an A100, {vidur.CHUNK} tokens and {vidur.BATCH} sequences in a step."
    )
    if not lengths.exists():
        return Case(vidur.NAME, about, Absent(vidur.NAME, "its lengths are not in the folder of peers"), ())
    requests = build_traffic(lengths, count)
    write_for_vidur(work / "requests.csv", requests)
    write_for_leadline(work / "requests.jsonl", requests)
    results = work / "vidur"
    workload = {"arrival": {"process": "trace", "path": str(work / "requests.jsonl"), "format": "leadline"}}
    engine = {"max_num_seqs": vidur.BATCH, "max_num_batched_tokens": vidur.CHUNK}
    peer = vidur.vidur(home, work / "requests.csv", results, count)
    return Case(vidur.NAME, about, peer, _ours(work, "vidur", "llama-3.1-8b-a100", workload, engine))


def _ours(
    work: Path, name: str, profile: str, workload: dict[str, Any], engine: dict[str, Any]
) -> tuple[Side, ...]:
    found: tuple[Side, ...] = ()
    for number, policy in enumerate(ours.POLICIES):
        written = ours.scenario(profile, workload, engine, policy)
        found += ours.sides(work, f"{name}-{number}", written, policy)
    return found
