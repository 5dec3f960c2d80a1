"""Speed of leadline beside other simulators, on the same work in one run: ``python -m tests.bench.peers``.

Whoever is not installed is left out, and the page says why. ``docs/speed.md`` says how each is installed.
"""
