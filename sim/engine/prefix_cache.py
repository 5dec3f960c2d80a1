"""Prefix caching: KV blocks that keep their content after their request has left them.

The rules are vLLM 0.32's (vllm/v1/core/block_pool.py, kv_cache_manager.py and, for the look-up,
single_type_kv_cache_manager.py: ``FullAttentionManager.find_longest_cache_hit``), for one group of
full-attention layers. Full blocks are cached once they are scheduled, so a request admitted later
in the same step already hits them; a block nobody holds stays cached until it is the one unused for
longest when no empty block is left, tail blocks of a request before its head. Identical blocks are
not merged. Tokens are told apart by what they are known to share: prompts of one prefix group have
equal first tokens, so have prompts with equal hashes of their first blocks, equal prompts have equal
answers under greedy sampling, and everything else differs.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from sim.engine.batch import CACHED, COMPUTED, GRANTED, HELD, REQUEST, TOKENS, RunningBatch, Sequence
from sim.engine.kv import BlockPool
from sim.errors import SimulationError

Key = tuple[int, int, int]
"""Whose tokens a block holds, and the how manieth it is.

The first is a prefix group from 0, or -1 - request; the second the prompt's tokens where the block
ends in the answer to a prompt that is all the group's, else 0. Of prompts with hashed blocks, the first is
the hashes' chain, and the second less than 0: -1, or -1 less the prompt's tokens for an answer.
"""


class PrefixCache(BlockPool):
    """A pool whose full blocks are found again by content, ``unit`` blocks at a time.

    Only blocks with content have a name here; blank and half-full ones are counts. A sequence's
    first ``CACHED`` blocks have names, in order. ``drop_last``: the last block found is computed
    anew, as for drafters that read the target's hidden states; it is a whole unit then. ``greedy``:
    equal prompts have equal answers. A unit is more than a block where a hit needs more than KV: the
    state of recurrent layers, of which an engine keeps copies at multiples of the unit. A copy is taken
    to be made wherever a sequence passes one (vLLM's ``--mamba-cache-mode all``; its mode ``align`` cuts
    prompts there, to the same effect for prompts that are cut), and to take no memory.
    """

    def __init__(
        self, capacity: int, block_size: int, drop_last: bool = False, greedy: bool = False, unit: int = 1
    ) -> None:
        super().__init__(capacity)
        self.unit = unit
        self.block_size, self.drop_last, self.greedy = block_size, drop_last, greedy
        self.found: dict[Key, OrderedDict[int, None]] = {}
        self.keys: dict[int, Key] = {}
        self.references: dict[int, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()
        """Cached blocks that nobody holds, the next to be evicted first; they count as free."""
        self.named: dict[int, list[int]] = {}
        self.hit_tokens = 0
        self._next = 0

    # -- before admission --------------------------------------------------------------------

    def look_up(self, sequence: Sequence) -> list[int]:
        """The longest run of the sequence's blocks that are cached, one token at least left to compute."""
        run: list[int] = []
        for place in range((sequence.tokens - 1) // self.block_size):
            blocks = self.found.get(self._key(sequence, place))
            if blocks is None:
                break
            run.append(next(iter(blocks)))
        units = len(run) // self.unit - self.drop_last
        return run[: max(units, 0) * self.unit]

    def cost_of(self, hits: list[int]) -> int:
        """Free blocks that taking the hits takes."""
        return sum(block in self.idle for block in hits)

    def adopt(self, sequence: Sequence, hits: list[int]) -> None:
        """Let a sequence hold the blocks it hit."""
        for block in hits:
            if block in self.idle:
                del self.idle[block]
                self.free -= 1
            else:
                self.shared += 1
            self.references[block] += 1
        self.named[sequence.request] = list(hits)
        self.hit_tokens += len(hits) * self.block_size

    def _key(self, sequence: Sequence, place: int) -> Key:
        if sequence.hashes:
            return self._hashed_key(sequence, place)
        if (place + 1) * self.block_size <= sequence.prefix_tokens:
            return sequence.prefix_group, 0, place
        if self.greedy and sequence.prompt_tokens == sequence.prefix_tokens:
            return sequence.prefix_group, sequence.prompt_tokens, place
        return -1 - sequence.request, 0, place

    def _hashed_key(self, sequence: Sequence, place: int) -> Key:
        """The chain of the hashed block in which a block ends; that of the whole prompt for its answer."""
        end, prompt = (place + 1) * self.block_size, sequence.prompt_tokens
        if end <= prompt:
            return sequence.hashes[(end - 1) // sequence.hash_block], -1, place
        if self.greedy:
            return sequence.hashes[-1], -1 - prompt, place
        return -1 - sequence.request, 0, place

    # -- while it runs -----------------------------------------------------------------------

    def take(self, blocks: int) -> None:
        """Hand out blocks; blank ones first, then the cached one unused for longest."""
        super().take(blocks)
        while len(self.idle) > self.free:
            self._forget(self.idle.popitem(last=False)[0])

    def keep(self, batch: RunningBatch) -> None:
        """Cache the blocks that this step's grants fill with tokens that are final."""
        granted = batch.row(GRANTED)
        final = np.minimum(batch.row(COMPUTED) + granted, batch.row(TOKENS))
        full = np.where(granted > 0, final // self.block_size, 0)
        cached = batch.row(CACHED)
        for i in np.flatnonzero(full > cached).tolist():
            self._name(batch.live[int(batch.a[REQUEST, i])], int(full[i]))
            cached[i] = full[i]

    def _name(self, sequence: Sequence, full: int) -> None:
        named = self.named[sequence.request]
        for place in range(len(named), full):
            key, block = self._key(sequence, place), self._next
            self._next += 1
            self.found.setdefault(key, OrderedDict())[block] = None
            self.keys[block] = key
            self.references[block] = 1
            named.append(block)

    # -- afterwards --------------------------------------------------------------------------

    def release(self, request: int, held: int) -> None:
        """Let go of a request's blocks; those with content stay cached, its last ones to go first."""
        named = self.named.pop(request)
        self.give(held - len(named))
        for block in reversed(named):
            self.references[block] -= 1
            if self.references[block]:
                self.shared -= 1
            else:
                self.idle[block] = None
                self.free += 1

    def _forget(self, block: int) -> None:
        key = self.keys.pop(block)
        blocks = self.found[key]
        del blocks[block], self.references[block]
        if not blocks:
            del self.found[key]

    def check_batch(self, batch: RunningBatch) -> None:
        """Raise ``SimulationError`` unless references, names and free blocks agree with the batch."""
        held = dict.fromkeys(self.keys, 0)
        for request, named in self.named.items():
            for place, block in enumerate(named):
                held[block] += 1
                if self.keys[block] != self._key(batch.live[request], place):
                    raise SimulationError(f"request {request} holds block {block} of other content")
        if held != self.references or sum(max(n - 1, 0) for n in held.values()) != self.shared:
            raise SimulationError("references of cached blocks differ from who holds them")
        if {block for block, n in held.items() if not n} != set(self.idle) or len(self.idle) > self.free:
            raise SimulationError("idle cached blocks differ from blocks that nobody holds")
        counts = [len(self.named[r]) for r in batch.row(REQUEST).tolist()]
        if counts != batch.row(CACHED).tolist() or np.any(batch.row(CACHED) > batch.row(HELD)):
            raise SimulationError("a sequence has other cached blocks than the cache says")
