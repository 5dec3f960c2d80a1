"""The measured profile that ships is what its own cells give."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.fit.check import check
from calibrate.fit.passes import fit_pass
from calibrate.profile import Profile, load_profile

FILE = Path(__file__).resolve().parents[3] / "scenarios" / "profiles" / "cpu-small-88m.json"


@pytest.fixture(scope="module")
def profile() -> Profile:
    """The shipped file, its seal verified on loading."""
    return load_profile(FILE)


def test_it_is_marked_measured_with_its_raw_samples(profile: Profile) -> None:
    """Device, software, date, method and every sample are in the file."""
    assert profile.kind == "measured"
    assert profile.seal
    assert profile.machine is not None
    assert profile.method is not None
    assert min(len(measured.samples_us) for measured in profile.cells) >= 1
    assert all(term.mark == "measured" for term in profile.target.verify)


def test_its_terms_come_out_of_its_cells_again(profile: Profile) -> None:
    """Fitting the stored cells gives the stored verify terms, byte for byte."""
    forward = [m for m in profile.cells if m.cell.pass_ in ("verify", "prefill", "mixed")]
    again = fit_pass(forward, "verify")
    assert [t.model_dump(exclude={"name", "source"}) for t in again.terms_fit] == [
        t.model_dump(exclude={"name", "source"}) for t in profile.target.verify
    ]


def test_held_out_cells_are_predicted_within_ten_percent(profile: Profile) -> None:
    """Mean leave-one-out error of every pass of target and drafter; whole rounds within five percent."""
    for name in ("verify", "accept", "draft.first", "draft.next", "eagle.first", "eagle.next"):
        held_out = profile.fit[name].leave_one_out
        assert held_out is not None
        assert held_out.mean < 10
    round_error = profile.fit["round"].in_sample
    assert round_error is not None
    assert round_error.mean < 5


def test_nothing_refuses_it(profile: Profile) -> None:
    assert check(profile) == ()
