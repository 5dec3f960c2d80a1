"""The campaign's runs, simulated: same requests, policies and luck, and only the fitted step costs."""

from __future__ import annotations

import numpy as np

from calibrate.profile import Profile
from sim.against.observed import observed
from sim.engine.simulate import Setup, simulate
from sim.results.run_records import RunRecords
from tests.referee.cpu_clock.campaign.plan import DEPTH, SEED, Item, luck_of, policy_of, requests_of
from tests.referee.cpu_clock.campaign.recordings import Run
from tests.referee.cpu_clock.costs import DRAFTER
from tests.referee.cpu_clock.predict import ENGINE, OPEN_METRICS, Metrics


def simulated(item: Item, profile: Profile, seed: int = SEED) -> RunRecords:
    """One run under the recorded luck, or under another."""
    setup = Setup(
        requests=requests_of(item.load),
        profile=profile,
        drafter=profile.drafters[DRAFTER],
        engine=ENGINE.model_copy(update={"pad_new_decodes": False}),  # every depth is dynamic to vLLM
        processes=(luck_of(item.load, seed),),
        max_depth=DEPTH,
    )
    return simulate(setup, policy_of(item.policy))


def predicted(item: Item, profile: Profile, seed: int = SEED) -> Metrics:
    """What a client would have seen."""
    found = observed(simulated(item, profile, seed))
    return {name: found[name] for name in OPEN_METRICS}


def measured(run: Run) -> Metrics:
    """The same from a recorded run."""
    sent, first, finish, tokens = (
        run.requests[name] for name in ("sent_ns", "first_token_ns", "finish_ns", "output_tokens")
    )
    tpot = (finish - first) / (tokens - 1)
    values = (
        tokens.sum() / (finish.max() - sent.min()) * 1e9,
        tpot.mean() / 1e6,
        (finish - sent).mean() / 1e6,
        (first - sent).mean() / 1e6,
    )
    return {name: float(value) for name, value in zip(OPEN_METRICS, values, strict=True)}


def steps_agree(run: Run, records: RunRecords) -> float:
    """Share of the recorded steps before the first that the simulation schedules differently."""
    ours = np.stack([records.steps[name] for name in ("tokens", "sequences")])
    theirs = np.stack([run.steps[name] for name in ("tokens", "sequences")])
    n = min(ours.shape[1], theirs.shape[1])
    differ = np.flatnonzero((ours[:, :n] != theirs[:, :n]).any(axis=0))
    return float(differ[0] / theirs.shape[1]) if len(differ) else float(n / theirs.shape[1])
