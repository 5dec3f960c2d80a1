"""Rules of vLLM's scheduler that can be taken away, to see how much each of them decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sim.engine.behaviour import Behaviour
from sim.engine.simulate import Setup

Change = Callable[[Setup], Setup]


def _without(**values: bool) -> Change:
    assert set(values) <= set(Behaviour.model_fields)
    return lambda setup: replace(setup, engine=setup.engine.model_copy(update=values))


RULES: Final[dict[str, Change]] = {
    "null_block": _without(null_block=False),
    "lookahead": _without(lookahead=False),
    "draft_slots": _without(draft_slots=False),
    "pad_new_decodes": _without(pad_new_decodes=False),
    "dummy_drafts": _without(dummy_drafts=False),
    "draft_at_depth_zero": _without(draft_at_depth_zero=False),
    "draft_past_end": _without(draft_past_end=False),
    "prefix_caching": _without(prefix_caching=False),
    "drop_last_hit": _without(drop_last_hit=False),
    "equal_answers": lambda setup: replace(setup, engine=setup.engine.model_copy(update={"sampling": None})),
}
"""Name of a rule, and the same setup without it."""
