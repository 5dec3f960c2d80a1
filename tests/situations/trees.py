"""U06: breadth against depth on one backend, and the batch from which breadth no longer pays."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from sim.sweep import run_scenario
from tests.situations.case import Case, Check, falls, signed, three, within
from tests.situations.replay import scenario, value

SEQUENCES: Final = (1, 8, 16, 24, 32, 48, 64)
CHAIN: Final = (114.27, 847.38, 1567.5)
TREE: Final = (128.63, 902.72, 1640.95)
CHAIN_TAU, TREE_TAU = 2.05, 2.37
CHAIN_MS: Final = (17.940, 19.448, 20.925)
"""Steps of the chain: acceptance length (2.05, 2.06, 2.05) x sequences / tok/s."""

MORE_TOKENS: Final = 6
TOKEN_MS: Final = 0.021
TREE_MS: Final = 1e3 * 2.37 / 128.63 - CHAIN_MS[0] - MORE_TOKENS * TOKEN_MS
"""What the tree's step at one sequence takes beyond six more verified tokens."""

LOADS: Final = tuple(f"c={n}" for n in SEQUENCES)
CHAIN_NAME, TREE_NAME = "static(k=2)", "tree(width=3, k=2, nodes=8)"
TREE_POLICY: Final = {"policy": "tree", "width": 3, "k": 2, "nodes": 8}


def closed_form(sequences: float) -> float:
    """Tree over chain when a tree's step is the chain's and six more tokens for every sequence."""
    slope = (CHAIN_MS[2] - CHAIN_MS[1]) / 8
    chain = float(np.interp(sequences, SEQUENCES[:3], CHAIN_MS)) + slope * max(sequences - 16, 0)
    return TREE_TAU / CHAIN_TAU * chain / (chain + MORE_TOKENS * TOKEN_MS * sequences)


@cache
def slower_tree() -> tuple[float, ...]:
    """Tree over chain when every step of the tree takes ``TREE_MS`` more."""
    more = {"engine__step_overhead": f"{1e3 * TREE_MS:.0f}us", "policies": [TREE_POLICY]}
    cells = run_scenario(scenario("u06-trees", **more)).comparison.cells
    trees = {cell.load: cell.policy(TREE_NAME).mean("output_tokens_per_s") for cell in cells}
    return tuple(trees[at] / value("u06-trees", CHAIN_NAME, "output_tokens_per_s", at) for at in LOADS)


def first_loss(ratios: tuple[float, ...]) -> int:
    """Index of the first number of sequences at which the tree is behind."""
    return next(i for i, ratio in enumerate(ratios) if ratio < 1)


def u06() -> Case:
    """A tree's gain shrinks with the batch, and turns into a loss."""
    rates = {
        policy: [value("u06-trees", policy, "output_tokens_per_s", at) for at in LOADS]
        for policy in (CHAIN_NAME, TREE_NAME)
    }
    got = tuple(t / c for t, c in zip(rates[TREE_NAME], rates[CHAIN_NAME], strict=True))
    seen = tuple(t / c for t, c in zip(TREE, CHAIN, strict=True))
    law, slower = tuple(closed_form(n) for n in SEQUENCES), slower_tree()
    unknown = ("",) * 4
    turn = next(n for n in range(1, 65) if closed_form(n) < 1)
    lost = first_loss(got)
    won, behind = SEQUENCES[lost - 1], SEQUENCES[lost]
    return Case(
        "U06",
        "Up to how many sequences does a draft tree beat a chain?",
        "vLLM PR 22752: Llama-3.1-8B with EAGLE, MT-Bench, chain and tree on the same (tree) attention, H100",
        ("u06-trees",),
        f"""Steps from the chain's tok/s; acceptance lengths 2.05 and 2.37. A verified token costs 21 us, as
        SpecDecode-Bench fitted to vLLM with this model (arXiv 2601.11580); the tree verifies six more than
        the chain. Assumed, as the part of the thread that was read does not say: the chain is two deep (the
        head gave 2.10 at two and 2.29 at three elsewhere), and the tree has the two levels and eight nodes of
        the thread's example. Nothing is fitted to the tree's speed, but for the row that adds the
        {TREE_MS:.2f} ms by which its step at one sequence exceeds that.""",
        (
            ("sequences", *map(str, SEQUENCES)),
            ("reported tree / chain", *three(seen), *unknown),
            ("simulated", *three(got)),
            ("difference", *signed(got[:3], seen), *unknown),
            ("by formula", *three(law)),
            (f"tree's steps {TREE_MS:.2f} ms longer", *three(slower)),
            ("difference", *signed(slower[:3], seen), *unknown),
        ),
        (
            Check("The chain's speed comes back to within 2 %.", _near(rates[CHAIN_NAME][:3], CHAIN, 0.02)),
            Check("The tree's gain falls with every batch size.", falls(got)),
            Check("1, 8 and 16 sequences are within 0.04 of the report.", within(got[:3], seen, 0.04)),
            Check(
                "With the tree's step fitted at one sequence, 8 and 16 are within 0.02.",
                within(slower[1:3], seen[1:], 0.02),
            ),
            Check("The formula and the simulation agree to 0.01.", within(got, law, 0.01)),
            Check(
                f"The tree wins at {won} sequences and loses at {behind}, as by formula.",
                first_loss(law) == lost,
            ),
        ),
        f"""By formula the tree loses from {turn} sequences on. Its gain in tokens is the same at any batch,
        16 %; its cost, six more tokens per sequence, grows with the batch, while the step that it is
        compared with hardly does: 18 ms at one sequence, about twice what the model needs on an H100. On a
        faster step it turns earlier: the thread says that against a chain on FlashAttention 3 the tree
        loses at its larger batches.""",
    )


def _near(got: list[float], seen: tuple[float, ...], share: float) -> bool:
    return bool(np.allclose(got, seen, rtol=share))
