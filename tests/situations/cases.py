"""Situations that users reported: what they saw, what the simulator says, and whether that holds.

Every ``Check`` is one sentence of a case or of its ablation with its verdict; ``docs/situations.md``
prints them and ``test_situations.py`` holds them. Reported numbers are the posters', from the source of
each case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.situations.case import Ablation, Case, Gap
from tests.situations.causes import a02, a03, a04, a05, a06, a07
from tests.situations.causes_choices import a13, a15
from tests.situations.causes_load import a08, a09, a11, a12
from tests.situations.choices import u13, u15
from tests.situations.crossovers import u01, u02
from tests.situations.dynamics import u03, u11
from tests.situations.passes import u05, u07
from tests.situations.prompts import u08, u09
from tests.situations.streams import u04, u10, u12, u14
from tests.situations.trees import u06

CASES: Final[dict[str, Callable[[], Case]]] = {
    "U01": u01,
    "U02": u02,
    "U03": u03,
    "U04": u04,
    "U05": u05,
    "U06": u06,
    "U07": u07,
    "U08": u08,
    "U09": u09,
    "U10": u10,
    "U11": u11,
    "U12": u12,
    "U13": u13,
    "U14": u14,
    "U15": u15,
}

ABLATIONS: Final[dict[str, Callable[[], Ablation]]] = {
    "U02": a02,
    "U03": a03,
    "U04": a04,
    "U05": a05,
    "U06": a06,
    "U07": a07,
    "U08": a08,
    "U09": a09,
    "U11": a11,
    "U12": a12,
    "U13": a13,
    "U15": a15,
}
"""What makes each effect, shown by taking it out."""

GAPS: Final[tuple[Gap, ...]] = ()
"""Situations that are not simulated, each with what it lacks."""
