"""One colour, one shape and one dash for every policy, the same in every chart.

Colours are told apart with the common colour blindnesses and on a white as on a dark page (at least
3 : 1 against both, WCAG 2.2, 1.4.11); beyond six policies they come again with another shape and dash.
"""

from __future__ import annotations

from typing import Final

from sim.report.model import PolicyStyle
from sim.results.compare import Comparison

NEUTRAL: Final = "#7d828b"
COLOURS: Final = ("#2f7fd0", "#d55e00", "#00946b", "#b65fa8", "#8a7a00", "#7a6cd8")
SHAPES: Final = ("circle", "square", "triangle-up", "diamond")
DASHES: Final[tuple[tuple[int, ...], ...]] = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
_BOUND_DASH: Final = (4, 4)


def styles(comparison: Comparison) -> tuple[PolicyStyle, ...]:
    """A style for every policy: baseline and bounds are grey, the others take colours in table order."""
    found: list[PolicyStyle] = []
    bounds = {policy.label: policy.bound for cell in comparison.cells for policy in cell.policies}
    coloured = 0
    for label, bound in bounds.items():
        if bound:
            found.append(PolicyStyle(label, NEUTRAL, "cross", _BOUND_DASH, True))
        elif label == comparison.baseline:
            found.append(PolicyStyle(label, NEUTRAL, "circle", DASHES[0], False))
        else:
            lap, colour = divmod(coloured, len(COLOURS))
            form = lap % len(SHAPES)
            found.append(PolicyStyle(label, COLOURS[colour], SHAPES[form], DASHES[form], False))
            coloured += 1
    return tuple(found)
