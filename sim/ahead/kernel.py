"""The engine's step and the traffic around it, compiled: many steps in one call.

Every function does what its namesake does in ``sim.engine.scheduler``, ``plan``, ``replica``,
``drafting`` and ``journal``, number for number: those are the reference, and say why. All is in one file,
for Numba keeps a function on disk until its own file changes.
"""

# ruff: noqa: F403, F405, PLR0915
# Items of arrays are NumPy's scalars here and plain numbers once compiled, which no annotation says.
# mypy: disable-error-code="no-any-return,arg-type,return-value,assignment"
from __future__ import annotations

import numpy as np

from sim.ahead.compiled import compiled, inlined, inner
from sim.ahead.layout import *
from sim.cost import graphs
from sim.engine.batch import (
    ACCEPTED,
    CLASS,
    COMPUTED,
    DRAFT,
    DRAFTED,
    FIRST,
    FRESH,
    GRANTED,
    HELD,
    KNOWN,
    LAST_EMIT,
    POINTER,
    PROMPT,
    REQUEST,
    ROUNDS,
    ROWS,
    TOKENS,
)
from sim.engine.batch import END as LENGTH

FAR = 1 << 62
DONE, FULL, UNDRAWN, STUCK = 0, 1, 2, 3

HIDDEN_AT, DEPTH_ZERO_AT = MORE["hidden_ns"], MORE["depth_zero_ns"]
NO_GRAPH, FULL_GRAPH = graphs.EAGER, graphs.FULL

_CLASS, _PROMPT, _OUTPUT = Q["class_id"], Q["prompt_tokens"], Q["output_tokens"]
_ARRIVAL = Q["arrival_ns"]
_SENT, _SCHEDULED, _FIRST, _FINISH = Q["sent_ns"], Q["scheduled_ns"], Q["first_token_ns"], Q["finish_ns"]
_ROUNDS, _DRAFTED, _ACCEPTED, _PREEMPTED = Q["rounds"], Q["drafted"], Q["accepted"], Q["preemptions"]


# -- what a step costs ---------------------------------------------------------------------------


@inlined
def pass_ns(
    table: Float, tokens: int, sequences: int, logits: int, context: int, query: int, pairs: int
) -> float:
    """Nanoseconds of one pass (``PassCost.ns``)."""
    ns = table[3, FIXED] + table[0, tokens] + table[1, sequences] + table[2, logits]
    return ns + table[3, CONTEXT] * context + table[3, QUERY] * query + table[3, PAIRS] * pairs


@inlined
def whole(ns: float) -> int:
    """Nearest whole number, halves to even, as Python's ``round``."""
    return np.int64(np.rint(ns))


# -- who runs ------------------------------------------------------------------------------------


@inlined
def need(k: Int64, tokens: int) -> int:
    """Blocks of one sequence of ``tokens`` computed tokens, lookahead included."""
    slots = min(tokens + k[LOOKAHEAD], k[MAX_LEN])
    return -(-slots // k[BLOCK]) + k[STATE]


@inner
def push_front(w: World, r: int, request: int) -> None:
    """Put a request first in the queue."""
    s = w.s[r]
    w.q[request, LINK] = s[HEAD]
    if s[HEAD] < 0:
        s[TAIL] = request
    s[HEAD] = request
    s[WAITING] += 1


@inner
def push_back(w: World, r: int, request: int) -> None:
    """Put a request last in the queue."""
    s = w.s[r]
    w.q[request, LINK] = -1
    if s[HEAD] < 0:
        s[HEAD] = request
    else:
        w.q[s[TAIL], LINK] = request
    s[TAIL] = request
    s[WAITING] += 1


@inner
def pop_front(w: World, r: int) -> None:
    """Take the first request out of the queue."""
    s = w.s[r]
    s[HEAD] = w.q[s[HEAD], LINK]
    s[WAITING] -= 1


@inner
def write_back(w: World, r: int, i: int) -> int:
    """Note what a sequence has done so far; returns its request."""
    a = w.a[r]
    request = a[REQUEST, i]
    q = w.q[request]
    q[PRODUCED] = a[TOKENS, i] - a[PROMPT, i]
    q[_ROUNDS], q[_DRAFTED], q[_ACCEPTED] = a[ROUNDS, i], a[DRAFTED, i], a[ACCEPTED, i]
    q[LAST] = a[LAST_EMIT, i]
    return request


@inlined
def known_and_wanted(w: World, r: int) -> None:
    """Known tokens, and known and draft tokens, that each running sequence has to compute."""
    a, s, k = w.a[r], w.s[r], w.k
    chunked = k[CHUNK] > 0 and s[N] + s[WAITING] > 1
    for i in range(s[N]):
        known = a[TOKENS, i] - a[COMPUTED, i] if s[PREFILLING] else 1
        a[KNOWN, i] = known
        wanted = known + a[DRAFT, i]
        if chunked:
            wanted = min(wanted, k[CHUNK])
        if k[NEAR_LIMIT]:
            wanted = min(wanted, k[MAX_LEN] - 1 - a[COMPUTED, i])
        a[WANT, i] = wanted


@inlined
def grant_running(w: World, r: int) -> int:
    """Grant tokens and blocks to the running batch; returns the budget left."""
    a, s, k = w.a[r], w.s[r], w.k
    n = s[N]
    if n == 0:
        return k[BUDGET]
    known_and_wanted(w, r)
    left = k[BUDGET] - k[SLOTS] * n
    for i in range(n):
        left -= a[WANT, i]
    if left < 0:
        s[UNCUT] = 0
        before = k[SLOTS]
        for i in range(n):
            wanted = a[WANT, i]
            a[WANT, i] = min(wanted, max(k[BUDGET] - before, 0))
            before += wanted + k[SLOTS]
    extra = 0
    for i in range(n):
        if a[WANT, i] > 0 or left >= 0:
            extra += max(need(k, a[COMPUTED, i] + a[WANT, i]) - a[HELD, i], 0)
    if extra > s[FREE]:
        return grant_under_pressure(w, r)
    for i in range(n):
        if a[WANT, i] > 0 or left >= 0:
            a[HELD, i] = max(need(k, a[COMPUTED, i] + a[WANT, i]), a[HELD, i])
        a[GRANTED, i] = a[WANT, i]
    s[FREE] -= extra
    return left


@inner
def grant_under_pressure(w: World, r: int) -> int:
    """Grant one by one, preempting from the end of the batch while blocks are short."""
    a, s, k = w.a[r], w.s[r], w.k
    left = k[BUDGET]
    s[UNCUT] = 0
    known_and_wanted(w, r)
    for i in range(s[N]):
        a[GRANTED, i] = 0
    i = 0
    while i < s[N] and left > k[SLOTS]:
        granted = min(a[WANT, i], left - k[SLOTS])
        short = need(k, a[COMPUTED, i] + granted) - a[HELD, i]
        while short > s[FREE] and s[N] > i:
            preempt_last(w, r)
        if s[N] == i:
            break
        a[HELD, i] += max(short, 0)
        s[FREE] -= max(short, 0)
        a[GRANTED, i] = granted
        left -= granted + k[SLOTS]
        i += 1
    s[PREFILLING] = 0
    for i in range(s[N]):
        s[PREFILLING] += a[FRESH, i]
    return left


@inner
def preempt_last(w: World, r: int) -> None:
    """Free the last running sequence's blocks and put it at the front of the queue."""
    a, s = w.a[r], w.s[r]
    last = s[N] - 1
    request = write_back(w, r, last)
    s[FREE] += a[HELD, last]
    s[N] = last
    w.q[request, _PREEMPTED] += 1
    s[PREEMPTED] += 1
    push_front(w, r, request)


@inner
def admit(w: World, r: int, left: int) -> bool:
    """Admit waiting sequences in order while budget, places and blocks last; false: the first never fits."""
    s, k = w.s[r], w.k
    may_pad = k[PADDING] > 0 and s[PREFILLING] == 0
    beside = s[N] > 0
    chunked = k[CHUNK] > 0 and s[N] + s[WAITING] > 1
    while s[WAITING] and left > k[SLOTS] and s[N] < k[MAX_SEQS]:
        request = s[HEAD]
        tokens = w.q[request, _PROMPT] + w.q[request, PRODUCED]
        chunk = min(tokens, left - k[SLOTS])
        if chunked:
            chunk = min(chunk, k[CHUNK])
        if may_pad and tokens == 1 and beside:
            chunk += k[PADDING] if k[PADDING] + 2 <= k[MAX_LEN] else 0
            if chunk > left - k[SLOTS]:
                break
        blocks = need(k, chunk)
        if max(-(-tokens // k[BLOCK]) + k[STATE], blocks) > s[FREE]:
            break
        pop_front(w, r)
        start(w, r, request, tokens, chunk, blocks)
        left -= chunk + k[SLOTS]
    return s[N] > 0 or s[WAITING] == 0


@inner
def start(w: World, r: int, request: int, tokens: int, chunk: int, blocks: int) -> None:
    """Append a sequence to the batch with its first chunk granted."""
    a, s, q = w.a[r], w.s[r], w.q[request]
    i = s[N]
    s[FREE] -= blocks
    if q[_SCHEDULED] < 0:
        q[_SCHEDULED] = s[NOW]
    for row in range(ROWS):
        a[row, i] = 0
    a[TOKENS, i] = tokens
    a[POINTER, i] = q[START] + q[PRODUCED]
    a[LENGTH, i] = q[_PROMPT] + q[_OUTPUT]
    a[GRANTED, i] = chunk
    a[KNOWN, i] = tokens
    a[HELD, i] = blocks
    a[REQUEST, i] = request
    a[ROUNDS, i], a[DRAFTED, i], a[ACCEPTED, i] = q[_ROUNDS], q[_DRAFTED], q[_ACCEPTED]
    a[LAST_EMIT, i] = q[LAST]
    a[FRESH, i] = 1
    a[CLASS, i] = q[_CLASS]
    a[PROMPT, i] = q[_PROMPT]
    a[FIRST, i] = q[_FIRST]
    s[N] = i + 1
    s[PREFILLING] += 1
    if chunk > tokens:
        w.runs[0, a[POINTER, i]] = 0


# -- one step ------------------------------------------------------------------------------------


@inlined
def step(w: World, r: int) -> bool:
    """One step from ``NOW``, its depth looked up; false if it has nothing to compute."""
    if not begin(w, r):
        return False
    depth, ragged = choose(w, r)
    finish(w, r, depth, ragged)
    return True


@compiled
def begin(w: World, r: int) -> bool:
    """Schedule, verify, accept and commit; false if there is nothing to compute."""
    s, k = w.s[r], w.k
    s[PREEMPTED] = 0
    s[UNCUT] = 0 if k[CHUNK] > 0 and s[N] + s[WAITING] > 1 else 1
    left = grant_running(w, r)
    s[OLD] = s[N]
    if s[WAITING] and s[PREEMPTED] == 0 and not admit(w, r, left):
        return False
    sum_up(w, r)
    if s[TOKENS_IN] == 0 and s[PREEMPTED] == 0:
        return False
    commit(w, r)
    if s[OVERRUNS]:
        carry_dummies(w, r)
    return True


@inlined
def sum_up(w: World, r: int) -> None:
    """What the scheduler granted, in sums, and what it costs (``decode_plan`` and ``mixed_plan``)."""
    a, s, k = w.a[r], w.s[r], w.k
    every = s[UNCUT] == 1 and s[PREFILLING] == 0
    zero = np.int64(0)  # typed, so that callees are compiled once
    sequences = decodes = tokens = kv = context = query = prefill = pairs = zero
    emitters = drafted = longest = widest = deepest = zero
    for i in range(s[N]):
        granted = a[GRANTED, i]
        known = 1 if every else a[KNOWN, i]
        a[VERIFIED, i] = -1
        if granted >= known:
            a[VERIFIED, i] = granted - known
            emitters += 1
            drafted += granted - known
            deepest = max(deepest, granted - known)
        if granted == 0:
            continue
        end = a[COMPUTED, i] + granted
        sequences += 1
        tokens += granted
        kv += end
        longest = max(longest, end)
        if known == 1:
            decodes += 1
            context += end
            query += granted * end
            widest = max(widest, granted)
        else:
            prefill += granted
            pairs += granted * a[COMPUTED, i] + granted * (granted + 1) // 2
    if k[PAD_QUERIES]:
        query = widest * context
    logits = drafted + emitters
    at = zero
    if not k[PLAIN] and 0 < sequences == decodes == emitters and tokens == sequences * (deepest + 1):
        at = 2 * (deepest + 1)
    s[LAUNCH], s[PADDED] = w.looks[at, tokens], w.looks[at + 1, tokens]
    verify = pass_ns(w.tables[VERIFY], s[PADDED], sequences, logits, context, query, pairs)
    if s[LAUNCH] != FULL_GRAPH:
        extra = w.tables[EAGER] if s[LAUNCH] == NO_GRAPH else w.tables[PIECEWISE]
        verify += pass_ns(extra, tokens, sequences, logits, context, query, pairs)
    if tokens > sequences:
        verify += w.tables[VERIFY, 3, WIDE] * context
    s[VERIFY_NS] = whole(verify)
    s[ACCEPT_NS] = whole(pass_ns(w.tables[ACCEPT], tokens, sequences, logits, zero, zero, zero))
    s[HOST_NS] = whole(pass_ns(w.tables[HOST], tokens, sequences, logits, zero, zero, zero)) + k[OVERHEAD]
    s[OVERRUNS] = 1 if k[DUMMIES] and longest + max(k[MAX_DEPTH], k[LOOKAHEAD]) > k[DRAFTER_LIMIT] else 0
    if k[IDLES]:
        s[DEPTH_ZERO_NS] = 0
        if decodes and drafted == 0:
            s[DEPTH_ZERO_NS] = k[IDLE_NS] + k[IDLE_SEQUENCE_NS] * decodes
            s[HOST_NS] += s[DEPTH_ZERO_NS]
    s[EVERY], s[SEQUENCES], s[DECODES], s[TOKENS_IN] = every, sequences, decodes, tokens
    s[LOGITS], s[KV], s[CONTEXT_READ], s[QUERY_READ], s[PREFILL] = logits, kv, context, query, prefill
    s[PREFILL_PAIRS], s[EMITTERS], s[DEEPEST] = pairs, emitters, deepest


@inlined
def commit(w: World, r: int) -> None:
    """Keep accepted tokens, drop the KV of rejected ones, count."""
    a, s = w.a[r], w.s[r]
    kept = produced = survivors = survivor_tokens = np.int64(0)
    for i in range(s[N]):
        verified = a[VERIFIED, i]
        if verified < 0:
            a[COMPUTED, i] += a[GRANTED, i]
            continue
        took = min(np.int64(w.runs[0, a[POINTER, i]]), verified)
        out = min(took + 1, a[LENGTH, i] - a[TOKENS, i])
        a[TOOK, i] = took
        kept += took
        produced += out
        a[TOKENS, i] += out
        a[POINTER, i] += out
        a[COMPUTED, i] = a[TOKENS, i] - 1
        if verified > 0:
            a[ROUNDS, i] += 1
            a[DRAFTED, i] += verified
            a[ACCEPTED, i] += took
        if a[TOKENS, i] < a[LENGTH, i]:
            survivors += 1
            survivor_tokens += a[TOKENS, i]
    s[KEPT], s[PRODUCED_NOW], s[SURVIVORS], s[SURVIVOR_TOKENS] = kept, produced, survivors, survivor_tokens


@compiled
def finish(w: World, r: int, depth: int, ragged: bool) -> None:
    """Run the drafter to ``depth``, write the step down, take out what is finished.

    ``ragged``: the depths are each sequence's own.
    """
    s, k = w.s[r], w.k
    for name in (DRAFT_NS, PASSES, FIRST_TOKENS, NEXT_TOKENS, READ):
        s[name] = 0
    s[NEXT_DEPTH] = depth
    if k[DRAFTS] and not s[OVERRUNS]:
        if s[SEQUENCES] == 0:
            s[NEXT_DEPTH] = 0
        elif depth > 0 or k[IDLE_PASS]:
            draft(w, r, depth, ragged)
    if k[OVERLAP]:
        s[HIDDEN_NS] = min(s[HOST_NS], s[DEVICE_NS])
        s[HOST_NS] -= s[HIDDEN_NS]
        s[DEVICE_NS] = s[VERIFY_NS] + s[ACCEPT_NS] + s[DRAFT_NS]
    s[END] = s[NOW] + s[VERIFY_NS] + s[ACCEPT_NS] + s[HOST_NS] + s[DRAFT_NS]
    if k[KEEP_STEPS]:
        note(w, r)
    stamp(w, r)
    s[FINISHED] = retire(w, r) if s[SURVIVORS] < s[EMITTERS] else 0
    s[UNSETTLED] = 1
    s[NOW] = s[END]


@inlined
def draft(w: World, r: int, depth: int, ragged: bool) -> None:
    """The drafter's passes and their time (``Drafting.draft``)."""
    a, s, k = w.a[r], w.s[r], w.k
    zero = np.int64(0)
    rows, context = s[SEQUENCES], s[CONTEXT_READ]
    if not k[FOR_FINISHED]:
        rows, context = s[SURVIVORS], s[SURVIVOR_TOKENS]
    first, query = s[TOKENS_IN], s[QUERY_READ]
    if k[OVER_EMITTED]:
        count = s[PRODUCED_NOW] - (s[EMITTERS] - s[DECODES])
        first, query = count + s[PREFILL], context * count // max(rows, 1)
    passes, following, read = np.int64(1), zero, context
    over = first + rows * k[BLOCK_TOKENS]
    ns = pass_ns(w.tables[FIRST_PASS], over, rows, rows, context, query, s[PREFILL_PAIRS])
    if first > rows:
        ns += w.tables[FIRST_PASS, 3, WIDE] * context
    if k[SEQUENTIAL] and depth > 1 and rows > 0:
        if k[UNIFORM] or not ragged:
            each = s[KV] if k[FOR_FINISHED] else context
            ns += (depth - 1) * pass_ns(w.tables[NEXT_PASS], rows, rows, rows, each, each, zero)
            passes += depth - 1
            following = (depth - 1) * rows
            read += (depth - 1) * each
        else:
            for level in range(1, depth):
                count = each = zero
                for i in range(s[N]):
                    if goes_on(a, i) and a[WANT, i] > level:
                        count += 1
                        each += a[TOKENS, i]
                ns += pass_ns(w.tables[NEXT_PASS], count, count, count, each, each, zero)
                passes += 1
                following += count
                read += each
    s[DRAFT_NS], s[PASSES], s[FIRST_TOKENS], s[NEXT_TOKENS], s[READ] = (
        whole(ns),
        passes,
        first,
        following,
        read,
    )


@inlined
def goes_on(a: Int64, i: int) -> bool:
    """Whether a sequence emitted in this step and is not finished."""
    return a[VERIFIED, i] >= 0 and a[TOKENS, i] < a[LENGTH, i]


@inlined
def note(w: World, r: int) -> None:
    """Write the step down, a value in every column."""
    s, k, at = w.s[r], w.k, w.k[STEPS]
    for place in range(len(NOTED)):
        if NOTED[place] >= 0:
            w.steps[place, at] = s[NOTED[place]]
    w.steps[DRAFTED_AT, at] = s[LOGITS] - s[EMITTERS]
    w.steps[BLOCKS_AT, at] = k[CAPACITY] - s[FREE]
    w.steps[HIDDEN_AT, at], w.steps[DEPTH_ZERO_AT, at] = s[HIDDEN_NS], s[DEPTH_ZERO_NS]
    w.steps[STEP_WIDTH - 1, at] = r
    k[STEPS] += 1


@inlined
def choose(w: World, r: int) -> tuple[int, bool]:
    """Look the depth up and give the survivors their drafts; the deepest, and whether each has its own."""
    a, s, k = w.a[r], w.s[r], w.k
    key = s[SEQUENCES]
    if k[KEY] == BY_SAMPLING:
        key = s[SURVIVORS]
    elif k[KEY] == BY_RUNNING:
        key = s[N]
    asked = w.looks[len(w.looks) - 1, key]
    if not k[DRAFTS]:
        return np.int64(0), False
    if s[OVERRUNS]:
        return k[MAX_DEPTH], False
    ragged = k[MATCHES] == 1 or not k[PAST_END]
    deepest = np.int64(0)
    for i in range(s[N]):
        if a[GRANTED, i] > 0:
            a[DRAFT, i] = 0
        if goes_on(a, i):
            depth = asked
            if not k[PAST_END]:
                depth = min(depth, a[LENGTH, i] - a[TOKENS, i] - 1)
            if k[MATCHES] and not w.runs[1, a[POINTER, i]]:
                depth = 0
            a[DRAFT, i] = a[WANT, i] = depth
            deepest = max(deepest, depth)
    return (deepest if ragged else asked), ragged


@inner
def carry_dummies(w: World, r: int) -> None:
    """Give the survivors drafts of full depth that no target accepts."""
    a, s, k = w.a[r], w.s[r], w.k
    for i in range(s[N]):
        if a[GRANTED, i] > 0:
            a[DRAFT, i] = 0
        if goes_on(a, i):
            a[DRAFT, i] = k[MAX_DEPTH]
            w.runs[0, a[POINTER, i]] = 0


@inner
def pool(a: Int64, unlike: int, gap: int) -> int:
    """Count one gap among those met so far, which are kept in order; how many are unlike."""
    i = unlike
    while i > 0 and a[WANT, i - 1] > gap:
        i -= 1
    if i > 0 and a[WANT, i - 1] == gap:
        a[ALIKE, i - 1] += 1
        return unlike
    for j in range(unlike, i, -1):
        a[WANT, j], a[ALIKE, j] = a[WANT, j - 1], a[ALIKE, j - 1]
    a[WANT, i], a[ALIKE, i] = gap, 1
    return unlike + 1


@inlined
def stamp(w: World, r: int) -> None:
    """Note when chunks were streamed: gaps since each sequence's last one, first tokens."""
    a, s, k = w.a[r], w.s[r], w.k
    every = s[EVERY]
    end, n = s[END], s[N]
    if every and s[ALIGNED]:
        row = w.gaps[k[GAPS]]
        row[0], row[1], row[2], row[3] = end - a[LAST_EMIT, 0], n, end, r
        k[GAPS] += 1
        for i in range(n):
            a[LAST_EMIT, i] = end
        return
    unlike = zero = np.int64(0)
    for i in range(n):
        if a[VERIFIED, i] < 0:
            continue
        if a[LAST_EMIT, i] >= 0:
            unlike = pool(a, unlike, end - a[LAST_EMIT, i])
        a[LAST_EMIT, i] = end
        if a[FRESH, i] and not every:
            a[FRESH, i] = zero
            s[PREFILLING] -= 1
            if a[FIRST, i] < 0:
                a[FIRST, i] = end
                w.q[a[REQUEST, i], _FIRST] = end
    for i in range(unlike):
        row = w.gaps[k[GAPS]]
        row[0], row[1], row[2], row[3] = a[WANT, i], a[ALIKE, i], end, r
        k[GAPS] += 1
    s[ALIGNED] = 1 if every or s[EMITTERS] + s[PREFILLING] == n else 0


@inlined
def retire(w: World, r: int) -> int:
    """Take finished sequences out, in order; how many."""
    a, s = w.a[r], w.s[r]
    n, kept = s[N], 0
    for i in range(n):
        if a[TOKENS, i] >= a[LENGTH, i]:
            request = write_back(w, r, i)
            w.q[request, _FINISH] = s[END]
            a[LEFT, i - kept] = request
            s[FREE] += a[HELD, i]
            continue
        if kept < i:
            for row in range(ROWS):
                a[row, kept] = a[row, i]
        kept += 1
    s[N] = kept
    return n - kept


# -- between steps -------------------------------------------------------------------------------


@inlined
def settle(w: World, r: int) -> None:
    """What the end of a step brings about outside: answers, and clients that went away."""
    s = w.s[r]
    s[UNSETTLED] = 0
    for _ in range(s[FINISHED]):
        answered(w, r)
    s[FINISHED] = 0
    while s[LEAVING] >= 0:
        request = s[LEAVING]
        s[LEAVING] = w.q[request, LEAVE]
        if drop(w, r, request):
            answered(w, r)


@inner
def answered(w: World, r: int) -> None:
    """A place in flight is free for the next request."""
    w.s[r, IN_FLIGHT] -= 1
    w.k[OPEN] -= 1
    if w.k[SENT] < w.k[NEXT]:
        send(w, w.k[SENT], w.s[r, END])


@compiled
def drop(w: World, r: int, request: int) -> bool:
    """Forget a request, running or waiting; whether it was here."""
    a, s = w.a[r], w.s[r]
    for i in range(s[N]):
        if a[REQUEST, i] == request:
            s[PREFILLING] -= a[FRESH, i]
            s[FREE] += a[HELD, i]
            for row in range(ROWS):
                for j in range(i, s[N] - 1):
                    a[row, j] = a[row, j + 1]
            s[N] -= 1
            return True
    behind, at = -1, s[HEAD]
    while at >= 0 and s[WAITING] > 0:
        if at == request:
            if behind < 0:
                s[HEAD] = w.q[at, LINK]
            else:
                w.q[behind, LINK] = w.q[at, LINK]
            if s[TAIL] == at:
                s[TAIL] = behind
            s[WAITING] -= 1
            return True
        behind, at = at, w.q[at, LINK]
    return False


@inner
def route(w: World, request: int) -> int:
    """The replica for a request (``sim.fleet.routers``)."""
    count, k = len(w.s), w.k
    if count == 1:
        return 0
    if w.k[ROUTER] == POWER_OF_TWO:
        first, second = w.q[request, PAIR], w.q[request, PAIR + 1]
        return second if w.s[second, IN_FLIGHT] < w.s[first, IN_FLIGHT] else first
    chosen = (k[TURN] + 1) % count
    if w.k[ROUTER] == LEAST_REQUESTS:
        for turn in range(2, count + 1):
            other = (k[TURN] + turn) % count
            if w.s[other, IN_FLIGHT] < w.s[chosen, IN_FLIGHT]:
                chosen = other
    k[TURN] = chosen
    return chosen


@inner
def send(w: World, request: int, now: int) -> None:
    """Send one request to the replica that the router chooses."""
    w.k[SENT] += 1
    w.k[OPEN] += 1
    receive(w, route(w, request), request, now)


@compiled
def receive(w: World, r: int, request: int, now: int) -> None:
    """Queue one request at a replica."""
    s = w.s[r]
    w.q[request, HOME] = r
    w.q[request, _SENT] = now
    s[IN_FLIGHT] += 1
    if s[N] == 0 and s[WAITING] == 0:
        s[NOW] = max(s[NOW], now)
    push_back(w, r, request)


@inner
def advance(w: World, r: int, until: int) -> int:
    """Run every step of one replica that starts before ``until``."""
    s, k = w.s[r], w.k
    while True:
        if s[UNSETTLED] and s[END] < until:
            settle(w, r)
        if s[N] == 0 and s[WAITING] == 0:
            if not s[UNSETTLED]:
                s[DEVICE_NS] = 0
            return DONE
        if s[NOW] >= until:
            return DONE
        if k[STEPS] >= w.steps.shape[1] or k[GAPS] + w.a.shape[2] >= len(w.gaps):
            return FULL
        if not step(w, r):
            return STUCK


@compiled
def replay(w: World) -> int:
    """Replay the traffic until the last answer, or until a buffer is full or runs are to be drawn."""
    k, requests, aborts = w.k, len(w.q), len(w.aborts)
    while True:
        now = FAR
        if k[NEXT] < requests:
            now = w.q[k[NEXT], _ARRIVAL]
        if k[GONE] < aborts:
            now = min(now, w.aborts[k[GONE], 0])
        for r in range(len(w.s)):
            code = advance(w, r, now)
            if code != DONE:
                return code
        if now == FAR:
            return DONE
        while k[NEXT] < requests and w.q[k[NEXT], _ARRIVAL] == now:
            if k[NEXT] >= k[DRAWN]:
                return UNDRAWN
            request = k[NEXT]
            k[NEXT] += 1
            if k[OPEN] < w.k[CLIENTS]:
                send(w, request, now)
        while k[GONE] < aborts and w.aborts[k[GONE], 0] == now:
            request = w.aborts[k[GONE], 1]
            k[GONE] += 1
            s = w.s[w.q[request, HOME]]
            w.q[request, LEAVE] = -1
            if s[LEAVING] < 0:
                s[LEAVING] = request
            else:
                w.q[s[LAST_LEAVING], LEAVE] = request
            s[LAST_LEAVING] = request
