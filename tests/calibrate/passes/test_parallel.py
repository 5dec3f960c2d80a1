"""Two processes share one model under the variables that ``torchrun`` sets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="passes need torch (pip install 'leadline[calibrate]')")

RANK = """
import torch
from calibrate.cells import Cell
from calibrate.passes import BenchSpec, build_bench
from tests.calibrate.passes import shapes
torch.set_num_threads(1)
bench = build_bench(BenchSpec(shapes.HYBRID, {"eagle": ("eagle", shapes.EAGLE)}, max_context=64))
at = {"sequences": 2, "width": 3, "context": 9}
bench.prepare(Cell.model_validate({"pass": "round", "drafter": "eagle", **at}))()
bench.prepare(Cell.model_validate({"pass": "collective", **at}))()
round_ = bench._open(Cell.model_validate({"pass": "verify", **at}))
with torch.inference_mode():
    round_.verify()()
assert round_.desk.logits.shape == (6, 98) and round_.desk.logits.isfinite().all()
print(bench.about["ranks"], float(round_.desk.logits.double().sum()))
"""


def test_two_ranks_run_a_round_and_agree_on_the_logits() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RANK],
            env={**common, "RANK": str(rank), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outs[0][1][-2000:] + outs[1][1][-2000:]
    assert outs[0][0] == outs[1][0]
    assert outs[0][0].startswith("2 ")
