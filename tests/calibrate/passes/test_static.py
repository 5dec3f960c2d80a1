"""What a CUDA graph demands, checked without CUDA: no pass asks the host about data."""

from __future__ import annotations

from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="passes need torch (pip install 'leadline[calibrate]')")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from calibrate.cells import Cell  # noqa: E402
from calibrate.passes import BenchSpec, Sampling, build_bench, experts  # noqa: E402
from calibrate.profile import DrafterKind  # noqa: E402
from calibrate.shapes import Shape  # noqa: E402
from tests.calibrate.passes import shapes  # noqa: E402

FORBIDDEN = {"_local_scalar_dense", "item", "nonzero", "masked_select", "unique2", "_unique2"}
"""Operators whose result's shape, or the host's next step, depends on data."""


class Recorder(TorchDispatchMode):  # type: ignore[misc, no-untyped-call, unused-ignore]
    """Notes every operator's name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.__name__.split(".")[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("sampling", ["greedy", "T=1"])
@pytest.mark.parametrize("drafter", ["eagle", "mtp", "block", "model"])
@pytest.mark.parametrize("target", [shapes.DENSE, shapes.MIXTURE, shapes.HYBRID], ids=lambda s: s.name)
def test_no_pass_of_a_round_depends_on_data_for_its_shape(
    target: Shape, drafter: str, sampling: str, spec: BenchSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "Looped", experts.Grouped)
    drafters: dict[str, tuple[DrafterKind, Shape]] = {drafter: spec.drafters[drafter]}
    made = build_bench(BenchSpec(target, drafters, 8, 64, sampling=cast(Sampling, sampling)))
    asked = {"pass": "round", "sequences": 3, "width": 4, "context": 9, "drafter": drafter}
    passes = made.prepare_round(Cell.model_validate(asked))
    for name, run in passes:
        with Recorder() as recorder:
            run()
        assert len(recorder.names) > 5, "the recorder saw the pass"
        assert not recorder.names & FORBIDDEN, name


def test_the_recorder_sees_a_question_to_the_host() -> None:
    with Recorder() as recorder:
        torch.ones(3).sum().item()
    assert recorder.names & FORBIDDEN
