"""A sweep on Ray is the sweep of one process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import sim.api
from sim.errors import InputError
from tests.sweep.support import SMALL, contents
from tests.sweep.test_sweep import own_policy

ray = pytest.importorskip("ray", reason="needs Ray (extra: cluster)")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, in its threads and at its end


@pytest.fixture(scope="module", autouse=True)
def workers() -> Iterator[None]:
    """Ray with two local workers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


def test_two_workers_change_no_byte(tmp_path: Path) -> None:
    sim.api.run(SMALL, out=tmp_path / "here")
    sim.api.run(SMALL, out=tmp_path / "there", executor="ray")
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_a_worker_killed_in_the_middle_is_replaced(tmp_path: Path) -> None:
    own_policy(
        tmp_path, "if not flag.exists():\n            flag.touch()\n            os.kill(os.getpid(), 9)"
    )
    sim.api.run(tmp_path / "own.yaml", out=tmp_path / "there", executor="ray")
    assert (tmp_path / "flag").exists()
    sim.api.run(tmp_path / "own.yaml", out=tmp_path / "here")
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_an_error_of_the_users_stays_one(tmp_path: Path) -> None:
    own_policy(tmp_path, "return -1")
    with pytest.raises(InputError, match="depth -1"):
        sim.api.run(tmp_path / "own.yaml", executor="ray")
