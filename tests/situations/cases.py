"""Situations that users reported: what they saw, what the simulator says, and whether that holds.

Every ``Check`` is one sentence of a case with its verdict; ``docs/situations.md`` prints them and
``test_situations.py`` holds them. Reported numbers are the posters', from the source of each case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.situations.case import Case, Gap
from tests.situations.choices import u13, u15
from tests.situations.crossovers import u01, u02
from tests.situations.dynamics import u03, u11
from tests.situations.passes import u05, u07
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
    "U10": u10,
    "U11": u11,
    "U12": u12,
    "U13": u13,
    "U14": u14,
    "U15": u15,
}

GAPS: Final = (
    Gap(
        "U08",
        "Why does decoding stop while prompts keep coming, with the KV cache half empty?",
        "sglang issue 32549: production chat, 360 requests/min, prompts of 3,000 to 6,000 tokens",
        "2,863 prefill batches against 36 to 38 decode batches in 15 minutes, one decode batch in 24 s",
        """Prefill-first scheduling. Both engine presets grant running sequences their tokens before any
        prompt, in one step, as vLLM does; they cannot starve decoding, whatever the load.""",
    ),
    Gap(
        "U09",
        "What does computing the last cached block anew cost, where a block is 1,648 tokens?",
        "vLLM issue 53670: Qwen3.8-27B on two RTX 5090, MTP k=2, 4 sessions, shared prefix of 3,100 tokens",
        "hit rate 23.8 % and 149.6 tok/s with the drop, 64.7 % and 241.9 tok/s without",
        """A prefix cache for models with a recurrent state: the simulator refuses one. The drop itself is
        modelled (`drop_last_hit`), and so is a block of any size. The sessions' prompts beyond the shared
        prefix, on which the hit rate rests, are not in the part of the thread that was read: one block less
        is 41 % of a prompt, so prompts of about 4,000 tokens.""",
    ),
)
"""Situations that are not simulated, each with what it lacks."""
