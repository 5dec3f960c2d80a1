"""From a scenario file to a ``Scenario``, or to every mistake in it at its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from sim.errors import InputError, Problem, ScenarioError
from sim.scenario import catalogue, sweep
from sim.scenario.checks import Files, cross_check
from sim.scenario.messages import finding, flags
from sim.scenario.model import Cell, Scenario
from sim.scenario.nodes import MAX_BYTES, Document, Finding, KeyPath, dotted, parse_yaml, walk
from sim.scenario.overlay import with_values
from sim.scenario.words import shown

_STAND_INS: Final[dict[str, Any]] = {
    "policies": ["off"],
    "workload": {
        "arrival": {"process": "closed", "max_concurrency": 1},
        "lengths": {"input": 1, "output": 1},
        "num_requests": 1,
    },
}
"""What stands for a wrong section while the others are checked."""


@dataclass(frozen=True)
class Loaded:
    """A good scenario with its cells, its file's places, and the files it names."""

    document: Document
    scenario: Scenario
    cells: tuple[Cell, ...]
    files: Files


def load_scenario(path: Path, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """The scenario of a file; raises ``ScenarioError`` with every mistake.

    ``overrides`` sets plain values, as YAML would hold them, at dotted paths: ``{"run.seeds": 5}``.
    """
    return read_scenario(path, overrides).scenario


def read_scenario(path: Path, overrides: Mapping[str, Any] | None = None) -> Loaded:
    """As ``load_scenario``, with cells and places; ``InputError`` when there is no such file."""
    return check_document(read_document(path), path.parent, path.stem, overrides)


def read_document(path: Path) -> Document:
    """The file's data and places; raises ``InputError`` if it cannot be read at all."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    file = str(path)
    if len(raw) > MAX_BYTES:
        raise ScenarioError(
            [Problem(1, 1, "", f"is larger than {MAX_BYTES} bytes; is this a scenario?", file)]
        )
    try:
        return parse_yaml(raw.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = error.start - before.rfind(b"\n")
        wrong = Problem(before.count(b"\n") + 1, column, "", "is not UTF-8 text; save it as UTF-8", file)
        raise ScenarioError([wrong]) from None


def check_document(
    document: Document, folder: Path, name: str, overrides: Mapping[str, Any] | None = None
) -> Loaded:
    """The scenario in a document, or ``ScenarioError`` with everything that is wrong with it."""
    data = document.data
    if not isinstance(data, dict):
        if not document.problems:
            what = "is empty" if data is None else f"is {shown(data)}, not a mapping"
            document.problems.append(
                Problem(1, 1, "", f"{what}; a scenario has profile, workload and policies", document.file)
            )
        raise ScenarioError(document.problems)
    data = with_values(data, overrides or {})
    files = Files(folder)
    findings, built = _check(data, document, files)
    problems = document.problems + [document.problem(each) for each in findings]
    if problems:
        raise ScenarioError(list(dict.fromkeys(problems)))
    base, *cells = [_finished(scenario, folder, data, name) for _, scenario in built]
    plans = [plan for plan, _ in built[1:]]
    return Loaded(document, base, tuple(map(_cell, plans, cells)), files)


def expand(scenario: Scenario) -> tuple[Cell, ...]:
    """Every cell of a loaded scenario, in the order of its sweep; one cell if nothing is swept."""
    document = Document(scenario.name, dict(scenario.written))
    return check_document(document, scenario.folder, scenario.name).cells


def rebuild(data: dict[str, Any], folder: Path, name: str) -> tuple[Scenario, tuple[Cell, ...]]:
    """A scenario and its cells from the ``written`` data of one that was good; no file is looked at."""
    dims, _ = sweep.dimensions(data)
    filled, _ = sweep.fill(data, dims)

    def built(data_of: dict[str, Any]) -> Scenario:
        return _finished(Scenario.model_validate(data_of), folder, data, name)

    plans = sweep.combinations(dims)
    return built(filled), tuple(_cell(plan, built(sweep.apply(data, plan))) for plan in plans)


_Built = list[tuple[sweep.Plan, Scenario]]


def _check(data: dict[str, Any], document: Document, files: Files) -> tuple[list[Finding], _Built]:
    """Findings over the base and every cell; the base's scenario comes first, then the cells'."""
    dims, findings = sweep.dimensions(data)
    filled, absent = sweep.fill(data, dims)
    base, found = validate(filled, document, files)
    own = validate(data, document, files)[1] if absent and found else found
    findings += [each if each in own else _of_cell(each, absent) for each in found]
    built: _Built = [((), base)] if base else []
    for plan in sweep.combinations(dims):
        cell, wrong = validate(sweep.apply(data, plan), document, files)
        built += [(plan, cell)] if cell else []
        moved = [each for each in wrong if sweep.relocate(each, plan) is not None]
        fresh = [each for each in wrong if each not in moved and each not in found]
        findings += [_of_cell(each, plan) for each in (*moved, *fresh)]
        found += fresh
    return findings, built


def _of_cell(found: Finding, plan: sweep.Plan) -> Finding:
    """A finding that the swept values bring about, at one of them."""
    moved = sweep.relocate(found, plan)
    if moved is not None:
        return moved
    where = dotted(found.path if found.name is None else found.name)
    return Finding(plan[-1].source, f"with {sweep.cell_label(plan)}, {where} {found.message}")


def validate(data: dict[str, Any], document: Document, files: Files) -> tuple[Scenario | None, list[Finding]]:
    """The scenario if nothing is wrong with the data, and what is wrong with it."""
    findings, wrong = [], {str(path[0]) for path in document.tainted if path}
    try:
        scenario: Scenario | None = Scenario.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        findings = _independent([finding(each, data) for each in errors])
        wrong |= {str(each["loc"][0]) for each in errors if each["loc"]}
        scenario = _stand_in(data, wrong)
    findings += _misplaced_flags(data, findings)
    if scenario is not None:
        findings += cross_check(scenario, files, frozenset(wrong))
    findings = [each for each in findings if not _hidden(each, document)]
    return (None if findings else scenario), findings


def _independent(findings: list[Finding]) -> list[Finding]:
    """Without those of a list that is too short only because its items are wrong."""
    above = {each.path[:end] for each in findings for end in range(len(each.path))}
    return [each for each in findings if not (each.path in above and each.message.startswith("holds "))]


def _misplaced_flags(data: dict[str, Any], findings: list[Finding]) -> list[Finding]:
    known = {each.path for each in findings}
    booleans = [path for path, value in walk(data) if isinstance(value, bool) and path not in known]
    return [Finding(path, message) for path in booleans if (message := flags(data, path)) is not None]


def _hidden(found: Finding, document: Document) -> bool:
    """Whether the finding follows from a value that could not be read, and says nothing new."""
    name: KeyPath = found.path if found.name is None else found.name
    return bool(name) and any(bad[: len(name)] == name or name[: len(bad)] == bad for bad in document.tainted)


def _stand_in(data: dict[str, Any], wrong: set[str]) -> Scenario | None:
    """A scenario of the sections that are right, so that these can be checked against each other."""
    right = {key: value for key, value in data.items() if key in Scenario.model_fields and key not in wrong}
    try:
        return Scenario.model_validate({**_STAND_INS, **right})
    except ValidationError:
        return None


def _finished(scenario: Scenario, folder: Path, data: dict[str, Any], name: str) -> Scenario:
    """The scenario with its name, folder and written form."""
    done = scenario.model_copy(update={"name": scenario.name or name})
    done._folder, done._written = folder, data
    return done


def _cell(plan: sweep.Plan, scenario: Scenario) -> Cell:
    settings = tuple((setting.dotted, setting.label) for setting in plan)
    return Cell(sweep.cell_label(plan), settings, scenario)


def find_scenario(name: str) -> Path:
    """File of a path, or of a shipped scenario's name; ``InputError`` if there is neither."""
    return catalogue.locate("scenario", name, Path())
