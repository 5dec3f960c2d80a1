"""A plan in words, as a table for a terminal, as Markdown, and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.plan.answer import BEYOND, TOLERANCE, Answer, binding
from sim.plan.memory import Memory
from sim.plan.plan import Plan
from sim.plan.probe import Probe
from sim.plan.size import Size
from sim.report.plain import text as escaped
from sim.results.terminal import number

SCHEMA: Final = "leadline.plan/1"
_MAX_NAME: Final = 34


# -- words -----------------------------------------------------------------------------------------


def verdict(plan: Plan) -> str:
    """The recommendation, what the others need, and what is even, in a few sentences."""
    best = plan.best
    asked = f"For {number(plan.question.peak_per_s)} requests/s with {plan.question.objective.text}"
    if best is None or best.size is None:
        return f"{asked}: no policy can be planned. " + " ".join(
            f"{_name(plan, each)}: {each.refusal}." for each in plan.answers if each.refusal
        )
    fleet = f"{_replicas(best.size.replicas)} ({_gpus(best.size.replicas * plan.gpus(best))})"
    head = f"{_name(plan, best)} needs {fleet}, headroom {100 * best.size.headroom:.0f} %"
    sentences = [f"{asked}: {head}", _others(plan, best), _even(plan, best), _refused(plan)]
    return ". ".join(sentence for sentence in sentences if sentence) + "."


def _others(plan: Plan, best: Answer) -> str:
    others = [each for each in plan.choices if each is not best]
    parts = [f"{_name(plan, each)} {each.size.replicas}" for each in others if each.size]
    return f"Others need: {', '.join(parts)}" if parts else ""


def _even(plan: Plan, best: Answer) -> str:
    """Policies that the plan cannot tell apart, and those over which it may save nothing."""
    others = [each for each in plan.even if each is not best]
    saving = [each for each in others if plan.saves(each)]
    same = [each for each in others if not plan.saves(each)]
    sentences = []
    if same:
        sentences.append(f"No difference to {_names(plan, same)}: within {_margin(plan, best, same)}")
    if saving:
        sentences.append(
            f"What {_name(plan, best)} saves over {_names(plan, saving)} is not certain: "
            f"{_load(plan)} differs by less than {_margin(plan, best, saving)}"
        )
    return ". ".join(sentences)


def _margin(plan: Plan, best: Answer, others: list[Answer]) -> str:
    margin = max(plan.margin(best, each) for each in others)
    whose = "the profile's error" if margin > TOLERANCE else "how closely rates are found"
    return f"{100 * margin:.0f} %, {whose}"


def _load(plan: Plan) -> str:
    """What is compared: one replica's load, or its load per cost where replicas cost differently."""
    alike = len({each.case.profile for each in plan.choices}) == 1
    return "the rate of one replica" if alike else "load per cost"


def _refused(plan: Plan) -> str:
    parts = [f"{_name(plan, each)}: {each.refusal}" for each in plan.answers if each.refusal]
    return ". ".join(f"Not {part}" for part in parts)


def footnote(plan: Plan) -> str:
    """What the numbers stand on."""
    how = "no interval with one seed" if plan.seeds < 2 else "95 % interval"
    rule = f"A rate holds if every run is stable and each part is met over {_seeds(plan.seeds)} ({how})"
    found = f"Rates are found within {100 * TOLERANCE:.0f} %; fleets are simulated whole"
    return "\n".join([f"{rule}. {found}, behind {plan.question.router}.", *plan.notes])


def check_words(plan: Plan, each: Answer) -> list[str]:
    """What became of the answer under seeds that the search never saw, a line for each rate."""
    if each.checked is None:
        return []
    times = ("", f" (x {BEYOND:g})")
    return [
        f"{_name(plan, each)}, one replica at {number(probe.rate_per_s)}/s{factor}: {probe.outcome}; "
        f"{_trial(plan, probe)}"
        for probe, factor in zip(each.checked, times, strict=True)
    ]


def _trial(plan: Plan, probe: Probe) -> str:
    """Every part's mean, and what it takes of its limit with the bound of the interval."""
    if probe.reason:
        return f"unstable: {probe.reason}"
    rows = zip(plan.question.objective.parts, probe.mean, probe.half_width, strict=True)
    parts = [
        f"{part.says(mean)} ({100 * mean:.0f} ± {100 * half:.0f} % of its limit)" for part, mean, half in rows
    ]
    return f"{', '.join(parts)}, {_seeds(len(probe.used))}"


def _name(plan: Plan, each: Answer) -> str:
    """The policy, with its profile and drafter where there are several."""
    where = [each.case.profile] if len({a.case.profile for a in plan.answers}) > 1 else []
    if each.case.drafter and len({a.case.drafter for a in plan.answers if a.case.drafter}) > 1:
        where.append(each.case.drafter)
    return f"{each.label} on {' with '.join(where)}" if where else each.label


def _names(plan: Plan, answers: list[Answer]) -> str:
    return ", ".join(_name(plan, each) for each in answers)


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _replicas(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


# -- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """One column: its heading, and what it writes of an answer."""

    heading: str
    write: Callable[[Plan, Answer], str]


def _of_fleet(write: Callable[[Plan, Answer, Size], str]) -> Callable[[Plan, Answer], str]:
    """What is written of a fleet; a dash where there is none."""
    return lambda plan, each: write(plan, each, each.size) if each.size else "-"


def _money(value: float | None) -> str:
    return "-" if value is None else number(value)


def _held(memory: Memory, each: Answer) -> str:
    most = each.case.scenario.engine.max_num_seqs
    return f"{memory.requests}" if memory.requests < most else f">={most}"


def _memory(plan: Plan, each: Answer) -> str:
    return f"{_held(each.memory.with_drafter, each)} ({_held(each.memory.without, each)})"


def _binds(plan: Plan, each: Answer) -> str:
    if each.found.fails is None:
        return "out of reach" if each.refusal else "-"
    return binding(plan.question.objective, each.found.fails)


_COLUMNS: Final = (
    _Column("one replica\nreq/s", lambda plan, each: number(each.rate_per_s) if each.rate_per_s else "-"),
    _Column("\nreplicas", _of_fleet(lambda plan, each, fleet: str(fleet.replicas))),
    _Column("\nGPUs", _of_fleet(lambda plan, each, fleet: str(fleet.replicas * plan.gpus(each)))),
    _Column("\nheadroom", _of_fleet(lambda plan, each, fleet: f"{100 * fleet.headroom:.0f} %")),
    _Column("output\ntok/s", _of_fleet(lambda plan, each, fleet: number(fleet.at_peak.output_tokens_per_s))),
    _Column("cost per\nM tokens", lambda plan, each: _money(plan.cost(each))),
    _Column("kWh per\nM tokens", lambda plan, each: _money(plan.kwh(each))),
    _Column("requests in memory\n(without drafter)", _memory),
    _Column("\nbinds", _binds),
)


def _rows(plan: Plan) -> Iterator[list[str]]:
    """Headings, then a line for every answer; columns without any value are left out."""
    known = {column: any(column.write(plan, each) != "-" for each in plan.choices) for column in _COLUMNS}
    columns = [column for column in _COLUMNS if known[column] or not column.heading.endswith("M tokens")]
    yield ["\npolicy", *(column.heading for column in columns)]
    for each in plan.answers:
        mark = "★ " if each is plan.best else "= " if each in plan.even else "  "
        bound = " (bound)" if each.bound else ""
        yield [mark + _name(plan, each) + bound, *(column.write(plan, each) for column in columns)]


def render(plan: Plan) -> RenderableType:
    """Verdict, table, check and footnote for a terminal."""
    headings, *rows = _rows(plan)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    widest = min(_MAX_NAME, max(len(row[0]) for row in rows))
    table.add_column(headings[0], overflow="fold", min_width=widest, max_width=_MAX_NAME)
    for heading in headings[1:-1]:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(headings[-1], overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    checks = [line for each in plan.answers for line in check_words(plan, each)]
    tail = [Text("\n".join(["Checked with other seeds:", *checks, ""]))] if checks else []
    return Group(Text(verdict(plan) + "\n"), table, Text(""), *tail, Text(footnote(plan), style="dim"))


def markdown(plan: Plan) -> str:
    """The same as Markdown."""
    headings, *rows = ([cell.replace("\n", " ").strip() for cell in row] for row in _rows(plan))
    lines = [f"# Capacity plan: {escaped(plan.name)}", "", escaped(verdict(plan)), ""]
    lines += [_line(headings), _line(["---"] * len(headings)), *map(_line, rows), ""]
    checks = [f"- {escaped(line)}" for each in plan.answers for line in check_words(plan, each)]
    lines += ["Checked with other seeds:", "", *checks, ""] if checks else []
    return "\n".join([*lines, *map(escaped, footnote(plan).split("\n")), ""])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


# -- data ------------------------------------------------------------------------------------------


def data(plan: Plan) -> dict[str, Any]:
    """The plan as plain data in a stable order."""
    question = plan.question
    return {
        "schema": SCHEMA,
        "scenario": plan.name,
        "peak_per_s": question.peak_per_s,
        "objective": [part.text for part in question.objective.parts],
        "router": question.router,
        "seeds": plan.seeds,
        "verdict": verdict(plan),
        "best": None if plan.best is None else _name(plan, plan.best),
        "even": [_name(plan, each) for each in plan.even],
        "notes": list(plan.notes),
        "answers": [_answer_data(plan, each) for each in plan.answers],
    }


def _answer_data(plan: Plan, each: Answer) -> dict[str, Any]:
    fleet = each.size
    return {
        "profile": each.case.profile,
        "drafter": each.case.drafter,
        "policy": each.label,
        "bound": each.bound,
        "error": each.error,
        "refusal": each.refusal,
        "binding": binding(plan.question.objective, each.found.fails) if each.found.fails else None,
        "alone_used": list(each.alone.used),
        "one_replica": {"holds": _probe_data(each.found.holds), "fails": _probe_data(each.found.fails)},
        "gpus_per_replica": plan.gpus(each),
        "replicas": fleet.replicas if fleet else None,
        "headroom": fleet.headroom if fleet else None,
        "highest_per_s": fleet.highest_per_s if fleet else None,
        "at_peak": _probe_data(fleet.at_peak if fleet else None),
        "one_replica_less": _probe_data(fleet.smaller if fleet else None),
        "cost_per_million_tokens": plan.cost(each),
        "kwh_per_million_tokens": plan.kwh(each),
        "memory": {
            name: {"kv_blocks": memory.blocks, "requests": memory.requests}
            for name, memory in (
                ("with_drafter", each.memory.with_drafter),
                ("without_drafter", each.memory.without),
            )
        },
        "checked": None if each.checked is None else [_probe_data(probe) for probe in each.checked],
    }


def _probe_data(probe: Probe | None) -> dict[str, Any] | None:
    if probe is None:
        return None
    return {
        "rate_per_s": probe.rate_per_s,
        "replicas": probe.replicas,
        "outcome": probe.outcome,
        "used": list(probe.mean),
        "half_width": list(probe.half_width),
        "unstable": probe.reason,
        "seeds": len(probe.used),
        "output_tokens_per_s": probe.output_tokens_per_s,
    }
