"""The simulation of one scenario without start, reading and writing: prints its seconds as JSON.

``first_s`` and ``again_s`` are the first and the second run of a hundred requests in a fresh process:
what they differ by is what is compiled or loaded when first used.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from sim.results.run_records import RunRecords
from sim.scenario.load import read_scenario
from sim.scenario.model import Scenario
from sim.sweep.prepare import prepare, run_setup


def main(file: Path) -> None:
    """Measure the first policy of a scenario's file under its first seed."""
    import sim.ahead.kernel  # noqa: F401  so that short runs, too, take the compiled engine, as in a sweep

    whole = read_scenario(file).scenario
    few = whole.model_copy(update={"workload": whole.workload.model_copy(update={"num_requests": 100})})
    first_s, _ = _timed(few)
    again_s, _ = _timed(few)
    loop_s, records = _timed(whole)
    found: dict[str, Any] = {
        "loop_s": loop_s,
        "first_s": first_s,
        "again_s": again_s,
        "requests": len(records.requests["finish_ns"]),
        "simulated_s": int(records.requests["finish_ns"].max()) / 1e9,
        "steps": len(records.steps["end_ns"]),
    }
    print(json.dumps(found))


def _timed(scenario: Scenario) -> tuple[float, RunRecords]:
    """Seconds of the simulation itself; requests and costs are there before."""
    policy = scenario.policies[0]
    setup = prepare(scenario, policy, scenario.run.seeds[0])
    start = time.perf_counter()
    records = run_setup(scenario, policy, setup)
    return time.perf_counter() - start, records


if __name__ == "__main__":
    main(Path(sys.argv[1]))
