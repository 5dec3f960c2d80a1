"""Error rates of the stability rule on queues of known load: ``python -m tests.results.error_rates``."""

from __future__ import annotations

from tests.results.test_stability import flagged

LOADS = (0.7, 0.9, 0.95, 1.05, 1.1, 1.2)


def table() -> list[str]:
    """Rows of docs/metrics.md: share called unstable in %, M/M/1 / M/D/1, 100 runs each."""
    lines = ["| requests | " + " | ".join(f"rho = {rho}" for rho in LOADS) + " |", "|---" * 7 + "|"]
    for count in (500, 1000, 2000, 5000):
        cells = [" / ".join(f"{flagged(law, rho, count, 100):.0%}" for law in "MD") for rho in LOADS]
        lines.append(f"| {count:,} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
