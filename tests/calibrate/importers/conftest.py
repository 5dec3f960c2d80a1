from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibrate.importers import About
from calibrate.importers.options import about_from

OPTIONS: dict[str, Any] = {
    "name": "imported",
    "device": "h100",
    "gpus": 1,
    "config": "llama-3.1-8b",
    "model": "",
    "parameters": 0.0,
    "bytes_each": 2.0,
    "kv_bytes": 0.0,
    "drafters": (),
    "draft_kind": "eagle",
    "select": (),
    "command": "leadline profile import",
}


@pytest.fixture(scope="session")
def about() -> Callable[..., About]:
    """What the user says, by the words of the command line."""
    return lambda **options: about_from(**{**OPTIONS, **options})


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """A file with a text in it."""

    def _write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return _write
