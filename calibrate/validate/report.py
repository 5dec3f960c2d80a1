"""A comparison for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calibrate.profile import write_atomically
from calibrate.validate.compare import ALLOWED, BIAS, SPREADS, Compared, Served, Verdict
from calibrate.validate.measures import COMPARED, JUDGED
from calibrate.validate.reference import Finding

NUMBERS = f"{'simulated':>10}{'engine':>10}{'spread':>8}{'error':>8}  verdict"


def lines(finding: Finding, every: bool = False) -> Iterator[str]:
    """The comparison as text: judged metrics of every cell, or all of them, then the rules."""
    cells = finding.verdict.cells
    wide = tuple(2 + max(map(len, names)) for names in zip(*((c.load, c.policy) for c in cells), strict=True))
    yield f"{'load':{wide[0]}}{'policy':{wide[1]}}{'metric':22}{NUMBERS}"
    for cell in cells:
        for metric in COMPARED if every else JUDGED:
            yield _line(cell, metric, *wide)
    yield ""
    yield from _steps(finding)
    yield from _rules(finding.verdict)


def _line(cell: Served, metric: str, load: int, policy: int) -> str:
    c = cell.compared(metric)
    verdict = ("pass" if c.holds else "MISS") if metric in JUDGED else ""
    spread = c.spread / c.mean if c.mean else 0.0
    numbers = f"{c.simulated:10.4g}{c.mean:10.4g}{spread:8.1%}{c.error:+8.1%}"
    return f"{cell.load:{load}}{cell.policy:{policy}}{metric:22}{numbers}  {verdict}".rstrip()


def _steps(finding: Finding) -> Iterator[str]:
    """What the cost tables are off on the engine's own steps, and how far the machine moved."""
    errors = [error for cell in finding.verdict.cells for error in cell.step_errors]
    means = {name: sum(asdict(e)[name] for e in errors) / len(errors) for name in asdict(errors[0])}
    yield f"steps: {means['each']:.1%} off each, {means['total']:+.1%} in sum"
    kinds = f"decodes {means['decodes']:+.1%}, with prompts {means['prompts']:+.1%}"
    work = (
        f"verify {means['verify']:+.1%}, accept {means['accept']:+.1%}, drafter and loop {means['rest']:+.1%}"
    )
    yield f"of these: {kinds}; {work}"
    found = finding.overhead
    beside = f"{found.token_ns / 1e3:.0f} us a token and {found.sequence_ns / 1e3:.0f} us a sequence"
    yield f"passes in the engine, of those timed alone: target {found.verify:.3f} and {beside}"
    yield f"                                            drafter {found.draft:.3f}"
    for policy, loop in found.loops.items():
        step, sequence, draft = (ns / 1e3 for ns in asdict(loop).values())
        yield f"its loop, {policy}: {step:.0f} us a step, {sequence:.0f} a sequence, {draft:.0f} a draft pass"
    yield f"machine: anchors moved by up to {finding.drift:.1%}"


def _rules(verdict: Verdict) -> Iterator[str]:
    judged = len(verdict.cells) * len(JUDGED)
    rule = f"|simulated - engine| <= max({ALLOWED:.0%}, {SPREADS:g} x spread)"
    yield f"{rule}: {judged - len(verdict.misses)} of {judged} hold"
    biases = ", ".join(f"{metric} {verdict.bias(metric):+.1%}" for metric in JUDGED)
    yield f"mean error over all cells (at most {BIAS:.0%}): {biases}"
    noises = ", ".join(f"{metric} {verdict.noise(metric):.1%}" for metric in JUDGED)
    yield f"noise of one engine run (standard deviation over all cells): {noises}"
    told, wrong = verdict.orders, verdict.wrong_orders
    yield f"pairs of policies that the engine tells apart: {len(told)}, in the wrong order: {len(wrong)}"
    for each in wrong:
        pair = f"{each.second} - {each.first}"
        real = f"{each.real:+.4g} (noise {each.noise:.4g})"
        yield f"  {each.load}, {each.metric}: {pair} is {real}, simulated {each.simulated:+.4g}"
    yield "passed" if verdict.passed else "failed"


def as_data(finding: Finding) -> dict[str, Any]:
    """Everything, for a file."""
    verdict = finding.verdict
    return {
        "schema": "leadline.validation/1",
        "engine": "reference",
        "seed": finding.seed,
        "passed": verdict.passed,
        "rule": {"share": ALLOWED, "spreads": SPREADS, "bias": BIAS},
        "bias": {metric: verdict.bias(metric) for metric in JUDGED},
        "orders": [asdict(order) | {"wrong": order.wrong} for order in verdict.orders],
        "anchors_us": list(finding.anchors_us),
        "overhead": asdict(finding.overhead),
        "device": finding.profile.device.name,
        "method": finding.profile.method.model_dump() if finding.profile.method else None,
        "cells": [_cell(cell) for cell in verdict.cells],
    }


def _cell(cell: Served) -> dict[str, Any]:
    return {
        "load": cell.load,
        "policy": cell.policy,
        "metrics": {name: _metric(compared) for name, compared in cell.table.items()},
        "steps": [asdict(error) for error in cell.step_errors],
    }


def _metric(c: Compared) -> dict[str, Any]:
    return {
        "simulated": c.simulated,
        "engine": list(c.engine),
        "mean": c.mean,
        "spread": c.spread,
        "error": c.error,
        "holds": c.holds,
    }


def write(finding: Finding, path: Path) -> None:
    """The comparison as a JSON file."""
    write_atomically(path, json.dumps(as_data(finding), indent=1) + "\n")
