"""Run lengths of many requests at once, for engines that need nothing else of a path.

Drawing one path of 256 tokens takes tens of microseconds, most of it the overhead of array calls.
Laid end to end, requests share those calls. The numbers are those of ``path``, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import AcceptanceProcess
from sim.acceptance.lookup import LookupProcess
from sim.acceptance.paths import DrawnProcess, Runs

Bools = NDArray[np.bool_]
Int64 = NDArray[np.int64]

_TOGETHER: Final = 16_384  # output positions drawn at once: their arrays stay in a core's own cache


class Block(NamedTuple):
    """Runs of several requests end to end, shape (sum of their output tokens,).

    ``found`` is that of ``Path.found`` in the same order; ``None``: there is always something to propose.
    """

    run: Runs
    found: Bools | None


def draw_block(
    processes: Sequence[AcceptanceProcess],
    requests: Int64,
    class_id: Int64,
    prompt_tokens: Int64,
    output_tokens: Int64,
) -> Block:
    """Runs of the requests of these numbers, one process per class, in their order."""
    if len(processes) == 1:
        return _drawn(processes[0], requests, prompt_tokens, output_tokens)
    owner = np.repeat(class_id, output_tokens)
    run, found = np.empty(len(owner), dtype=np.uint8), np.ones(len(owner), dtype=np.bool_)
    searched = False
    for number in np.unique(class_id).tolist():
        mine, place = class_id == number, owner == number
        own = _drawn(processes[number], requests[mine], prompt_tokens[mine], output_tokens[mine])
        run[place] = own.run
        if own.found is not None:
            found[place], searched = own.found, True
    return Block(run, found if searched else None)


def _drawn(process: AcceptanceProcess, *of: Int64) -> Block:
    """Runs of some requests of one process; ``of`` has their numbers, prompt and output tokens."""
    if isinstance(process, DrawnProcess):
        parts = [process.runs(*part) for part in _parts(*of)]
        return Block(np.concatenate(parts) if parts else np.empty(0, dtype=np.uint8), None)
    if isinstance(process, LookupProcess):
        run = _drawn(process.inner, *of).run
        return Block(run, process.matches(of[0], run, of[2]))
    return _one_by_one(process, *of)


def _parts(*of: Int64) -> Iterator[tuple[Int64, ...]]:
    """Consecutive requests of about ``_TOGETHER`` output positions together."""
    before = np.cumsum(of[-1]) - of[-1]
    cuts = np.flatnonzero(np.diff(before // _TOGETHER)) + 1
    yield from zip(*(np.split(column, cuts) for column in of), strict=True)


def _one_by_one(process: AcceptanceProcess, requests: Int64, prompts: Int64, outputs: Int64) -> Block:
    paths = [
        process.path(*of) for of in zip(requests.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
    ]
    run = np.concatenate([path.run for path in paths])
    if all(path.found is None for path in paths):
        return Block(run, None)
    found = [np.ones(len(p.run), dtype=np.bool_) if p.found is None else p.found for p in paths]
    return Block(run, np.concatenate(found))
