"""The table of engine habits in docs/modelled.md, from the descriptions of the switches themselves.

``python -m tests.docs.modelled`` writes the page again; a test keeps it true.
"""

from __future__ import annotations

from pathlib import Path

from sim.engine.behaviour import Behaviour
from sim.engine.presets import PRESETS, VLLM_CAPTURE_SIZES, PresetName
from tests.docs.blocks import filled, table

SHOWN: tuple[PresetName, ...] = ("ideal", "vllm_v1")
"""The others stand in docs/engines.md."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "modelled.md"


def habits() -> str:
    """One line per switch: what it does and what each preset sets."""
    head = ("switch of `engine:`", "what the engine then does", *(f"`{name}`" for name in SHOWN))
    rows = [
        (f"`{name}`", str(field.description), *(_value(getattr(PRESETS[preset], name)) for preset in SHOWN))
        for name, field in Behaviour.model_fields.items()
    ]
    return table(head, rows)


def _value(value: object) -> str:
    if value == VLLM_CAPTURE_SIZES:
        return f"{VLLM_CAPTURE_SIZES[0]} to {VLLM_CAPTURE_SIZES[-1]}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value == () else str(value)


def page() -> str:
    """The page with its table made anew."""
    return filled(PAGE.read_text(encoding="utf-8"), {"habits": habits()})


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
