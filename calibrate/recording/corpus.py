"""Text that every Python installation has: its own library's source, and the topics of ``help()``."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

LEFT_OUT: Final = {"site-packages", "test", "tests", "idle_test", "encodings", "pydoc_data", "__pycache__"}
"""Folders whose files are absent from some installations, or are tables instead of text."""

PROSE_SHARE: Final = 0.25
"""Share of windows from the help topics, which are 4 % of the bytes: requests should differ in kind."""

HELD_OUT: Final = 5
"""One document of so many is kept from training, for prompts."""


@dataclass(frozen=True)
class Corpus:
    """Two kinds of text, ``code`` and ``prose``, each as one run of bytes per split."""

    train: dict[str, Tensor]
    held_out: dict[str, Tensor]
    sha256: str

    def training_windows(self, count: int, tokens: int, luck: torch.Generator) -> Tensor:
        """Random windows of the training text, shape (count, tokens)."""
        return _windows(self.train, count, tokens, luck)[0]

    def prompts(self, count: int, tokens: int, luck: torch.Generator) -> tuple[Tensor, list[str]]:
        """Random windows of the held-out text, shape (count, tokens), and the kind of each."""
        return _windows(self.held_out, count, tokens, luck)


def standard_library() -> Corpus:
    """Source files and help topics of the running Python; documents are split by a hash of their name."""
    documents = {"code": _sources(), "prose": _topics()}
    digest = hashlib.sha256()
    for kind in documents.values():
        for name, text in sorted(kind.items()):
            digest.update(name.encode() + b"\0" + text + b"\0")
    return Corpus(
        {kind: _joined(texts, held_out=False) for kind, texts in documents.items()},
        {kind: _joined(texts, held_out=True) for kind, texts in documents.items()},
        digest.hexdigest(),
    )


def _sources() -> dict[str, bytes]:
    root = Path(sysconfig.get_path("stdlib"))
    paths = (path.relative_to(root) for path in root.rglob("*.py"))
    return {path.as_posix(): (root / path).read_bytes() for path in paths if not LEFT_OUT & set(path.parts)}


def _topics() -> dict[str, bytes]:
    from pydoc_data.topics import topics

    return {name: text.encode() for name, text in topics.items()}


def _joined(texts: dict[str, bytes], held_out: bool) -> Tensor:
    """The documents of one split behind one another, in the order of their names, shape (bytes,)."""
    chosen = [text for name, text in sorted(texts.items()) if _is_held_out(name) is held_out]
    return torch.frombuffer(bytearray(b"\n".join(chosen)), dtype=torch.uint8)


def _is_held_out(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % HELD_OUT == 0


def _windows(
    texts: dict[str, Tensor], count: int, tokens: int, luck: torch.Generator
) -> tuple[Tensor, list[str]]:
    prose = torch.rand(count, generator=luck) < PROSE_SHARE
    starts = torch.rand(count, generator=luck, dtype=torch.float64)
    kinds = ["prose" if each else "code" for each in prose.tolist()]
    return torch.stack(
        [_window(texts[k], s, tokens) for k, s in zip(kinds, _floats(starts), strict=True)]
    ), kinds


def _window(text: Tensor, start: float, tokens: int) -> Tensor:
    """The window at a share ``start`` of the text, as whole numbers, shape (tokens,)."""
    first = int(start * (len(text) - tokens))
    return text[first : first + tokens].long()


def _floats(values: Tensor) -> Sequence[float]:
    listed: list[float] = values.tolist()
    return listed
