"""The module list of docs/architecture.md, from the modules' own first sentences.

``python -m tests.docs.architecture`` writes the page again; a test keeps it true.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
START = "<!-- modules -->"
PACKAGES = {
    "sim": "the simulator; never imports torch",
    "sim/scenario": "one YAML file in, a frozen `Scenario` or every mistake out",
    "sim/workload": "which requests arrive, when, how long they are",
    "sim/acceptance": "which drafts survive, fixed before any policy acts",
    "sim/against": "the simulator against a user's own measurement, and fitted to it",
    "sim/acceptance/fit": "from logs, counters and traces to an acceptance process, with its held-out error",
    "sim/cost": "what a step costs, moves and computes",
    "sim/policies": "how deep to speculate",
    "sim/engine": "what the serving engine does around the policy",
    "sim/ahead": "the same steps in compiled calls, while nothing outside can change a replica",
    "sim/engine/engines": "the habits and default limits of real engines, each value with its source",
    "sim/fleet": "several replicas behind a router, in one simulation",
    "sim/sweep": "every run of a scenario, made where there is room for it, kept under a name of its own",
    "sim/results": "records, metrics, comparison, tables, files",
    "sim/report": "one HTML page of a finished run; the same as text, data and pictures",
    "sim/map": "which policy and depth wins where, and a page to drag it",
    "sim/plan": "how many replicas a peak takes within limits",
    "sim/export": "a policy as an engine's own settings",
    "sim/explain": "what a preset sets, and where it was read",
    "sim/ablation": "what each mechanism of the engine is worth in a scenario",
    "sim/trace": "a run for Perfetto, its requests for load generators",
    "calibrate": "where step costs come from",
    "calibrate/passes": "the passes that are timed: real transformer forward passes, in torch",
    "calibrate/timing": "timers for CUDA and CPU, when to stop, what machine it was",
    "calibrate/fit": "from timed cells to the terms of a profile, with their errors",
    "calibrate/importers": "profiles from the tables and logs of other tools",
    "calibrate/compose": "profiles added up from published kernel measurements",
    "calibrate/recording": "acceptance recorded from a small pair of models, trained here",
    "calibrate/reference": "a serving engine of our own that really runs, as a referee",
    "calibrate/validate": "the engine beside the simulator; the one package that imports `sim`",
}


def first_sentence(file: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def modules() -> str:
    """One line per module, by package."""
    lines = []
    for package, about in PACKAGES.items():
        lines.append(f"\n### `{package}/`: {about}\n")
        for file in sorted((ROOT / package).glob("*.py")):
            if file.name != "__init__.py":
                lines.append(f"- `{file.name}`: {first_sentence(file)}")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with its module list made anew."""
    return PAGE.read_text(encoding="utf-8").split(START)[0] + START + "\n" + modules()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
