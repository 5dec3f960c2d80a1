from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.compose.tables import Folders

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def folders() -> Folders:
    """The measured tables; a test that needs them is skipped where they are absent."""
    found = Folders(SHARED / "data" / "aiconfigurator_perf", SHARED / "groundtruth", SHARED / "data")
    if not found.tables.is_dir():
        pytest.skip("the kernel tables are not at ../shared/data/aiconfigurator_perf")
    return found


@pytest.fixture(scope="session")
def shipped() -> Path:
    return ROOT / "scenarios" / "profiles"
