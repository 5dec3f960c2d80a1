from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from calibrate.compose.tables import Folders

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


def _package() -> Path | None:
    """``systems/data`` of aiconfigurator-core, unpacked (``LEADLINE_AICONFIGURATOR``) or installed."""
    if named := os.environ.get("LEADLINE_AICONFIGURATOR"):
        return Path(named)
    spec = find_spec("aiconfigurator_core")
    places = [] if spec is None else spec.submodule_search_locations or []
    return next((Path(place) / "systems" / "data" for place in places), None)


def _bundles() -> Path | None:
    """``profiler/perf`` of LLMServingSim (``LEADLINE_LLMSERVINGSIM``)."""
    named = os.environ.get("LEADLINE_LLMSERVINGSIM")
    return Path(named) if named else None


@pytest.fixture(scope="session")
def folders() -> Folders:
    """The measured tables; a test that needs them is skipped where they are absent."""
    groundtruth, configs = SHARED / "groundtruth", SHARED / "data"
    found = Folders(configs / "aiconfigurator_perf", groundtruth, configs, _package(), _bundles())
    if not found.tables.is_dir():
        pytest.skip("the kernel tables are not at ../shared/data/aiconfigurator_perf")
    return found


@pytest.fixture(scope="session")
def packaged(folders: Folders) -> Folders:
    """The tables with aiconfigurator's whole package: collectives, windows, latent attention."""
    if folders.package is None:
        pytest.skip("aiconfigurator-core is neither installed nor at LEADLINE_AICONFIGURATOR")
    return folders


@pytest.fixture(scope="session")
def shipped() -> Path:
    return ROOT / "scenarios" / "profiles"
