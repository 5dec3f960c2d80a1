"""One finished run, as metrics and files read it: columns of requests and of steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.errors import SimulationError
from sim.results.fleet_record import FleetRecord
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS

Int64 = NDArray[np.int64]
Columns = dict[str, Int64]


@dataclass(frozen=True)
class RunRecords:
    """What one run of one policy with one seed wrote down.

    ``requests`` and ``steps`` hold the columns of ``sim.results.records`` as int64 arrays.
    Request rows may stand in any order; one that never finished has ``finish_ns`` < 0 or no row
    at all, and ``unfinished`` counts all such requests, but for those whose client gave up waiting, which
    are ``timed_out``. ``chunk_gaps`` pools the gaps
    between streamed chunks over all requests as (gap in ns, how often, when the second chunk came),
    three arrays of equal length.
    ``last_arrival_ns`` is the last intended arrival, 0 in a closed loop. With several ``replicas``,
    both tables have a further column ``replica``, from 0, and steps stand replica by replica;
    ``kv_blocks_total`` and ``max_num_seqs`` are those of one. ``fleet`` says what became of replicas that
    differ, come and go, or fail; requests that failed with one are among the ``unfinished``.
    """

    requests: Columns
    steps: Columns
    chunk_gaps: tuple[Int64, Int64, Int64]
    unfinished: int
    classes: tuple[str, ...]
    last_arrival_ns: int
    kv_blocks_total: int
    max_num_seqs: int
    replicas: int = 1
    timed_out: int = 0
    fleet: FleetRecord | None = None

    def __post_init__(self) -> None:
        _check_columns("requests", self.requests, REQUEST_COLUMNS)
        _check_columns("steps", self.steps, STEP_COLUMNS)
        gaps, counts, _ = self.chunk_gaps
        if len(gaps) != len(counts):
            raise SimulationError(f"chunk_gaps pairs {len(gaps)} gaps with {len(counts)} counts")

    @property
    def closed_loop(self) -> bool:
        """Whether no arrival process exists: every request is wanted at 0 and sent when a place is free."""
        return self.last_arrival_ns == 0

    @property
    def origin_ns(self) -> Int64:
        """Instant from which each request's latencies count.

        The intended arrival; in a closed loop, where none is intended, the sending.
        """
        return self.requests["sent_ns" if self.closed_loop else "arrival_ns"]

    @property
    def unfinished_share(self) -> float:
        """Share of the run's requests that never finished, though nobody gave them up."""
        return self.unfinished / max(1, self._sent)

    @property
    def timed_out_share(self) -> float:
        """Share of the run's requests whose client gave up waiting."""
        return self.timed_out / max(1, self._sent)

    @property
    def _sent(self) -> int:
        finished = int(np.count_nonzero(self.requests["finish_ns"] >= 0))
        return finished + self.unfinished + self.timed_out

    @property
    def failed(self) -> int:
        """Requests whose clients got an error, of the unfinished ones."""
        return self.fleet.failed if self.fleet else 0

    @property
    def failed_share(self) -> float:
        """Share of the run's requests whose clients got an error."""
        return self.failed / max(1, self._sent)


def _check_columns(table: str, columns: Columns, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise SimulationError(f"{table} lack the columns {', '.join(missing)}")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise SimulationError(f"columns of {table} differ in length: {sorted(lengths)}")
