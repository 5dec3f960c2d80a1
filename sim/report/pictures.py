"""Every chart of a report as a PNG."""

from __future__ import annotations

from typing import Any, Final

from sim.errors import InputError
from sim.report.model import Report
from sim.report.vega import EXTRA

SCALE: Final = 2.0


def png(report: Report) -> dict[str, bytes]:
    """PNG by chart, for slides: title on top, legend beside, on white."""
    try:
        import vl_convert
    except ImportError:
        raise InputError(EXTRA) from None
    found = {}
    for chart in report.charts:
        title = {"text": chart.title, "anchor": "start", "fontSize": 14, "offset": 12}
        spec: dict[str, Any] = {**chart.spec, "title": title, "background": "white", "padding": 12}
        found[chart.key] = bytes(vl_convert.vegalite_to_png(spec, scale=SCALE))
    return found
