"""``python -m tests.referee``: the real vLLM against leadline's engine, on a modelled clock.

draw SEED                       print a configuration
record FOLDER FIRST LAST        run vLLM on the configurations FIRST to LAST - 1 (needs vLLM)
replay FILE...                  run leadline on recordings; where it first differs
rules FILE...                   in how many recordings each rule of vLLM makes a difference
shrink FILE OUT [RULE]          the smallest configuration on which the two still differ (needs
                                vLLM); with RULE, leadline lacks that rule on purpose
pack FOLDER FILE...             recordings as small files for the tests
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

from tests.referee import draw, record, shrink
from tests.referee.replay import first_difference, load
from tests.referee.rules import RULES
from tests.reference.vllm_scheduler import replay as replay_reference


def _draw(seed: str) -> None:
    print(json.dumps(draw.draw(int(seed))))


def _record(folder: str, first: str, last: str) -> None:
    record.import_vllm()
    Path(folder).mkdir(exist_ok=True)
    for seed in range(int(first), int(last)):
        path = Path(folder) / f"{seed:04d}.json"
        if not path.exists():
            print(record.timed(draw.draw(seed), path), flush=True)


def _replay(*files: str) -> None:
    differ = 0
    for name in files:
        recording = load(Path(name))
        found = first_difference(recording) or next(iter(replay_reference(recording)), None)
        if found is not None:
            differ += 1
            print(f"{name}: {found}")
    print(f"{len(files)} recordings, {differ} with a difference")


def _rules(*files: str) -> None:
    recordings = [load(Path(name)) for name in files]
    counts = Counter(rule for r in recordings for rule in RULES if first_difference(r, rule))
    for rule in RULES:
        print(f"{rule:20} {counts[rule]:4} of {len(recordings)}")


def _shrink(file: str, out: str, rule: str | None = None) -> None:
    record.import_vllm()
    differs = shrink.still_differs(rule, Path(out))
    config = shrink.load_config(Path(file))
    if not differs(config):
        raise SystemExit(f"{file}: vLLM and leadline do not differ")
    print(json.dumps(shrink.shrink(config, differs)))


def _pack(folder: str, *files: str) -> None:
    for name in files:
        text = json.dumps(load(Path(name)), separators=(",", ":")).encode()
        target = Path(folder) / f"{Path(name).name.split('.')[0]}.json.gz"
        target.write_bytes(gzip.compress(text, 9, mtime=0))


COMMANDS = {
    "draw": _draw,
    "record": _record,
    "replay": _replay,
    "rules": _rules,
    "shrink": _shrink,
    "pack": _pack,
}


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in COMMANDS:
        raise SystemExit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
