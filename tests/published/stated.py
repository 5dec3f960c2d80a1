"""Case 8: whether what a shipped profile states as its error covers that of the surfaces it is made from.

A stated error is a share of a step (``calibrate.profile.StatedError``); it covers a surface whose mean
error is no larger, as if the whole step were that surface. Single cells err by more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibrate.compose import checks
from calibrate.profile import load_profile
from sim.scenario.catalogue import locate
from tests.published import surfaces
from tests.published.surfaces import Surface

HEADS: Final = "decode attention, 32/8 heads"
LINEAR: Final = "Llama-3.1-8B linear layers"
SHIPPED: Final = {
    checks.FIT_8B: ("llama-3.1-8b-h100",),
    checks.STUDY_8B: ("llama-3.1-8b-a100",),
    f"{LINEAR}, H100, AIC": ("llama-3.1-8b-h100",),
    f"{LINEAR}, B200, AIC": ("llama-3.1-8b-b200",),
    f"{LINEAR}, A100, AIC": ("llama-3.1-8b-a100",),
    "Llama-3-8B linear layers, A100, Vidur": ("llama-3.1-8b-a100",),
    "Qwen3-30B-A3B experts, H100, AIC": ("qwen3-30b-a3b-h100",),
    f"{HEADS}, H100, AIC": ("llama-3.1-8b-h100", "qwen3-8b-h100", "llama-3.1-8b-a100"),
    f"{HEADS}, B200, AIC": ("llama-3.1-8b-b200",),
}
"""Profiles by the surface they are made from; no whole profile is made from the others."""


@dataclass(frozen=True)
class Stated:
    """A predicted surface beside the error of one profile that is made from it, None where none is."""

    surface: Surface
    profile: str
    stated: float | None

    @property
    def covers(self) -> bool:
        """Whether the mean error of the surface is within the stated one."""
        return self.stated is not None and self.surface.mean <= self.stated


def stated(groundtruth: Path) -> Iterable[Stated]:
    """Every surface of which something was predicted, profile by profile."""
    for surface in (*surfaces.whole(groundtruth), *surfaces.left_out(groundtruth)):
        if surface.kind in (surfaces.SAME, surfaces.ONE_NUMBER):
            continue
        for name in SHIPPED.get(surface.what, ("",)):
            yield Stated(surface, name, _relative(name) if name else None)


def _relative(name: str) -> float:
    error = load_profile(locate("profile", name, Path())).error
    assert error is not None
    return error.relative


# -- the page --------------------------------------------------------------------------------------

HEAD: Final = "surface | mean error, predicted | profile made from it | states | covered"


def rows(groundtruth: Path) -> Iterable[list[str]]:
    """One line for each surface and profile."""
    for each in stated(groundtruth):
        mean = f"{100 * each.surface.mean:.1f} %"
        if each.stated is None:
            yield [each.surface.what, mean, "none", "", ""]
            continue
        covered = "yes" if each.covers else "**no**"
        yield [each.surface.what, mean, f"`{each.profile}`", f"{100 * each.stated:.0f} %", covered]
