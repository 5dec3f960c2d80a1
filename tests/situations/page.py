"""Writes ``docs/situations.md``: what users reported beside what the simulator says.

``python -m tests.situations.page`` from the repository's root.
"""

from __future__ import annotations

import textwrap

from calibrate.profile import write_atomically
from tests.situations.case import Ablation, Case, Check, Gap, verdict
from tests.situations.cases import ABLATIONS, CASES, GAPS
from tests.situations.replay import ROOT

PAGE = ROOT / "docs" / "situations.md"

_TITLE = "# Situations that users reported"
_INTRO = """Each of these is a public report with numbers, replayed by a scenario in `scenarios/situations`.
    Profiles whose name ends in the case (`...-u01`) are fitted to the report's own step times by
    `python -m calibrate.from_steps`; each holds the command that made it. What was fitted and what was
    predicted is said in every case. Reported numbers are the posters', not measured again. What makes a
    reported effect is shown by taking it out: the same scenario without one switch of the engine or one
    term of the profile."""
_RUN = """Run one: `leadline run scenarios/situations/u10-depth.yaml`. This page is written by
    `python -m tests.situations.page`."""


def page() -> str:
    """The whole page."""
    cases = [make() for make in CASES.values()]
    causes = {name: make() for name, make in ABLATIONS.items()}
    lines = [(case.id, case.title, verdict(_checks(case, causes.get(case.id)))) for case in cases]
    lines += [(gap.id, gap.title, gap.verdict) for gap in GAPS]
    overview = _table((("case", "question", "verdict"), *sorted(lines)))
    head = f"{_TITLE}\n\n{_wrapped(_INTRO)}\n\n{_wrapped(_RUN)}\n\n"
    sections = "".join(_section(case) + _cause(causes.get(case.id)) for case in cases)
    return head + overview + sections + _not_simulated()


def _checks(case: Case, cause: Ablation | None) -> tuple[Check, ...]:
    return case.checks + (cause.checks if cause else ())


def _cause(cause: Ablation | None) -> str:
    """What makes the effect, below the case."""
    if cause is None:
        return ""
    return (
        f"\n{_wrapped(f'**What makes it.** {cause.says}')}\n\n{_table(cause.table)}\n{_listed(cause.checks)}"
    )


def _listed(checks: tuple[Check, ...]) -> str:
    return "".join(f"- {'yes' if check.holds else '**no**'}: {check.says}\n" for check in checks)


def _not_simulated() -> str:
    """What is missing for the rest, if there is any."""
    if not GAPS:
        return ""
    return "\n## Not simulated\n" + "".join(f"\n{_wrapped(_gap(gap))}\n" for gap in GAPS)


def _gap(gap: Gap) -> str:
    return f"**{gap.id}: {gap.title}** {gap.source}. Reported: {gap.reported}. Missing: {gap.missing}"


def _section(case: Case) -> str:
    files = ", ".join(f"`{name}.yaml`" for name in case.scenarios)
    intro = f"{_wrapped(f'{case.source}. Scenario: {files}.')}\n\n{_wrapped(case.inputs)}"
    body = f"{intro}\n\n{_table(case.table)}\n{_listed(case.checks)}\n{_wrapped(case.reading)}"
    return f"\n## {case.id}: {case.title}\n\n{body}\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def _table(rows: tuple[tuple[str, ...], ...]) -> str:
    rule = ("---",) * len(rows[0])
    return "".join(f"| {' | '.join(row)} |\n" for row in (rows[0], rule, *rows[1:]))


if __name__ == "__main__":
    write_atomically(PAGE, page())
