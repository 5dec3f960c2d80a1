"""The comparison with vLLM on the CPU clock: pack recordings, fit the profile, write the page.

python -m tests.referee.cpu_clock [--recordings ../shared/vllm_cpu] --out docs/referee-cpu.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from calibrate.profile import load_profile, save_profile, write_atomically
from tests.referee.cpu_clock.campaign.page import own_section
from tests.referee.cpu_clock.compare import compare_closed, compare_open
from tests.referee.cpu_clock.costs import PROFILE, calibrated
from tests.referee.cpu_clock.noise import pairs, step_noise
from tests.referee.cpu_clock.page import page
from tests.referee.cpu_clock.recordings import FOLDER, load, pack


def main() -> None:
    """With ``--recordings``, replace our own data and profile first; then simulate and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.referee.cpu_clock", description=__doc__)
    parser.add_argument("--recordings", type=Path, help="folder of the original recordings")
    parser.add_argument("--out", type=Path, required=True, help="page to write")
    options = parser.parse_args()
    if options.recordings:
        pack(options.recordings, FOLDER)
        save_profile(calibrated(load()), PROFILE)
    recorded, profile = load(), load_profile(PROFILE)
    runs = compare_open(recorded, profile, step_noise(pairs(recorded)))
    closed = compare_closed(recorded, profile)
    write_atomically(options.out, page(recorded, profile, runs, closed, own_section()))


if __name__ == "__main__":
    main()
