"""``python -m sim`` is the ``leadline`` command."""

from __future__ import annotations

from sim.cli import main

main()
