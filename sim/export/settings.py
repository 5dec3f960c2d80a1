"""What an engine is asked to express, and what it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from calibrate.profile import Drafter
from sim.cost.step_cost import StepCost
from sim.policies.config import PolicyConfig
from sim.policies.per_batch_size import Row
from sim.policies.static import StaticConfig

Rows = tuple[Row, ...]
"""Depths by batch size: rows [first, last, k], ascending from 1 without gaps."""


@dataclass(frozen=True)
class Wish:
    """A policy to express, and what an engine may ask about it.

    ``family`` is the drafter's kind in the engines' terms (``families``), ``name`` what the scenario
    calls it. ``max_batch`` is ``max_num_seqs``. ``rows`` asks the policy for its depth at every batch
    size (slow, and only when called); ``cost`` gives the step costs that the policy sees.
    ``static`` is the depth of the best static policy at this load, if the comparison has one.
    """

    policy: PolicyConfig
    family: str
    name: str
    max_batch: int
    rows: Callable[[], Rows]
    cost: Callable[[], StepCost]
    static: int | None = None

    @property
    def model(self) -> str:
        """Placeholder for what only the user knows: where the drafter is."""
        return f"<PATH of {self.name}>"


@dataclass(frozen=True)
class Settings:
    """An engine's settings: flags or a file's text to paste, and files that these name.

    ``stands_for`` is the policy that the engine will really follow, if that is not the one wished for.
    """

    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stands_for: PolicyConfig | None = None


class Engine(Protocol):
    """One engine's way of saying things; a module of this package.

    ``NAME`` is for people; ``CHECKED`` says against which version its settings were checked.
    """

    NAME: str
    CHECKED: str

    def express(self, wish: Wish) -> Settings:
        """The settings nearest to the wish; raises ``InputError`` if the engine has nothing like it."""
        ...

    def off(self) -> Settings:
        """The settings without speculation."""
        ...


_PARALLEL: Final = ("dspark", "dflash", "medusa", "pard")


def family(drafter: Drafter, name: str) -> str:
    """``draft_model``, ``eagle``, ``eagle3``, ``mtp``, ``ngram``, ``suffix``, or a parallel drafter's.

    A profile knows what drafting costs, not whose it is, so EAGLE-3, suffix decoding and the parallel
    drafters are told by the name; a parallel one without a known name is taken for DFlash, as in the
    engine model.
    """
    known = f"{name} {drafter.work.name if drafter.work else ''}".lower()
    if drafter.kind == "eagle":
        return "eagle3" if "eagle3" in known or "eagle-3" in known else "eagle"
    if drafter.kind == "ngram":
        return "suffix" if "suffix" in known else "ngram"
    if drafter.kind == "parallel":
        return next((each for each in _PARALLEL if each in known), "dflash")
    return drafter.kind


def static(k: int) -> StaticConfig:
    """The static policy of that depth."""
    return StaticConfig(policy="static", k=k)


def deepest(rows: Rows) -> int:
    """The largest depth of a table."""
    return max(k for _, _, k in rows)


def shown(rows: Rows) -> str:
    """A table as text: ``1-16: 5, 17-64: 3``."""
    return ", ".join(f"{first}-{last}: {k}" if first < last else f"{first}: {k}" for first, last, k in rows)
