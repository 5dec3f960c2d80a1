"""``run:`` of a scenario: how often, what is measured, what is kept."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from sim.results.window import RequestsCut, TimeCut
from sim.units import Config

MetricKey = Literal["tpot", "ttft", "e2el", "output_tokens_per_s", "goodput"]

_METRIC_NAMES: Final[dict[MetricKey, str]] = {
    "tpot": "tpot_mean_ms",
    "ttft": "ttft_mean_ms",
    "e2el": "e2el_mean_ms",
    "output_tokens_per_s": "output_tokens_per_s",
    "goodput": "goodput_per_s",
}
_MOST_SEEDS = 1000
_PERCENT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*%\s*")
_SEEDS_HINT = "write how many (seeds: 3) or which (seeds: [1, 2, 3])"


def _seeds(value: object) -> tuple[int, ...]:
    """``3`` is seeds 0, 1, 2; a list is taken as it is."""
    listed = range(value) if isinstance(value, int) and _is_whole(value) else value
    if not isinstance(listed, range | list | tuple) or not all(_is_whole(seed) for seed in listed):
        raise ValueError(f"{value!r} names no seeds; {_SEEDS_HINT}")
    if not 0 < len(listed) <= _MOST_SEEDS:
        raise ValueError(f"{len(listed)} seeds cannot be run; take 1 to {_MOST_SEEDS}")
    if len(set(listed)) < len(listed):
        raise ValueError("a seed is listed twice, which would count one run as two; list each once")
    return tuple(listed)


def _percent(value: object) -> float:
    """``2%`` as 0.02; ``ValueError`` for anything that is no percentage between 0 and 100."""
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise ValueError(f"{value!r} is no precision; write a percentage, for example 2%")
    return share


Precision = Annotated[
    float,
    BeforeValidator(_percent),
    WithJsonSchema({"type": "string", "pattern": _PERCENT.pattern, "examples": ["2%"]}),
]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


Seeds = Annotated[
    tuple[int, ...],
    BeforeValidator(_seeds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": _MOST_SEEDS},
                {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0},
                    "minItems": 1,
                    "uniqueItems": True,
                },
            ],
            "examples": [3, [1, 2, 3]],
        }
    ),
]


def _warmup_form(value: Any) -> str | None:
    """Which form of warm-up was written; ``None`` is an error that names all of them."""
    if isinstance(value, str):
        return "name" if value in ("mser5", "none") else None
    if isinstance(value, RequestsCut | TimeCut):
        return "requests" if isinstance(value, RequestsCut) else "time"
    keys = set(value) if isinstance(value, dict) else set()
    return next((name for name in ("requests", "time") if name in keys), None)


WarmupChoice = Annotated[
    Annotated[Literal["mser5", "none"], Tag("name")]
    | Annotated[RequestsCut, Tag("requests")]
    | Annotated[TimeCut, Tag("time")],
    Discriminator(
        _warmup_form,
        custom_error_type="warmup_form",
        custom_error_message="does not cut a warm-up; write mser5, none, {requests: 100} or {time: 30s}",
    ),
]


class RunControl(Config):
    """How often each policy runs, and what is measured and kept."""

    seeds: Seeds = Field(default=(0, 1, 2), description="how many seeds, or a list of seeds")
    warmup: WarmupChoice = Field(default="mser5", description="what is cut from the start of a run")
    baseline: str | None = Field(
        default=None,
        description="label that the others are compared with; default: the first off, or the first",
    )
    max_depth: int | None = Field(
        default=None, ge=0, le=64, description="depth the engine is set up for; default: each policy's own"
    )
    metric: MetricKey = Field(default="tpot", description="what the best policy is chosen by")
    precision: Precision | None = Field(
        default=None,
        description="relative half width at which a cell takes no further seed; default: all seeds",
    )
    records: Literal["all", "summary"] = Field(
        default="all", description="keep every request and step, or the summary alone"
    )

    @property
    def metric_name(self) -> str:
        """The metric's name in ``sim.results.names``."""
        return _METRIC_NAMES[self.metric]
