"""One small calibration on the real CPU: the same code as on a GPU, with another timer."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibrate import cli, session
from calibrate.journal import Finished, Journal
from calibrate.presets import PRESETS
from calibrate.session import Options

torch = pytest.importorskip("torch")


def test_a_real_campaign_measures_every_pass_and_the_round_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    """Whether its fit is good enough depends on the machine's quiet, so that is not asked here."""
    out = tmp_path / "tiny.json"
    arguments = ["--model", "tiny", "--device", "cpu", "--quick", "--budget", "60s", "--drafter", "draft"]
    result = CliRunner().invoke(cli.app, [*arguments, "--out", str(out)])
    assert result.exit_code in (0, cli.REFUSED), result.output
    options = Options(
        "tiny", PRESETS["tiny"], {"draft": PRESETS["tiny"].drafters["draft"]}, "cpu", "float32", 1, quick=True
    )
    parts = session.build_parts(options)
    journal = Journal(session.journal_path(out), options.about(parts.device.name, parts.machine))
    journal.open(resume=True)
    rounds = [each for each in journal.finished if each.cell.pass_ == "round" and each.measured]
    assert {m.cell.pass_ for each in rounds for m in each.measured} == {
        "draft_first", "draft_next", "verify", "accept", "round", "host"
    }  # fmt: skip
    for each in rounds:
        _adds_up(each)


def _adds_up(finished: Finished) -> None:
    """In every window, passes (as often as they occur) and host make up the whole."""
    us = {m.cell.pass_: m.samples_us for m in finished.measured}
    times = {"round": 0, "draft_next": finished.cell.width - 2}
    for window, whole in enumerate(us["round"]):
        parts = sum(times.get(name, 1) * samples[window] for name, samples in us.items())
        assert parts == pytest.approx(whole, rel=1e-3)
