"""What a command costs as a whole process, by the operating system's own account."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Wall and CPU seconds, and the memory in MB of the largest process; CPU counts children too."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def run_process(command: Sequence[str], folder: Path, more: Mapping[str, str], log: Path) -> Cost:
    """Run a command to its end in ``folder``, its output into ``log``; ``SystemExit`` if it fails."""
    with log.open("wb") as output:
        start = time.perf_counter()
        child = subprocess.Popen(
            command, cwd=folder, env=os.environ | dict(more), stdout=output, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(f"{' '.join(command)}\nended with {child.returncode}:\n{last}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
