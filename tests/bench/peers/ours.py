"""leadline on the same work: ``leadline run`` as a user has it, and its loop alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import sim
from tests.bench.peers.sides import Facts, Side

ROOT: Final = Path(__file__).resolve().parents[3]
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "off": {"policy": "off"},
    "EAGLE-3, k = 3": {"policy": "static", "k": 3},
}
ACCEPTANCE: Final = {"process": "iid", "alpha": 0.7}


def scenario(
    profile: str, workload: Mapping[str, Any], engine: Mapping[str, Any], policy: str
) -> dict[str, Any]:
    """One policy, one seed, nothing kept but the summary."""
    return {
        "name": "speed",
        "profile": profile,
        "drafter": "eagle3",
        "acceptance": ACCEPTANCE,
        "workload": dict(workload),
        "engine": {"preset": "vllm_v1", **engine},
        "policies": [POLICIES[policy]],
        "run": {"seeds": 1, "records": "summary"},
    }


def constant(rate: int, prompt: int, output: int, count: int) -> dict[str, Any]:
    """Requests of one length at fixed intervals."""
    return {
        "arrival": {"process": "constant", "request_rate": f"{rate}/s"},
        "lengths": {"input": prompt, "output": output},
        "num_requests": count,
    }


def sides(folder: Path, name: str, written: Mapping[str, Any], policy: str) -> tuple[Side, Side]:
    """The command that a user gives, and the loop alone."""
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(written, indent=1))
    version = sim.__version__
    run = (sys.executable, "-m", "sim", "run", str(file), "--jobs", "1", "--json")
    loop = (sys.executable, "-m", "tests.bench.peers.loop", str(file))
    return (
        Side(f"leadline, {policy}", version, run, ROOT, _summary, scenario=written),
        Side(f"leadline, {policy}: loop alone", version, loop, ROOT, _loop, scenario=written),
    )


def _summary(output: str) -> Facts:
    """Check that there is a summary; it has no counts where the load was too much."""
    assert json.loads(output[output.index("{") :])["cells"][0]["policies"]
    return Facts(None)


def _loop(output: str) -> Facts:
    found = json.loads(output.splitlines()[-1])
    first = {"first_s": found["first_s"], "again_s": found["again_s"]}
    return Facts(found["requests"], found["simulated_s"], found["loop_s"], found["steps"], first)
