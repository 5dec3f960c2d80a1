"""Requests as one run sent them: the times of an open client, which a closed loop finds as it goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.results.run_records import RunRecords
from sim.workload.requests import Requests


def as_sent(requests: Requests, records: RunRecords) -> Requests:
    """The finished requests of a run, in order of sending, arriving when it sent them."""
    finished = records.requests["finish_ns"] >= 0
    numbers = records.requests["request"][finished]
    sent = records.requests["sent_ns"][finished]
    order = np.lexsort((numbers, sent))
    numbers = numbers[order]
    return replace(
        requests,
        arrival_ns=sent[order],
        prompt_tokens=requests.prompt_tokens[numbers],
        output_tokens=requests.output_tokens[numbers],
        class_id=requests.class_id[numbers],
        max_concurrency=None,
        prefix_group=None if requests.prefix_group is None else requests.prefix_group[numbers],
        prefix_tokens=None if requests.prefix_tokens is None else requests.prefix_tokens[numbers],
        abort_ns=None,
        hashes=None if requests.hashes is None else requests.hashes.picked(numbers),
        timeout_ns=None,
    )
