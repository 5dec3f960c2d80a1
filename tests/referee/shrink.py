"""Shrinks a configuration on which vLLM and leadline differ, as long as they still do.

Greedy: halves of the requests, then single ones, are left out, lengths are shortened and settings
made plain, each time recording vLLM anew, until nothing more can go.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.referee.record import record_in_child
from tests.referee.replay import first_difference, load

Config = dict[str, Any]

PLAIN: Config = {
    "aborts": [],
    "max_concurrency": None,
    "spread": 0.0,
    "long_prefill_threshold": 0,
    "prefix_caching": False,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 64,
    "num_gpu_blocks": 1000,
}


def shrink(config: Config, differs: Callable[[Config], bool]) -> Config:
    """The smallest configuration found on which ``differs`` holds; it holds on ``config``."""
    while True:
        smaller = next((c for c in _smaller(config) if differs(c)), None)
        if smaller is None:
            return config
        config = smaller


def still_differs(without: str | None, keep: Path) -> Callable[[Config], bool]:
    """Records a configuration, and says whether leadline differs; the last such recording is kept."""

    def differs(config: Config) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "recording.json"
            if record_in_child(config, path):
                return False
            difference = first_difference(load(path), without)
            if difference is None:
                return False
            keep.write_bytes(path.read_bytes())
        print(f"{len(config['requests'])} requests: {difference}", flush=True)
        return True

    return differs


def _smaller(config: Config) -> Iterator[Config]:
    requests = config["requests"]
    half = len(requests) // 2
    cuts = [(0, half), (half, len(requests))] if half else []
    for start, stop in cuts + [(i, i + 1) for i in reversed(range(len(requests)))]:
        if len(requests) > stop - start:
            yield _without_requests(config, start, stop)
    for key, value in PLAIN.items():
        if config.get(key) != value:
            yield deepcopy(config) | {key: value}
    for column, least in ((2, 1), (1, 1), (0, 0.0)):
        yield from _shorter(config, column, least)


def _without_requests(config: Config, start: int, stop: int) -> Config:
    """Leave out some requests; the numbers in ``aborts`` follow."""
    smaller = deepcopy(config)
    del smaller["requests"][start:stop]
    aborts = [(i, t) for i, t in config.get("aborts", []) if not start <= i < stop]
    smaller["aborts"] = [[i - (stop - start) * (i >= stop), t] for i, t in aborts]
    return smaller


def _shorter(config: Config, column: int, least: float) -> Iterator[Config]:
    """One request made shorter (or all arrivals 0)."""
    if column == 0:
        if any(row[0] for row in config["requests"]):
            smaller = deepcopy(config)
            for row in smaller["requests"]:
                row[0] = least
            yield smaller
        return
    for i, row in enumerate(config["requests"]):
        for value in (least, row[column] // 2):
            if least <= value < row[column]:
                smaller = deepcopy(config)
                smaller["requests"][i][column] = value
                yield smaller


def load_config(path: Path) -> Config:
    """The configuration in a recording, or a configuration by itself."""
    data: Config = json.loads(path.read_text()) if path.suffix == ".json" else load(path)
    config: Config = data.get("config", data)
    return config
