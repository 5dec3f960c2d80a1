"""What a suspect has to do with a difference between measured and simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["points here", "looks right", "cannot tell"]


@dataclass(frozen=True)
class Finding:
    """One suspect's verdict, in words and with the numbers behind it."""

    suspect: str
    verdict: Verdict
    text: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """All findings; ``culprits`` are the suspects that the difference points to."""

    findings: tuple[Finding, ...]

    @property
    def culprits(self) -> tuple[str, ...]:
        """Names of those that are pointed to."""
        return tuple(each.suspect for each in self.findings if each.verdict == "points here")

    @property
    def sentence(self) -> str:
        """The whole in one line."""
        undecided = [each.suspect for each in self.findings if each.verdict == "cannot tell"]
        if self.culprits:
            return f"The difference points to {' and '.join(self.culprits)}."
        if undecided:
            return f"Nothing can be named; undecided: {', '.join(undecided)}."
        return "Nothing points anywhere: every difference is within chance and tolerance."
