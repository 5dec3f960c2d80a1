"""The client: sends each request at its intended arrival, or when a place in flight is free."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from calibrate.reference.sequence import Sequence
from calibrate.reference.serving import Request


class Client:
    """Requests in order of intended arrival; at most ``limit`` are in flight (None: no limit)."""

    def __init__(self, requests: Iterable[Request], limit: int | None) -> None:
        self.to_come = deque(requests)
        self.limit = limit
        self.in_flight = 0
        self.backlog: deque[Request] = deque()

    @property
    def next_arrival_ns(self) -> int | None:
        """When the next request is intended to come."""
        return self.to_come[0].arrival_ns if self.to_come else None

    def arrived(self, now_ns: int) -> list[Sequence]:
        """What is sent up to now, each at its intended arrival; the rest waits for a place."""
        sent = []
        while self.to_come and self.to_come[0].arrival_ns <= now_ns:
            request = self.to_come.popleft()
            if self.limit is None or self.in_flight < self.limit:
                sent.append(self._send(request, request.arrival_ns))
            else:
                self.backlog.append(request)
        return sent

    def answered(self, now_ns: int) -> list[Sequence]:
        """What is sent because one request was answered."""
        self.in_flight -= 1
        return [self._send(self.backlog.popleft(), now_ns)] if self.backlog else []

    def _send(self, request: Request, now_ns: int) -> Sequence:
        self.in_flight += 1
        return Sequence(request, now_ns, list(request.prompt))
