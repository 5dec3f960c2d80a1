"""Recorded runs that the calibration never saw, simulated: same requests, policies and acceptance.

Open loop (``open/*``): requests arrive and are as long as recorded; closed loop (``main/*``): as
many clients and requests. Acceptance is 0.7 at every position, as configured in all of them; its
luck is ours, so figures are means over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibrate.profile import Curve, Profile, Term
from sim.acceptance.build import build_process
from sim.acceptance.config import PerPositionAcceptance
from sim.against.observed import observed
from sim.engine.config import EngineConfig
from sim.engine.simulate import Setup, simulate
from sim.policies.base import Policy
from sim.policies.config import Bounds
from sim.policies.off import Off
from sim.policies.per_batch_size import PerBatchSizeConfig, Row
from sim.policies.static import Static
from sim.results.run_records import RunRecords
from sim.workload.requests import Requests
from tests.referee.cpu_clock.costs import DRAFTER
from tests.referee.cpu_clock.recordings import Columns, Recorded, select

Metrics = dict[str, float]

OPEN_METRICS: Final = ("output_tokens_per_s", "tpot_mean_ms", "e2el_mean_ms", "ttft_mean_ms")
MOST_SEQUENCES: Final = 64
ENGINE: Final = EngineConfig(
    preset="vllm_v1",
    max_num_seqs=MOST_SEQUENCES,
    max_num_batched_tokens=2048,
    max_model_len=512,
    block_size=32,
    kv_blocks=1024,
    capture_sizes=(),
)
"""The engine of the recordings; they had 768 MiB for KV, about as many blocks, and never filled them."""
NOT_SIMULATED: Final = {
    "main/seqdepth_0_3_a.7": "depth by sequence through a hook of the recorder",
    "main/ngram3_a.7": "what a look-up finds depends on the tokens, which were not recorded",
}


@dataclass(frozen=True)
class Case:
    """One recorded run: its configuration, load (clients or requests per second) and requests."""

    process: str
    config: dict[str, Any]
    load: float
    requests: Requests

    @property
    def name(self) -> str:
        """The policy's name in tables."""
        return self.process.split("/")[1].removesuffix("_a.7")


def open_cases(recorded: Recorded) -> list[Case]:
    """Every open-loop run, by load."""
    processes = [name for name in recorded.configs if name.startswith("open/")]
    loads = np.unique(recorded.open_requests["rate"]).tolist()
    return [_open_case(recorded, name, load) for load in loads for name in processes]


def _open_case(recorded: Recorded, process: str, load: float) -> Case:
    rows = open_rows(recorded, process, load)
    arrival_ns = np.rint(rows["arrival"] * 1e9).astype(np.int64)
    return Case(process, recorded.configs[process], load, _requests(arrival_ns, rows["prompt"], rows["out"]))


def open_rows(recorded: Recorded, process: str, load: float) -> Columns:
    """The requests of a run in order of arrival."""
    rows = select(recorded.open_requests, config=process.split("/")[1], rate=load)
    order = np.argsort(rows["arrival"], kind="stable")
    return {name: values[order] for name, values in rows.items()}


def closed_cases(recorded: Recorded) -> list[Case]:
    """Every closed-loop run of the second set that can be simulated, by load."""
    runs = recorded.closed_runs
    found = []
    for name, clients, count in zip(runs["config"], runs["conc"], runs["nreq"], strict=True):
        config = recorded.configs.get(f"main/{name}")
        if config is not None and f"main/{name}" not in NOT_SIMULATED:
            n = int(count)
            sizes = np.full(n, config["prompt"]), np.full(n, config["out"])
            requests = _requests(np.zeros(n, dtype=np.int64), *sizes, clients=int(clients))
            found.append(Case(f"main/{name}", config, clients, requests))
    return sorted(found, key=lambda case: case.load)


def _requests(arrival_ns: Any, prompt: Any, output: Any, clients: int | None = None) -> Requests:
    return Requests(
        arrival_ns=arrival_ns,
        prompt_tokens=prompt.astype(np.int64),
        output_tokens=output.astype(np.int64),
        class_id=np.zeros(len(prompt), dtype=np.int64),
        max_concurrency=clients,
    )


# -- policies --------------------------------------------------------------------------------------


def policy_of(config: dict[str, Any]) -> Policy:
    """The policy of a configuration; the recorder's own controllers are tables over the batch, too."""
    if config["spec"] is None:
        return Off()
    table = table_of(config)
    if table is None:
        return Static(depth_of(config))
    return PerBatchSizeConfig(policy="per_batch_size", table=table).build(Bounds(depth_of(config)))


def depth_of(config: dict[str, Any]) -> int:
    """The configured depth, 0 without speculation."""
    return int(config["spec"]["num_speculative_tokens"]) if config["spec"] else 0


def table_of(config: dict[str, Any]) -> tuple[Row, ...] | None:
    """Rows of (first batch, last batch, depth), or ``None`` for a fixed depth.

    ``budget:N``: depth N // batch - 1; ``qdepth``: the configured depth less a third of the requests
    in the engine, all of which are scheduled in every step of these runs.
    """
    rows = config["spec"].get("num_speculative_tokens_per_batch_size")
    if rows:
        return tuple((first, last, k) for first, last, k in rows)
    name, _, budget = (config.get("policy") or "").partition(":")
    most = depth_of(config)
    if name == "budget":
        return _rows([int(budget) // b - 1 for b in range(1, MOST_SEQUENCES + 1)], most)
    if name == "qdepth":
        return _rows([most - b // 3 for b in range(1, MOST_SEQUENCES + 1)], most)
    return None


def _rows(depths: Sequence[int], most: int) -> tuple[Row, ...]:
    cut = [max(0, min(most, k)) for k in depths]
    starts = [1] + [b + 1 for b in range(1, len(cut)) if cut[b] != cut[b - 1]] + [len(cut) + 1]
    return tuple((first, after - 1, cut[first - 1]) for first, after in pairwise(starts))


# -- runs ------------------------------------------------------------------------------------------


def run(case: Case, profile: Profile, seed: int) -> RunRecords:
    """Simulate one case under one draw of acceptance."""
    depth = depth_of(case.config)
    rates = case.config["spec"]["synthetic_acceptance_rates"] if depth else [0.0]
    acceptance = PerPositionAcceptance(process="per_position", unconditional=tuple(rates))
    setup = Setup(
        requests=case.requests,
        profile=profile,
        drafter=profile.drafters[DRAFTER] if depth else None,
        engine=ENGINE,
        processes=(build_process(acceptance, seed, max(depth, 1), Path),),
        max_depth=depth,
        seed=seed,
    )
    return simulate(setup, policy_of(case.config))


@dataclass(frozen=True)
class Prediction:
    """Means over seeds, and standard deviations between single runs (luck of one real run)."""

    mean: Metrics
    luck: Metrics


def predict(case: Case, profile: Profile, seeds: int) -> Prediction:
    """Simulate a case; without drafts nothing is drawn, and one run is enough."""
    runs = [observed(run(case, profile, seed)) for seed in range(seeds if case.config["spec"] else 1)]
    mean = {name: float(np.mean([each[name] for each in runs])) for name in OPEN_METRICS}
    return Prediction(mean, {name: float(np.std([each[name] for each in runs])) for name in OPEN_METRICS})


def measured_open(recorded: Recorded, case: Case) -> Metrics:
    """What the real engine's run showed its clients, from its requests."""
    rows = open_rows(recorded, case.process, case.load)
    end = rows["arrival"] + rows["e2e_s"]
    tpot = (rows["e2e_s"] - rows["ttft_s"]) / (rows["out"] - 1)
    return {
        "output_tokens_per_s": float(rows["out"].sum() / (end.max() - rows["arrival"].min())),
        "tpot_mean_ms": float(1e3 * tpot.mean()),
        "e2el_mean_ms": float(1e3 * rows["e2e_s"].mean()),
        "ttft_mean_ms": float(1e3 * rows["ttft_s"].mean()),
    }


def measured_closed(recorded: Recorded, case: Case) -> float:
    """Output tokens per CPU second of the engine."""
    rows = select(recorded.closed_runs, config=case.process.split("/")[1], conc=case.load)
    return float(rows["tok"][0] / rows["cpu_s"][0])


def at_speed(profile: Profile, factor: float) -> Profile:
    """The same profile with every step ``factor`` times as long."""
    target, drafter = profile.target, profile.drafters[DRAFTER]
    slow = {name: _scaled(getattr(target, name), factor) for name in ("verify", "host")}
    drafts = {name: _scaled(getattr(drafter, name), factor) for name in ("first", "next")}
    changed = {
        "target": target.model_copy(update=slow),
        "drafters": {DRAFTER: drafter.model_copy(update=drafts)},
    }
    return profile.model_copy(update=changed)


def _scaled(terms: Sequence[Term], factor: float) -> tuple[Term, ...]:
    return tuple(_term_at(term, factor) for term in terms)


def _term_at(term: Term, factor: float) -> Term:
    curve = term.curve
    if curve is not None:
        curve = Curve(over=curve.over, x=curve.x, ns=tuple(factor * ns for ns in curve.ns))
    per_ns = {name: factor * ns for name, ns in term.per_ns.items()}
    return term.model_copy(update={"fixed_ns": factor * term.fixed_ns, "per_ns": per_ns, "curve": curve})
