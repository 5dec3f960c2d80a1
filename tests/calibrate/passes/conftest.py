from __future__ import annotations

from collections.abc import Iterator

import pytest

from calibrate.passes import BenchSpec
from calibrate.profile import DrafterKind
from calibrate.shapes import Shape
from tests.calibrate.passes import shapes


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark of tests that need a CUDA device."""
    config.addinivalue_line("markers", "cuda: needs a CUDA device")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The machine's other cores belong to others."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def spec() -> BenchSpec:
    """A dense target with a drafter of every kind."""
    drafters: dict[str, tuple[DrafterKind, Shape]] = {
        "model": ("draft_model", shapes.DRAFT),
        "eagle": ("eagle", shapes.EAGLE),
        "mtp": ("mtp", shapes.MTP),
        "block": ("parallel", shapes.BLOCK),
        "ngram": ("ngram", shapes.DRAFT),
    }
    return BenchSpec(shapes.DENSE, drafters, max_sequences=8, max_context=64)
