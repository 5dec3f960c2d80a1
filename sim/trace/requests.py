"""Requests as traces that load generators replay: Mooncake's JSONL, in the dialect of each reader.

A line is ``{"timestamp": ..., "input_length": ..., "output_length": ..., "hash_ids": [...]}``, one hash
per started block of the prompt; prompts that begin with the same hashes begin with the same tokens.
What differs (read in their sources):

- vLLM 0.32, vllm/benchmarks/datasets/datasets.py, ``TimedTrace``: timestamps times a multiplier are
  seconds; prompts are made from ``hash_ids`` alone (without them a prompt is empty), in blocks of 16
  unless told otherwise.
- AIPerf (October 2025), aiperf/dataset/loader/models.py, ``MooncakeTrace``: whole milliseconds; the hashes
  must fit the prompt in blocks of ``--isl-block-size`` (512).
- GuideLLM (August 2026), src/guidellm/data/deserializers/trace_mooncake.py: seconds, kept as 32-bit floats;
  as many hashes as started blocks of ``hash_id_block_size`` (512).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from sim.errors import InputError
from sim.files import write_whole
from sim.units import NS_PER_MS, NS_PER_S
from sim.workload.hashes import MOONCAKE_BLOCK, PromptHashes
from sim.workload.requests import Requests
from sim.workload.traces import write_trace

BLOCK: Final = MOONCAKE_BLOCK
_PLAIN: Final = re.compile(r"[A-Za-z_][\w-]*(\.\w[\w-]*)+")
"""File names that YAML reads as they stand."""


@dataclass(frozen=True)
class Dialect:
    """How one reader wants its timestamps, and the command that replays a file.

    ``unit_ns`` is the unit of timestamps; ``whole``: they are rounded to it.
    """

    unit_ns: int
    whole: bool
    command: Callable[[str, Requests, int], str]


def _vllm(file: str, requests: Requests, block: int) -> str:
    bound = f" --max-concurrency {requests.max_concurrency}" if requests.max_concurrency else ""
    timing = " --no-self-timed --request-rate inf" if _closed(requests) else ""
    return (
        f"vllm bench serve --backend vllm --model <MODEL> --dataset-name timed_trace "
        f"--dataset-path {shlex.quote(file)} "
        f"--timed-trace-sec-multiplier 0.001 --timed-trace-chunk-hash-size {block} "
        f"--num-prompts {len(requests)}{timing}{bound}"
    )


def _aiperf(file: str, requests: Requests, block: int) -> str:
    timing = "" if _closed(requests) else " --fixed-schedule"
    bound = f" --concurrency {requests.max_concurrency}" if requests.max_concurrency else ""
    return (
        f"aiperf profile --model <MODEL> --url <URL> --endpoint-type completions --streaming "
        f"--input-file {shlex.quote(file)} --custom-dataset-type mooncake_trace "
        f"--isl-block-size {block}{timing}{bound}"
    )


def _guidellm(file: str, requests: Requests, block: int) -> str:
    profile = "kind=replay,time_scale=1.0"
    if _closed(requests):
        profile = f"kind=concurrent,streams={requests.max_concurrency}"
    data = shlex.quote(f"kind=mooncake,path={file},hash_id_block_size={block}")
    return f"guidellm run --target <URL> --profile {profile} --data {data}"


def _leadline(file: str, requests: Requests, block: int) -> str:
    bound = f", max_concurrency: {requests.max_concurrency}" if requests.max_concurrency else ""
    return setting(file, "mooncake", bound)


def setting(file: str, form: str = "leadline", more: str = "") -> str:
    """The scenario's line that replays a file, its name in quotes where YAML needs them."""
    path = file if _PLAIN.fullmatch(file) else json.dumps(file, ensure_ascii=False)
    return f"workload: {{arrival: {{process: trace, format: {form}, path: {path}{more}}}}}"


DIALECTS: Final = {
    "mooncake": Dialect(NS_PER_MS, False, _leadline),
    "vllm": Dialect(NS_PER_MS, False, _vllm),
    "aiperf": Dialect(NS_PER_MS, True, _aiperf),
    "guidellm": Dialect(NS_PER_S, False, _guidellm),
}
LEADLINE: Final = "leadline"
FORMATS: Final = (*DIALECTS, LEADLINE)


def write_requests(path: Path, requests: Requests, form: str, block: int = BLOCK) -> str:
    """Write the requests in one of ``FORMATS``; returns the command or setting that replays the file."""
    if form == LEADLINE:
        write_trace(path, requests)
        return setting(path.name)
    if form not in DIALECTS:
        raise InputError(f"--format: there is no format {form!r}; known are {', '.join(FORMATS)}")
    dialect = DIALECTS[form]
    write_whole(path, "".join(lines(requests, dialect, block)))
    return dialect.command(path.name, requests, block)


def lines(requests: Requests, dialect: Dialect, block: int = BLOCK) -> Iterator[str]:
    """One line of JSON per request."""
    columns = (requests.arrival_ns, requests.prompt_tokens, requests.output_tokens)
    rows = zip(*(column.tolist() for column in columns), hash_ids(requests, block), strict=True)
    for arrival, prompt, output, hashes in rows:
        yield (
            f'{{"timestamp": {_decimal(arrival, dialect)}, "input_length": {prompt}, '
            f'"output_length": {output}, "hash_ids": {json.dumps(hashes)}}}\n'
        )


def hash_ids(requests: Requests, block: int) -> Iterator[list[int]]:
    """Hashes of every prompt's started blocks: those of its prefix group, then its own.

    Only whole blocks are shared: a prefix that ends inside one is shortened to where it begins. Prompts
    that came with hashes keep what they share.
    """
    if requests.hashes is not None:
        yield from _hashed_anew(requests, requests.hashes, block)
        return
    shared: dict[tuple[int, int], int] = {}
    unused = 0
    for number, prompt in enumerate(requests.prompt_tokens.tolist()):
        group, tokens = requests.prefix_of(number)
        hashes = []
        for place in range(-(-prompt // block)):
            key = (group, place)
            if place < tokens // block and key in shared:
                hashes.append(shared[key])
                continue
            if place < tokens // block:
                shared[key] = unused
            hashes.append(unused)
            unused += 1
        yield hashes


def _hashed_anew(requests: Requests, hashes: PromptHashes, block: int) -> Iterator[list[int]]:
    """Hashes over blocks of another size; two prompts share a block that is the same in both, so far."""
    known: dict[tuple[int, int], int] = {}
    unused = count(-1, -1)
    for number, prompt in enumerate(requests.prompt_tokens.tolist()):
        chains = hashes.prompt(number)
        ends = [min((place + 1) * block, prompt) for place in range(-(-prompt // block))]
        keys = [(chains[(end - 1) // hashes.block] if chains else next(unused), end) for end in ends]
        yield [known.setdefault(key, len(known)) for key in keys]


def _decimal(ns: int, dialect: Dialect) -> str:
    """A timestamp in the dialect's unit, exact to the nanosecond unless it wants whole numbers."""
    if dialect.whole:
        return str((ns + dialect.unit_ns // 2) // dialect.unit_ns)
    whole, rest = divmod(ns, dialect.unit_ns)
    digits = len(str(dialect.unit_ns)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".")


def _closed(requests: Requests) -> bool:
    """Whether no arrival is intended: every request is sent when a place is free."""
    return requests.max_concurrency is not None and not requests.arrival_ns.any()
