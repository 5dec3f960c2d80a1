"""The report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from sim.errors import InputError
from sim.report.model import Report
from sim.report.vega import EXTRA

if TYPE_CHECKING:
    from sim.map.model import Map

_SYMBOLS: Final = {
    "circle": "M8 4a4 4 0 1 0 .01 0z",
    "square": "M4.5 4.5h7v7h-7z",
    "triangle-up": "M8 3.5l4.5 8h-9z",
    "diamond": "M8 3l4 5-4 5-4-5z",
    "cross": "M6.5 4h3v2.5H12v3H9.5V12h-3V9.5H4v-3h2.5z",
}
"""The shapes of Vega's points, 16 x 16, for the list of policies."""


def html(report: Report, map: Map | None = None) -> str:  # noqa: A002
    """The page. ``map`` is a crossover map, shown as an explorer.

    Everything that a scenario says is escaped. Raises ``InputError`` without the extra ``report``.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise InputError(EXTRA) from None
    environment = Environment(
        loader=PackageLoader("sim.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        report=report,
        symbols=_SYMBOLS,
        css=Markup(_file("report.css")),
        script=Markup(_file("report.js")),
        library=Markup(_library()),
        specs=Markup(_specs(report)),
        explorer=None if map is None else Markup(_explorer(map)),
    )


def _specs(report: Report) -> str:
    """All charts as JSON that no text in it can close: ``<`` is written as an escape."""
    found: dict[str, Any] = {
        chart.key: {
            "spec": _without_legends(chart.spec),
            "panels": chart.panels,
            "gutter": chart.gutter,
            "margin": chart.margin,
        }
        for chart in report.charts
    }
    text = json.dumps(found, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _without_legends(node: Any) -> Any:
    """The same specification without legends of policies: the page has one list for all charts."""
    if isinstance(node, list):
        return [_without_legends(each) for each in node]
    if not isinstance(node, dict):
        return node
    muted = {"legend": None} if node.get("field") == "policy" and "scale" in node else {}
    return {k: v if k in ("data", "datasets") else _without_legends(v) for k, v in node.items()} | muted


def _explorer(map_: Map) -> str:
    from sim.map.explorer import fragment

    return fragment(map_)


def _file(name: str) -> str:
    return files("sim.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; it holds no closing tag."""
    try:
        import vl_convert
    except ImportError:
        raise InputError(EXTRA) from None
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub omits the default
    return str(bundle).replace("</script", "<\\/script")
