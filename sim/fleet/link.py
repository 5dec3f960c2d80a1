"""The links over which prefill replicas send KV."""

from __future__ import annotations

from collections.abc import Callable

from sim.units import NS_PER_S


class Link:
    """One link per sending replica: transfers queue on it, in order, at full bandwidth each.

    A transfer begins when the one before it is sent, takes bytes / bandwidth to send, and ends
    ``latency_ns`` later; receivers take any number at once. ``kv_bytes`` gives the bytes of so many tokens
    between two replicas; no bandwidth means that sending takes no time.
    """

    def __init__(
        self, bandwidth: float | None, latency_ns: int, kv_bytes: Callable[[int, int, int], float]
    ) -> None:
        self.bandwidth, self.latency_ns, self.kv_bytes = bandwidth, latency_ns, kv_bytes
        self.sent: dict[int, int] = {}
        self.total_bytes = 0.0

    def send(self, source: int, target: int, tokens: int, now: int) -> int:
        """When the KV of so many tokens is there."""
        size = self.kv_bytes(source, target, tokens)
        self.total_bytes += size
        if self.bandwidth is None:
            return now + self.latency_ns
        begin = max(now, self.sent.get(source, 0))
        self.sent[source] = begin + round(size / self.bandwidth * NS_PER_S)
        return self.sent[source] + self.latency_ns
