"""The requests of a measured run: its load and lengths, and its times of sending where recorded."""

from __future__ import annotations

from dataclasses import replace
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np

from sim.against.measured import Load, Run
from sim.units import NS_PER_S
from sim.workload.build import build_requests
from sim.workload.config import WorkloadConfig
from sim.workload.requests import Requests


def requests_of(run: Run, seed: int) -> Requests:
    """The run's requests; ``seed`` draws the arrivals of an open loop whose times are not recorded."""
    requests = replace(
        build_requests(WorkloadConfig.model_validate(stand_in(run)), seed, Path),
        prompt_tokens=np.array(run.prompt, dtype=np.int64),
        output_tokens=np.array(run.output, dtype=np.int64),
    )
    if not run.sent_s:
        return requests
    return replace(requests, arrival_ns=np.rint(np.array(run.sent_s) * NS_PER_S).astype(np.int64))


def stand_in(run: Run) -> dict[str, Any]:
    """A workload section with the run's load and count; its lengths are replaced later."""
    return {
        "arrival": _arrival(run.load),
        "lengths": {"input": run.prompt[0], "output": run.output[0]},
        "num_requests": len(run.output),
    }


def _arrival(load: Load) -> dict[str, Any]:
    if load.rate_per_s is None:
        return {"process": "closed", "max_concurrency": load.concurrency}
    common = {"request_rate": f"{load.rate_per_s!r}/s", "max_concurrency": load.concurrency}
    if isinf(load.burstiness):
        return {"process": "constant", **common}
    return {"process": "gamma", "burstiness": load.burstiness, "normalise": load.normalised, **common}
