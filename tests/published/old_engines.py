"""Profiles of engines other than the shipped ones', derived from the composed ones.

Kernels are those of the shipped composed profiles. The rest is estimated from numbers published
elsewhere. For the EAGLE-3 paper: the time of a draft pass from a depth sweep at batch 1 (vLLM PR
20780), the engine's own time from absolute speeds at batch 1; nothing is fitted to the ratios by
batch. For the A100 study: what its engine's code says of host and launches. For eight
clients of vLLM 0.12: what vLLM 0.10 takes beside its kernels on an H100.

    python -m tests.published.old_engines --out scenarios/published
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.overheads import VLLM_010
from calibrate.profile import Assumption, Drafter, Profile, Source, Term, load_profile, save_profile
from sim.scenario.catalogue import locate

COMMAND: Final = "python -m tests.published.old_engines --out scenarios/published"
PR: Final = "vLLM PR 20780, MT-Bench, batch 1"
PAPER: Final = "EAGLE-3 (arXiv 2503.01840), SGLang on H100, batch 1"

PASS_NS: Final = {"eagle": 730_000.0, "eagle3": 1_000_000.0}
"""Slope of acceptance length x TPOT over depths 2..7: 9.18 to 12.84 ms and 10.20 to 15.19 ms."""

TAU_EAGLE_3: Final = 2.29  # tokens per round at depth 3, PR 20780
EAGLE_TOKENS_PER_S: Final = 244.10
CONTEXT: Final = 580
"""KV tokens of a sequence half way through its answer (see the scenarios)."""

PREFILL_NS_PER_TOKEN: Final = 630.75
"""One decoder layer over a prompt token, from the profile of SpecDecode-Bench's constants."""


def sglang_h100() -> Profile:
    """SGLang 0.4.4: its loop hides behind the device without speculation, and does not with it."""
    base = _shipped("llama-3.1-8b-h100")
    base = base.model_copy(update={"target": base.target.model_copy(update={"host": (), "eager_extra": ()})})
    loop = sglang_loop_ns(base)
    assumptions = (
        Assumption(
            what="target.host",
            value="0",
            why=f"plain decoding takes 6.316 ms per token ({PAPER}), less than its composed kernels",
        ),
        Assumption(
            what="drafters.*.first.loop",
            value=f"{loop / 1e6:.3f} ms per step",
            why=(
                f"{TAU_EAGLE_3} tokens ({PR}) at {EAGLE_TOKENS_PER_S} tok/s ({PAPER}), less the verify pass "
                "and three draft passes. The published run may have verified a tree: then this is too low"
            ),
        ),
    )
    return _derived(base, "llama-3.1-8b-h100-sglang044", loop, assumptions)


def sglang_loop_ns(base: Profile) -> float:
    """What EAGLE's step at batch 1 leaves beside its passes, at least 0."""
    step = TAU_EAGLE_3 / EAGLE_TOKENS_PER_S * 1e9
    verify = pass_ns((*base.target.verify, *base.target.accept), decode_shape(1, CONTEXT, 4))
    return max(0.0, round(step - verify - 3 * PASS_NS["eagle"]))


def vllm_a100() -> Profile:
    """The paper's vLLM on an A100: host time as fitted to vLLM 0.10.1, and slower drafting."""
    base = _shipped("llama-3.1-8b-a100")
    host = Term(name="host", mark="assumed", source="SpecDecode-Bench, vLLM 0.10.1", fixed_ns=1_207_000)
    target = base.target.model_copy(update={"host": (host,), "accept": (), "eager_extra": ()})
    assumptions = (
        Assumption(
            what="device",
            value=base.device.name,
            why="the paper's text leaves open whether Table 5 is an RTX 3090 or an A100",
        ),
        Assumption(
            what="target.host",
            value="1.207 ms per step",
            why="the version is not stated; the oldest vLLM whose host time is published is 0.10.1",
        ),
    )
    return _derived(
        base.model_copy(update={"target": target}), "llama-3.1-8b-a100-vllm-old", 0.0, assumptions
    )


def vllm_010_a100() -> Profile:
    """An A100 without a number of the A100 study: vLLM 0.10's host and launches."""
    return _without_study("llama-3.1-8b-a100", "-vllm010", VLLM_010.host(), VLLM_010.launch()[0].fixed_ns)


def vllm_010_a100_tp2() -> Profile:
    """Qwen3-32B on two of them, under the same engine."""
    return _without_study("qwen3-32b-a100-tp2", "-vllm010", VLLM_010.host(), VLLM_010.launch()[0].fixed_ns)


def vllm_024_a100() -> Profile:
    """An A100 under vLLM 0.24: host and launches hidden, as its code says; no time of the A100 study."""
    return _without_study("llama-3.1-8b-a100", "-vllm024", (), 0.0)


def _without_study(shipped: str, engine: str, host: tuple[Term, ...], launch_ns: float) -> Profile:
    """The shipped profile with another host and launch time; its kernels and tiles are kept."""
    base = _shipped(shipped)
    eagle = base.drafters["eagle3"]
    drafter = eagle.model_copy(
        update={"first": _launched(eagle.first, launch_ns), "next": _launched(eagle.next, launch_ns)}
    )
    kept = tuple(each for each in base.assumptions if each.what not in BESIDE)
    return base.model_copy(
        update={
            "name": shipped + engine,
            "command": COMMAND,
            "target": base.target.model_copy(update={"host": host}),
            "drafters": {**base.drafters, "eagle3": drafter},
            "assumptions": (*_beside(bool(host)), *kept),
            "samples": (),
            "notes": "For published cases (docs/validation.md), not for planning.",
        }
    )


BESIDE: Final = ("target.host", "drafters.*.launch")
"""What the A100 study gave the shipped profile, by its assumptions' names."""


def _beside(shown: bool) -> tuple[Assumption, ...]:
    """What the engine takes beside its kernels: as on vLLM 0.10, or hidden."""
    if shown:
        found = VLLM_010.assumptions()
        return tuple(each for each in found if each.what in BESIDE)
    return (
        Assumption(
            what=", ".join(BESIDE),
            value="0",
            why=(
                "vLLM 0.24 schedules a step while the one before it runs, and its Model Runner V2 replays "
                "draft passes from two captured graphs (vllm/v1/worker/gpu/spec_decode/autoregressive): "
                "both hide behind the device"
            ),
        ),
    )


def _launched(terms: tuple[Term, ...], ns: float) -> tuple[Term, ...]:
    """A draft pass with another launch time."""
    launch = VLLM_010.launch()[0].model_copy(update={"fixed_ns": ns})
    return tuple(launch if term.name == "launch" else term for term in terms)


def _derived(base: Profile, name: str, loop_ns: float, assumptions: tuple[Assumption, ...]) -> Profile:
    work = base.drafters["eagle3"].work
    drafters = {
        kind: Drafter(kind="eagle", work=work, first=_first(ns, loop_ns), next=(_pass(ns),), max_depth=8)
        for kind, ns in PASS_NS.items()
    }
    passes = Assumption(
        what="drafters.*.pass",
        value="0.73 ms (EAGLE), 1.0 ms (EAGLE-3) at any batch",
        why=f"slope of step time over depth ({PR}); bound by launches, not by the sequences in it",
    )
    memory = Assumption(
        what="drafters.*.work", value="EAGLE-3's shape for both", why="it sets the memory left for KV only"
    )
    return base.model_copy(
        update={
            "name": name,
            "command": COMMAND,
            "drafters": drafters,
            "assumptions": (*assumptions, passes, memory),
            "sources": (
                *base.sources,
                Source(name=PR, what="acceptance length and TPOT by depth", date="2025-07"),
            ),
            "samples": (),
            "notes": "For a published case (docs/validation.md), not for planning.",
        }
    )


def _first(pass_ns_: float, loop_ns: float) -> tuple[Term, ...]:
    first = _pass(pass_ns_).model_copy(update={"per_ns": {"tokens": PREFILL_NS_PER_TOKEN}})
    loop = Term(name="loop", mark="assumed", source=PAPER, fixed_ns=loop_ns)
    return (first, loop) if loop_ns else (first,)


def _pass(ns: float) -> Term:
    return Term(name="pass", mark="composed", source=PR, fixed_ns=ns)


def _shipped(name: str) -> Profile:
    return load_profile(locate("profile", name, Path()))


PROFILES: Final = (sglang_h100, vllm_a100, vllm_010_a100, vllm_010_a100_tp2, vllm_024_a100)


def main(arguments: list[str] | None = None) -> None:
    """Write one file per profile."""
    parser = argparse.ArgumentParser(prog="tests.published.old_engines", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the profiles to")
    options = parser.parse_args(arguments)
    for make in PROFILES:
        profile = make()
        save_profile(profile, options.out / f"{profile.name}.json")


if __name__ == "__main__":
    main()
