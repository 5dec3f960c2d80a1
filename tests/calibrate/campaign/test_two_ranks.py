"""``torchrun``: two real processes calibrate one model on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calibrate import session
from calibrate.fit.report import Machine
from calibrate.presets import PRESETS
from calibrate.profile import load_profile
from calibrate.session import Options
from tests.calibrate.conftest import ROOT

RANK = """
import os, sys
from pathlib import Path
from calibrate import cli
from calibrate.timing import cpu

windows, collect = [], cpu.collect

def counted(*arguments):
    found = collect(*arguments)
    windows.append(len(found[0]))
    return found

cpu.collect = counted
try:
    cli.app(sys.argv[2:])
finally:
    Path(sys.argv[1], "windows." + os.environ["RANK"]).write_text(repr(windows))
"""


def test_two_processes_run_as_many_windows_end_and_write_one_profile(tmp_path: Path) -> None:
    """Whether its fit is good enough depends on the machine's quiet, so that is not asked here."""
    pytest.importorskip("torch", reason="calibrate needs torch (pip install 'leadline[calibrate]')")
    config, script, out = tmp_path / "pair.json", tmp_path / "rank.py", tmp_path / "out" / "two.json"
    config.write_text(json.dumps({**PRESETS["tiny"].config, "num_key_value_heads": 2}))
    script.write_text(RANK)
    arguments = ["--device", "cpu", "--model", str(config), "--drafter", "none", "--quick", "--budget", "20s"]
    command = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *command, *arguments, "--out", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    windows = [(tmp_path / f"windows.{rank}").read_text() for rank in range(2)]
    assert windows[0] == windows[1], done.stderr[-3000:]
    assert len(json.loads(windows[0])) > 6
    profiles = list(out.parent.glob("*.json"))
    assert len(profiles) == 1, done.stderr[-3000:]
    profile = load_profile(profiles[0])
    assert profile.device.count == 2
    assert "ranks: 2" in (profile.method.data if profile.method else "")
    assert profile.method is not None
    assert profile.method.clock == "wall"
    assert len(list(out.parent.glob("*.jsonl"))) == 1


def test_a_journal_is_resumed_with_the_same_number_of_ranks_only() -> None:
    one, two = (
        Options("x", PRESETS["tiny"], {}, "cpu", "float32", 1, quick=True, ranks=ranks).about(
            "cpu", Machine()
        )
        for ranks in (1, 2)
    )
    assert one["device"] == "cpu"
    assert two["device"] == "2 x cpu"


def test_ranks_share_layers_and_head_so_more_of_a_model_fits_on_each() -> None:
    """Llama-3.1-8B, 16 GB in bfloat16: beside a whole table, half of the rest needs 9 GB of 0.6 x 20."""
    preset = PRESETS["llama-3.1-8b"]
    spec = Options("x", preset, {}, "cuda", "bfloat16", 1).spec
    alone, shared = (session.layers_that_fit(spec, "bfloat16", 20e9, ranks) for ranks in (1, 2))
    assert alone is not None
    assert alone < preset.shape.layers
    assert shared is None
