"""What large runs cost: ``python -m tests.bench.scale [--requests 10000 100000 1000000] [--router NAME]``.

Every run is a process of its own: 100 replicas of Llama-3.1-8B on an H100 with EAGLE-3 at depth 3,
1024/256 tokens, 4 requests a second and replica whatever the number of requests. So the cost of a
request should be the same in every row. Seconds are CPU time by phase; memory is the process's peak.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any, Final

from sim.api import load
from sim.results.metrics import measure
from sim.sweep.prepare import prepare, run_setup
from tests.bench.peers.ours import ROOT, constant, scenario

RATE_PER_REPLICA: Final = 4
POLICY: Final = "EAGLE-3, k = 3"
ROUTERS: Final = ("round_robin", "least_requests")


def measured(requests: int, replicas: int, router: str, keep_steps: bool) -> dict[str, Any]:
    """CPU seconds by phase, steps and memory of one run; a small one before it does not count."""
    _phases(min(requests, 100), replicas, router, keep_steps)
    before = _peak_mb()
    found = _phases(requests, replicas, router, keep_steps)
    return {"requests": requests, "router": router, **found, "before_mb": before, "peak_mb": _peak_mb()}


def _phases(requests: int, replicas: int, router: str, keep_steps: bool) -> dict[str, Any]:
    traffic = constant(RATE_PER_REPLICA * replicas, 1024, 256, requests)
    traffic["arrival"]["process"] = "poisson"
    written = scenario("llama-3.1-8b-h100", traffic, {}, POLICY)
    loaded = load(written | {"fleet": {"replicas": replicas, "router": router}})
    policy = loaded.policies[0]
    start = time.process_time()
    setup = replace(prepare(loaded, policy, 0), keep_steps=keep_steps)
    built = time.process_time()
    records = run_setup(loaded, policy, setup)
    simulated = time.process_time()
    if keep_steps:
        measure(records, "none")
    return {
        "build_s": built - start,
        "simulate_s": simulated - built,
        "measure_s": time.process_time() - simulated,
        "steps": len(records.steps["end_ns"]),
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(rows: list[dict[str, Any]]) -> list[str]:
    """One line a run."""
    lines = [
        "| requests | router | build s | simulate s | measure s | us per request | steps | peak MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        phases = [row[name] for name in ("build_s", "simulate_s", "measure_s")]
        each = 1e6 * sum(phases) / row["requests"]
        seconds = " | ".join(f"{phase:.2f}" for phase in phases)
        lines.append(
            f"| {row['requests']:,} | {row['router']} | {seconds} | {each:.0f} | {row['steps']:,} | "
            f"{row['peak_mb']:.0f} |"
        )
    return lines


def main() -> None:
    """Measure every count under every router, each in a fresh process, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--router", nargs="+", default=list(ROUTERS))
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument(
        "--no-steps", action="store_true", help="keep no row for each step, and measure nothing"
    )
    parser.add_argument("--here", action="store_true", help="one run in this process, its figures as JSON")
    asked = parser.parse_args()
    if asked.here:
        found = measured(asked.requests[0], asked.replicas, asked.router[0], not asked.no_steps)
        print(json.dumps(found))
        return
    pairs = [(count, router) for count in asked.requests for router in asked.router]
    print("\n".join(table([_child(asked, *pair) for pair in pairs])))


def _child(asked: argparse.Namespace, requests: int, router: str) -> dict[str, Any]:
    words = ["--requests", str(requests), "--router", router, "--replicas", str(asked.replicas)]
    command = [sys.executable, "-m", "tests.bench.scale", "--here", *words]
    command += ["--no-steps"] if asked.no_steps else []
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
