"""Speed and memory of the simulator itself: ``python -m tests.bench [--write]``.

Everything is measured in one run on one core, repeats interleaved, medians shown; ``--write``
puts the table into docs/benchmarks.md. Compare numbers of one run with each other only.
"""

from __future__ import annotations

import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import simpy

from calibrate.profile import load_profile
from sim.acceptance.build import build_process
from sim.acceptance.config import IidAcceptance
from sim.engine.client import Client
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, build_replica, simulate
from sim.policies.base import Policy
from sim.policies.goodput import Goodput
from sim.policies.off import Off
from sim.policies.oracle import Oracle
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from sim.streams import uniforms
from sim.workload.requests import Requests
from tests.bench.compiled import compiled_table
from tests.bench.decisions import decision_table

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "scenarios" / "profiles" / "llama-3.1-8b-h100.json"
POLICIES: dict[str, Callable[[], Policy]] = {
    "off": Off,
    "static(k=3)": lambda: Static(3),
    "goodput(k_max=5)": lambda: Goodput(5, 0.7, 0.15, 100),
    "oracle(k_max=5)": lambda: Oracle(5),
}


def setup_of(requests: Requests) -> Setup:
    """Llama-3.1-8B, H100, EAGLE-3, vllm_v1, iid acceptance 0.7."""
    profile = load_profile(PROFILE)
    config = IidAcceptance(process="iid", alpha=0.7)
    process = build_process(config, 0, 5, Path)
    return Setup(requests, profile, profile.drafters["eagle3"], EngineConfig(), (process,), 5)


def run(policy: Policy, requests: Requests) -> tuple[float, RunRecords]:
    """CPU seconds and records of one run."""
    setup = setup_of(requests)
    start = time.process_time()
    records = simulate(setup, policy)
    return time.process_time() - start, records


def step_us(policy: Policy, requests: Requests) -> list[float]:
    """Microseconds that each engine step took, the drawing of its new requests' futures included."""
    env = simpy.Environment(initial_time=0)
    setup = setup_of(requests)
    replica = build_replica(env, setup, policy)
    client = Client(env, requests, replica, setup.engine.max_model_len)
    took: list[float] = []
    inner = replica.step

    def timed(now: int) -> int:
        start = time.perf_counter_ns()
        latency = inner(now)
        took.append((time.perf_counter_ns() - start) / 1e3)
        return latency

    replica.step, replica.done = timed, client.done  # type: ignore[method-assign]
    env.process(client.run())
    env.process(replica.run())
    env.run(until=client.finished)
    return took


def open_loop(count: int, rate: float) -> Requests:
    """Poisson arrivals of 1024 in, 256 out."""
    arrivals = np.cumsum(-np.log(uniforms(0, "bench arrivals", 0, count)) / rate)
    return _requests((arrivals * 1e9).astype(np.int64), 1024, 256, None)


def closed_loop(batch: int) -> Requests:
    """``batch`` sequences in flight all the time, each 256 in and 768 out, twice over."""
    return _requests(np.zeros(2 * batch, dtype=np.int64), 256, 768, batch)


def _requests(arrivals: np.ndarray, prompt: int, output: int, concurrency: int | None) -> Requests:
    n = len(arrivals)
    full = np.full
    return Requests(arrivals, full(n, prompt), full(n, output), full(n, 0), max_concurrency=concurrency)


def step_table(repeats: int) -> list[str]:
    """Median time of a step by policy and batch, and what a bare SimPy timeout adds to it."""
    bare = statistics.median(bare_simpy() for _ in range(repeats))
    lines = ["| policy | batch | us per step, median | p90 | SimPy on top |", "|---|---|---|---|---|"]
    for batch in (64, 256):
        times: dict[str, list[float]] = {name: [] for name in POLICIES}
        for _ in range(repeats):
            for name, make in POLICIES.items():
                times[name] += step_us(make(), closed_loop(batch))
        for name, values in times.items():
            us, p90 = statistics.median(values), float(np.percentile(values, 90))
            lines.append(f"| {name} | {batch} | {us:.0f} | {p90:.0f} | {bare:.1f} us, {bare / us:.0%} |")
    return lines


def bare_simpy(count: int = 100_000) -> float:
    """Microseconds of one process waiting for one timeout."""

    def ticks(env: simpy.Environment) -> object:
        for _ in range(count):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(ticks(env))  # type: ignore[arg-type]
    start = time.process_time()
    env.run()
    return 1e6 * (time.process_time() - start) / count


def ten_thousand() -> list[str]:
    """10,000 requests of 1024/256 tokens at 4/s under each policy."""
    lines = ["| policy | CPU s | steps | requests/s | us per step |", "|---|---|---|---|---|"]
    for name in ("off", "static(k=3)", "goodput(k_max=5)"):
        seconds, records = run(POLICIES[name](), open_loop(10_000, 4.0))
        steps = len(records.steps["end_ns"])
        rates = f"{10_000 / seconds:.0f} | {1e6 * seconds / steps:.0f}"
        lines.append(f"| {name} | {seconds:.1f} | {steps} | {rates} |")
    return lines


def memory_table() -> list[str]:
    """Peak memory of a fresh process: what grows it is requests in flight and results, not time."""
    lines = ["| run | simulated s | steps | peak RSS MB | ratio |", "|---|---|---|---|---|"]
    base = 0.0
    for label, count, rate in (
        ("2,000 requests at 4/s", 2000, 4.0),
        ("2,000 requests at 0.04/s (100 x the time)", 2000, 0.04),
        ("20,000 requests at 4/s (10 x the results)", 20_000, 4.0),
    ):
        simulated, steps, peak = map(float, _child_output(_MEMORY.format(count=count, rate=rate)).split())
        base = base or peak
        lines.append(f"| {label} | {simulated:.0f} | {steps:.0f} | {peak:.0f} | {peak / base:.2f} |")
    return lines


_MEMORY = """
from tests.bench.__main__ import POLICIES, open_loop, run
_, records = run(POLICIES["static(k=3)"](), open_loop({count}, {rate}))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
end = records.steps["end_ns"]
print(end[-1] / 1e9, len(end), int(peak.split()[1]) / 1024)
"""


def _child_output(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def start_up(repeats: int) -> list[str]:
    """CPU time of the command's help and wall time to the first table of a shipped scenario."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "leadline --help": [sys.executable, "-m", "sim.cli", "--help"],
        "leadline check azure-conversation": [sys.executable, "-m", "sim.cli", "check", "azure-conversation"],
    }
    lines = ["| command | CPU s |", "|---|---|"]
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            times[name].append(_child_cpu(command))
    lines += [f"| `{name}` | {statistics.median(values):.2f} |" for name, values in times.items()]
    return [
        *lines,
        "",
        f"First table of `leadline run azure-conversation`: {first_table():.1f} s after the command.",
    ]


def _child_cpu(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def first_table() -> float:
    """Wall seconds until the first line of results is printed."""
    start = time.monotonic()
    command = [sys.executable, "-m", "sim.cli", "run", "azure-conversation"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.monotonic() - start
        process.kill()
    return seconds


def machine() -> str:
    """What it ran on."""
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return f"{cpu}, Python {platform.python_version()}, NumPy {np.__version__}, SimPy {simpy.__version__}"


def page(repeats: int) -> str:
    """The whole page."""
    sections = {
        "The simulator's own time per step": step_table(repeats),
        "Policy decisions": decision_table(repeats),
        "Steps taken many at once": compiled_table(3),
        "10,000 requests of 1024/256 tokens at 4/s, stepped": ten_thousand(),
        "Memory": memory_table(),
        "Start-up": start_up(repeats),
    }
    text = [
        (ROOT / "tests" / "bench" / "intro.md").read_text().rstrip(),
        f"\nMachine: {machine()}, one core.\n",
    ]
    for title, lines in sections.items():
        text += [f"## {title}\n", *lines, ""]
    return "\n".join(text)


if __name__ == "__main__":
    text = page(repeats=5)
    if "--write" in sys.argv:
        (ROOT / "docs" / "benchmarks.md").write_text(text)
    print(text)
