"""One calibration from options to a profile: models, grid, campaign, fit.

Torch is imported only when models are built; everything before and after runs without it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from calibrate.campaign import Campaign, Outcome, Predictor, Step
from calibrate.cells import Cell, Execution, Measured
from calibrate.compose.evaluate import pass_ns
from calibrate.fit.assemble import CampaignAbout, DrafterAbout, make_profile
from calibrate.fit.cells import FORWARD, UNUSABLE
from calibrate.fit.passes import fit_pass
from calibrate.fit.report import Machine, Method
from calibrate.grid import CPU, GPU, Grid, build_grid, quick, small, with_collectives
from calibrate.journal import Journal
from calibrate.passes.contract import Bench, BenchSpec, Sampling
from calibrate.presets import Draft, Preset
from calibrate.profile import Device, ModelWork, Profile
from calibrate.shapes import Shape
from calibrate.timing.cpu import CpuTimer
from calibrate.timing.cuda_timer import cuda_timers
from calibrate.timing.nvml import REASONS
from calibrate.timing.peers import ALONE, Peers, led, together
from calibrate.timing.samples import Limits
from calibrate.timing.timer import Timer

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}
"""Bytes of a weight."""

WEIGHT_SHARE = 0.6
"""Of the memory; the rest is for keys, values, states and activations."""


@dataclass(frozen=True)
class Options:
    """What is calibrated, and how long; ``ranks`` processes share the target."""

    name: str
    preset: Preset
    drafters: Mapping[str, Draft]
    device: str
    dtype: str
    threads: int
    seed: int = 0
    quick: bool = False
    passes: int = 2
    sampling: Sampling = "greedy"
    layers: int | None = None
    command: str = ""
    ranks: int = 1

    @property
    def grid(self) -> Grid:
        """The cells of this calibration."""
        plan = GPU if self.device == "cuda" else small(CPU, self.preset.most_tokens, self.preset.most_context)
        plan = quick(plan) if self.quick else plan
        grid = build_grid(plan, list(self.drafters))
        return grid if self.ranks == 1 else with_collectives(grid, plan)

    @property
    def spec(self) -> BenchSpec:
        """The models to build."""
        cells = self.grid.cells
        return BenchSpec(
            target=self.preset.shape,
            drafters={name: (d.kind, d.build(d.config, name)) for name, d in self.drafters.items()},
            max_sequences=max(c.sequences for c in cells),
            max_context=max(max(c.context + c.width, c.prefix + c.chunk) for c in cells),
            layers=self.layers,
            sampling=self.sampling,
        )

    def about(self, device: str, machine: Machine) -> dict[str, Any]:
        """What a journal must agree on to be resumed."""
        grid = json.dumps([c.model_dump(by_alias=True) for c in self.grid.cells], sort_keys=True)
        return {
            "model": self.preset.model,
            "shape": _digest(repr(self.spec)),
            "drafters": sorted(self.drafters),
            "device": device if self.ranks == 1 else f"{self.ranks} x {device}",
            "dtype": self.dtype,
            "sampling": self.sampling,
            "threads": self.threads,
            "seed": self.seed,
            "grid": _digest(grid),
            "torch": machine.torch,
            "driver": machine.driver,
        }


@dataclass(frozen=True)
class Parts:
    """What a campaign needs of the machine: everything that a test replaces."""

    bench: Bench
    timers: Mapping[Execution, Timer]
    device: Device
    machine: Machine
    peers: Peers = ALONE


def build_parts(options: Options) -> Parts:
    """Models, timers and provenance on the real machine; imports torch, joins the other ranks."""
    import torch

    from calibrate.passes import build_bench
    from calibrate.passes.parallel import join_peers
    from calibrate.timing.machine import device_of, machine_of

    torch.set_num_threads(options.threads)
    peers = join_peers(options.device)
    device = device_of(options.device, options.dtype).model_copy(update={"count": peers.size})
    fit = layers_that_fit(options.spec, options.dtype, device.memory_bytes, peers.size)
    spec = replace(options.spec, layers=options.layers or led(peers, fit))
    bench = together(peers, lambda: build_bench(spec, options.device, options.dtype, options.seed))
    return Parts(bench, _timers(options, peers), device, machine_of(options.device), peers)


def _timers(options: Options, peers: Peers) -> Mapping[Execution, Timer]:
    """Waiting for other ranks is part of a pass, so CPU time alone is for one process."""
    if options.device == "cuda":
        import torch

        from calibrate.timing.cuda import TorchCuda

        return cuda_timers(TorchCuda(torch.cuda.current_device()), peers)
    alone = options.threads == 1 and peers.size == 1
    return {"cpu": CpuTimer("thread_cpu" if alone else "wall", peers=peers)}


def run_campaign(
    options: Options,
    parts: Parts,
    journal: Journal,
    budget_s: float,
    watch: Callable[[Step], None],
    now: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Measure what the journal does not have yet, for at most ``budget_s`` seconds."""
    campaign = Campaign(
        bench=parts.bench,
        timers=parts.timers,
        grid=options.grid,
        journal=journal,
        deadline=now() + budget_s,
        seed=options.seed,
        passes=1 if options.quick else options.passes,
        now=now,
        watch=watch,
        peers=parts.peers,
    )
    return campaign.run(None if options.quick else predictor)


def predictor(measured: Sequence[Measured]) -> Predictor:
    """What a fit of the target's passes expects, in microseconds, of cells in the fitted regime."""
    forward = [m for m in measured if m.cell.pass_ in FORWARD and m.cell.execution != "eager"]
    terms = fit_pass([m for m in forward if not UNUSABLE & set(m.flags)]).terms_fit if forward else ()

    def predict(cell: Cell) -> float | None:
        return pass_ns(terms, cell.shape) / 1e3 if terms and cell.execution != "eager" else None

    return predict


def to_profile(options: Options, parts: Parts, outcome: Outcome) -> Profile:
    """The fitted profile; raises ``calibrate.fit.cells.FitError`` when the cells do not make one."""
    drafters = {
        name: DrafterAbout(d.kind, work_of(d.build(d.config, name), options.dtype))
        for name, d in options.drafters.items()
    }
    about, work = _about(options, parts, outcome), work_of(options.preset.shape, options.dtype)
    return make_profile(outcome.measured, about, work, drafters)


def work_of(shape: Shape, dtype: str) -> ModelWork:
    """The work of a shape in ``dtype``; keys, values and states of fp8 models stay in bfloat16."""
    work, kept = shape.work(DTYPE_BYTES[dtype]), shape.work(max(2, DTYPE_BYTES[dtype]))
    return work.model_copy(
        update={
            "kv_bytes_per_token": kept.kv_bytes_per_token,
            "state_bytes_per_sequence": kept.state_bytes_per_sequence,
        }
    )


def layers_that_fit(spec: BenchSpec, dtype: str, memory_bytes: float, ranks: int = 1) -> int | None:
    """Distinct layers of the target that leave room for the rest (``WEIGHT_SHARE``); None for all of them.

    Layers and head are divided among the ranks; the input table and drafters are whole on each.
    """
    bytes_each, target = DTYPE_BYTES[dtype], spec.target
    table = target.embedding or (target.head.parameters if ranks > 1 else 0)
    outside = target.head.parameters / ranks + table
    outside += sum(shape.parameters for _, shape in spec.drafters.values())
    room = WEIGHT_SHARE * memory_bytes / bytes_each - outside
    layer = (target.parameters - target.head.parameters - target.embedding) / target.layers / ranks
    fit = int(room / layer)
    return None if fit >= target.layers else max(fit, 1)


def _about(options: Options, parts: Parts, outcome: Outcome) -> CampaignAbout:
    measured = outcome.measured
    return CampaignAbout(
        name=options.name,
        created=datetime.now(UTC).date().isoformat(),
        command=options.command,
        device=parts.device,
        dtype=options.dtype,
        method=_method(options, parts),
        machine=parts.machine.model_copy(update=_clocks(measured)),
        notes=_notes(outcome, parts),
    )


def _method(options: Options, parts: Parts) -> Method:
    limits = Limits()
    return Method(
        clock=", ".join(sorted({timer.clock for timer in parts.timers.values()})),
        warm_up=f"{limits.warmup_s:g} s once, {limits.settle_s:g} s before every cell",
        stop_rule=(
            f"windows of {1e3 * limits.window_s:g} ms, until the 95 % order-statistic interval of the median "
            f"is under {limits.relative:.0%} of it, or {limits.fewest} windows and {limits.cap_s:g} s"
        ),
        order="shuffled; anchors first, in the middle and last",
        seed=options.seed,
        threads=options.threads,
        sampling=options.sampling,
        data="; ".join(f"{key}: {value}" for key, value in sorted(parts.bench.about.items())),
        layers=parts.bench.about.get("layers", ""),
    )


def _clocks(measured: Sequence[Measured]) -> dict[str, Any]:
    clocks = [mhz for m in measured if m.clock_mhz for mhz in m.clock_mhz]
    return {
        "sm_clock_mhz": (min(clocks), median(clocks), max(clocks)) if clocks else (),
        "throttle_reasons": tuple(sorted({f for m in measured for f in m.flags} & set(REASONS.values()))),
    }


def _notes(outcome: Outcome, parts: Parts) -> str:
    """Why cells are missing, and how far the second clock was from the first."""
    notes = [f"Skipped: {why}." for why in dict.fromkeys(each.skipped for each in outcome.skipped)]
    if outcome.stopped != "finished":
        notes.append(f"Stopped before the end of the grid ({outcome.stopped}).")
    notes += _collectives(outcome.measured)
    ratios = [
        median(each.other_us[m.cell.pass_]) / m.median_us
        for each in outcome.finished
        for m in each.measured
        if m.cell.pass_ in each.other_us and m.cell.pass_ != "host"
    ]
    if ratios and "cpu" in parts.timers:
        other = "Wall time" if parts.timers["cpu"].clock == "thread_cpu" else "CPU time"
        notes.append(f"{other} of the same windows: {median(ratios):.3f} times the samples (median).")
    return " ".join(notes)


def _collectives(measured: Sequence[Measured]) -> list[str]:
    """What the sums over the ranks take alone: no term of their own, as every target pass contains them."""
    us: dict[int, list[float]] = {}
    for m in measured:
        if m.cell.pass_ == "collective":
            us.setdefault(m.cell.tokens, []).append(m.median_us)
    listed = ", ".join(f"{tokens} tokens {median(us[tokens]):.4g} us" for tokens in sorted(us))
    return [f"Sums over the ranks alone (verify contains them): {listed}."] if us else []


def journal_path(out: Path) -> Path:
    """Where the journal of a profile lies: beside it."""
    return beside(out, ".cells.jsonl")


def beside(out: Path, suffix: str) -> Path:
    """The file next to a profile with ``suffix`` in place of ``.json``, or behind a name without that."""
    return out.with_name(profile_name(out) + suffix)


def profile_name(out: Path) -> str:
    """The name of a profile's file without ``.json``; other dots belong to it (``qwen3.5-27b``)."""
    return out.name.removesuffix(".json")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
