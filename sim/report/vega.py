"""What all charts share: policies drawn in their style, the controls of the page, text for numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from sim.errors import InputError
from sim.report.model import PolicyStyle, Row

PANEL_WIDTH: Final = 260
PANEL_HEIGHT: Final = 220
SHOWN: Final = "indexof(shown, datum.policy) >= 0"
SETTING: Final = "datum.setting == setting"
PACKAGES: Final = ("altair", "jinja2", "vl_convert")
EXTRA: Final = "the report needs the extra `report`: pip install 'leadline[report]'"


def altair() -> Any:
    """The library; raises ``InputError`` naming the extra that has it."""
    try:
        import altair
    except ImportError:
        raise InputError(EXTRA) from None
    return altair


def values(rows: Sequence[Row]) -> Any:
    """Rows as inline data."""
    return altair().Data(values=list(rows))


def colour(styles: Sequence[PolicyStyle]) -> Any:
    """Colour by policy."""
    return altair().Color("policy:N", title="policy", scale=_scale(styles, [s.colour for s in styles]))


def shape(styles: Sequence[PolicyStyle]) -> Any:
    """Shape of a point by policy."""
    return altair().Shape("policy:N", title="policy", scale=_scale(styles, [s.shape for s in styles]))


def dash(styles: Sequence[PolicyStyle]) -> Any:
    """Dash of a line by policy."""
    dashes = [list(s.dash) for s in styles]
    return altair().StrokeDash("policy:N", title="policy", scale=_scale(styles, dashes))


def finished(
    chart: Any, styles: Sequence[PolicyStyle], settings: Sequence[str], alt_text: str
) -> dict[str, Any]:
    """The specification with the page's two controls, ``shown`` policies and ``setting``."""
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("$schema", None)
    spec["params"] = [
        {"name": "shown", "value": [style.label for style in styles]},
        {"name": "setting", "value": settings[0] if settings else ""},
        *spec.get("params", []),
    ]
    spec["description"] = alt_text
    spec["background"] = None
    spec["config"] = {
        "view": {"stroke": None},
        "axis": {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal", "labelLimit": 180},
        "header": {"labelFontSize": 12, "labelFontWeight": "bold", "labelAnchor": "start"},
        "legend": {"labelFontSize": 11, "labelLimit": 220, "symbolLimit": 0},
    }
    return spec


def label_width(labels: Sequence[str]) -> int:
    """Pixels that the longest of some axis labels takes, as far as it is not cut off."""
    return min(190, 25 + round(6.3 * max(map(len, labels), default=0)))


def rounded(value: float) -> float | None:
    """Four significant digits, to keep the page small; ``None`` for what is not finite."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _scale(styles: Sequence[PolicyStyle], shown: list[Any]) -> Any:
    return altair().Scale(domain=[style.label for style in styles], range=shown)


def check_extra() -> None:
    """Raise ``InputError`` where a package of the extra is missing, before any work is done for a report."""
    if not all(map(find_spec, PACKAGES)):
        raise InputError(EXTRA)
