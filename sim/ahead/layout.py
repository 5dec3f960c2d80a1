"""Where everything stands in the compiled engine's arrays; rows of a batch are ``sim.engine.batch``'s."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.engine.batch import ROWS
from sim.results.records import REQUEST_COLUMNS, STEP_COLUMNS

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]

# Of every replica (World.s).
N: Final = 0  # running sequences
FREE: Final = 1  # free KV blocks
PREFILLING: Final = 2  # running sequences that have not emitted since they were admitted
NOW: Final = 3  # when the next step may start, ns
END: Final = 4  # when the last step ended, ns
HEAD: Final = 5  # first waiting request, -1: none
TAIL: Final = 6  # last waiting request
WAITING: Final = 7
ALIGNED: Final = 8  # 1: all running sequences emitted last at the same time
UNSETTLED: Final = 9  # 1: what the last step's end brings about is still to be done
FINISHED: Final = 10  # requests that the last step finished
IN_FLIGHT: Final = 11  # requests here, as the router counts them
PREEMPTED: Final = 12  # in the last step
UNCUT: Final = 13  # 1: every running sequence got all it wanted
LEAVING: Final = 14  # first request whose client went away, -1: none
LAST_LEAVING: Final = 15
OLD: Final = 16  # running sequences before admission
# Of its last step, as sim.results.records calls them.
EVERY: Final = 17  # 1: all running sequences decode
OVERRUNS: Final = 18  # 1: the drafter cannot run
SEQUENCES: Final = 19
DECODES: Final = 20
TOKENS_IN: Final = 21
LOGITS: Final = 22
KV: Final = 23  # KV tokens read by all sequences
CONTEXT_READ: Final = 24
QUERY_READ: Final = 25
PREFILL: Final = 26
PREFILL_PAIRS: Final = 27
EMITTERS: Final = 28
KEPT: Final = 29
PRODUCED_NOW: Final = 30
DEEPEST: Final = 31
SURVIVORS: Final = 32
SURVIVOR_TOKENS: Final = 33
VERIFY_NS: Final = 34
ACCEPT_NS: Final = 35
HOST_NS: Final = 36
DRAFT_NS: Final = 37
NEXT_DEPTH: Final = 38
PASSES: Final = 39
FIRST_TOKENS: Final = 40
NEXT_TOKENS: Final = 41
READ: Final = 42
LAUNCH: Final = 43  # how the target pass ran, and its padded tokens
PADDED: Final = 44
DEVICE_NS: Final = 45  # device time of the last step, 0 after an idle time
HIDDEN_NS: Final = 46
DEPTH_ZERO_NS: Final = 47
REPLICA_SCALARS: Final = 48

_NOTED = {
    "sequences": SEQUENCES,
    "decodes": DECODES,
    "tokens": TOKENS_IN,
    "logits": LOGITS,
    "context_tokens": CONTEXT_READ,
    "query_context_tokens": QUERY_READ,
    "prefill_tokens": PREFILL,
    "prefill_pairs": PREFILL_PAIRS,
    "accepted": KEPT,
    "emitted": PRODUCED_NOW,
    "depth": DEEPEST,
    "next_depth": NEXT_DEPTH,
    "draft_passes": PASSES,
    "draft_first_tokens": FIRST_TOKENS,
    "draft_next_tokens": NEXT_TOKENS,
    "draft_context_tokens": READ,
    "verify_ns": VERIFY_NS,
    "accept_ns": ACCEPT_NS,
    "draft_ns": DRAFT_NS,
    "host_ns": HOST_NS,
    "waiting": WAITING,
    "preempted": PREEMPTED,
    "start_ns": NOW,
    "graph": LAUNCH,
    "padded_tokens": PADDED,
    "end_ns": END,
}
NOTED: Final = tuple(_NOTED.get(name, -1) for name in STEP_COLUMNS)
"""Where each column of a step stands in the scalars, -1: nowhere."""
DRAFTED_AT, BLOCKS_AT = STEP_COLUMNS.index("drafted"), STEP_COLUMNS.index("kv_blocks")

# Of the whole run (World.k).
NEXT: Final = 0  # next request to arrive
SENT: Final = 1  # next request to be sent
DRAWN: Final = 2  # requests whose runs are drawn
GONE: Final = 3  # next entry of the list of aborts
STEPS: Final = 4  # rows in the buffer of steps
GAPS: Final = 5  # rows in the buffer of gaps
OPEN: Final = 6  # requests in flight at the client
TURN: Final = 7  # what the router chose last

# What does not change (World.k, too).
BUDGET: Final = 8
MAX_SEQS: Final = 9
MAX_LEN: Final = 10
CHUNK: Final = 11
BLOCK: Final = 12
NEAR_LIMIT: Final = 13  # 1: some sequence may come near the context limit
LOOKAHEAD: Final = 14
SLOTS: Final = 15
STATE: Final = 16  # blocks' worth of recurrent state
PADDING: Final = 17
MAX_DEPTH: Final = 18
DRAFTS: Final = 19
IDLE_PASS: Final = 20
OVER_EMITTED: Final = 21
FOR_FINISHED: Final = 22
UNIFORM: Final = 23
PAST_END: Final = 24
DUMMIES: Final = 25
PAD_QUERIES: Final = 26
OVERHEAD: Final = 27
KEEP_STEPS: Final = 28
SEQUENTIAL: Final = 29
BLOCK_TOKENS: Final = 30
KEY: Final = 31  # what the depth is looked up by
CAPACITY: Final = 32
CLIENTS: Final = 33  # most requests in flight at the client
ROUTER: Final = 34
MATCHES: Final = 35  # 1: drafts are made only where World.found says so
OVERLAP: Final = 36  # 1: the host prepares a step behind the one before it
PLAIN: Final = 37  # 1: the launch depends on tokens alone
DRAFTER_LIMIT: Final = 38  # longest context that the drafter reads
IDLES: Final = 39  # 1: depth 0 costs the host time
IDLE_NS: Final = 40
IDLE_SEQUENCE_NS: Final = 41
SCALARS: Final = 42

BY_SCHEDULED, BY_SAMPLING, BY_RUNNING = 0, 1, 2
ROUND_ROBIN, LEAST_REQUESTS, POWER_OF_TWO = 0, 1, 2

# Of every request (World.q): the columns of its record, and what else is known of it.
Q: Final = {name: place for place, name in enumerate(REQUEST_COLUMNS)}
PRODUCED: Final = len(REQUEST_COLUMNS)
LAST: Final = PRODUCED + 1  # when it last emitted
LINK: Final = PRODUCED + 2  # the request behind it in a queue
LEAVE: Final = PRODUCED + 3  # the next request whose client went away
HOME: Final = PRODUCED + 4  # its replica
START: Final = PRODUCED + 5  # where its runs stand
PAIR: Final = PRODUCED + 6  # the two replicas drawn for it
REQUEST_WIDTH: Final = PRODUCED + 8

WANT: Final = ROWS  # rows of a batch beyond the stepping engine's: scratch
VERIFIED: Final = ROWS + 1  # drafts verified in the step, -1: emits nothing
ALIKE: Final = ROWS + 2  # how often a gap was met
TOOK: Final = ROWS + 3  # drafts accepted in the step
LEFT: Final = ROWS + 4  # requests that the last step finished
BATCH_ROWS: Final = ROWS + 5

MORE: Final = {"hidden_ns": len(STEP_COLUMNS), "depth_zero_ns": len(STEP_COLUMNS) + 1}
"""Columns that only some engines have."""
STEP_WIDTH: Final = len(STEP_COLUMNS) + 3
"""Columns of a step, those that only some have, and the replica."""

VERIFY, ACCEPT, HOST, EAGER, PIECEWISE, FIRST_PASS, NEXT_PASS = range(7)
FIXED, CONTEXT, QUERY, PAIRS, WIDE = range(5)


class World(NamedTuple):
    """Everything a run reads and writes; R replicas, M requests.

    ``a`` (R, BATCH_ROWS, sequences) the running batches; ``s`` (R, REPLICA_SCALARS) and ``k`` (SCALARS,) as
    above; ``q`` (M, REQUEST_WIDTH); ``aborts`` (entries, 2) time and request, in order; ``runs`` (1 or 2,
    output tokens) drafts accepted from each output position, request after request, and whether
    there are any; ``tables`` (7, 4, size) the costs of each pass by tokens, sequences and logits, and
    its lines; ``looks`` (2 x launches + 1, size) how a step of so many tokens is launched and padded,
    mixed or at each uniform depth, and last the policy's depth by its key; ``steps`` (STEP_WIDTH, rows)
    and ``gaps`` (rows, 4) are buffers. Few arrays, as each takes its share of every compilation.
    """

    a: Int64
    s: Int64
    k: Int64
    q: Int64
    aborts: Int64
    runs: NDArray[np.uint8]
    tables: Float
    looks: Int64
    steps: Int64
    gaps: Int64
