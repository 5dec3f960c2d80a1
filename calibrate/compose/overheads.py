"""What no kernel table holds: the engine's host loop, draft launches, the sampler, missed graphs.

Every number here is assumed for the device and model it is used for; each says where it was seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.tables import significant
from calibrate.profile import Assumption, Curve, Term

SDBENCH = "SpecDecode-Bench (arXiv 2601.11580), vLLM 0.10.1, H100, Llama-3.1-8B"
A100_STUDY = "A100 EAGLE-3 factorial (SpecDecoding-Study-vLLM-SGLang), vLLM 0.24.0, Llama-3.1-8B"
EAGER = "adixg/vllm-specdecode-cost-model, H100, Qwen3-1.7B (28 layers), 32..512 tokens"

SAMPLER_NS = 45_000
EAGER_NS_PER_LAYER = 8.3e6 / 28
DYNAMIC_SD = "vLLM issue 49548 (H100 NVL, a 31B model of 60 layers)"
PIECEWISE_NS_PER_LAYER = 16_000
EAGER_TOKENS = (1, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048)


@dataclass(frozen=True)
class Overheads:
    """Host time per step and launch time per draft pass of one engine generation, in ns."""

    host_ns: float
    launch_ns: float
    source: str
    why_host: str
    why_launch: str

    def host(self) -> tuple[Term, ...]:
        """What the engine's loop adds to every step."""
        return (Term(name="host", mark="assumed", source=self.source, fixed_ns=self.host_ns),)

    def launch(self) -> tuple[Term, ...]:
        """What one draft pass costs beside its kernels."""
        return (Term(name="launch", mark="assumed", source=self.source, fixed_ns=self.launch_ns),)

    def assumptions(self) -> tuple[Assumption, ...]:
        """Each of these numbers with its reason, for the profile."""
        return (
            Assumption(what="target.host", value=f"{self.host_ns / 1e6:.3f} ms per step", why=self.why_host),
            Assumption(
                what="target.accept",
                value=f"{SAMPLER_NS / 1e6:.3f} ms per step",
                why=(
                    f"sampling is 0.63 % of a batch-1 step of about 7.1 ms and shrinks with batch, so it is "
                    f"a fixed cost ({SDBENCH}, Fig. 4)"
                ),
            ),
            Assumption(
                what="drafters.*.launch", value=f"{self.launch_ns / 1e6:.3f} ms per pass", why=self.why_launch
            ),
            Assumption(
                what="target.eager_extra",
                value=f"{EAGER_NS_PER_LAYER / 1e6:.3f} ms per layer, less the captured step",
                why=(
                    f"an eager step is launch-bound at 8.2-8.5 ms ({EAGER}); a longer step hides it. "
                    "A slower loss with many sequences (vLLM issue 49548: +21.6 % at 189) is not in this term"
                ),
            ),
            Assumption(
                what="target.piecewise_extra",
                value=f"{PIECEWISE_NS_PER_LAYER / 1e3:g} us per layer",
                why=(
                    f"steps of two sequences lose 0.94 ms beside whole graphs ({DYNAMIC_SD}); other changes "
                    "of those steps are in it: an upper bound. What grows with sequences is left out"
                ),
            ),
        )


VLLM_010 = Overheads(
    host_ns=1_207_000 - SAMPLER_NS,
    launch_ns=200_000,
    source=SDBENCH,
    why_host=(
        f"fitted overhead of 1.207 ms per step, sampling included ({SDBENCH}); the same source's forward "
        "fit starts at 5.886 ms. Newer engines hide most of it behind the device (0.145 ms on vLLM 0.24)"
    ),
    why_launch=(
        "three EAGLE-3 passes take 1.98, 1.74 and 1.91 ms at batch 1, 64, 128 (Fig. 4 shares of the fitted "
        "step); the composed kernels take 0.92, 1.28 and 1.54 ms: 0.35, 0.15 and 0.12 ms per pass are left, "
        "0.2 in the mean. Per pass in other engines: 1.0 ms EAGLE-3 without draft graphs (vLLM PR 20780, "
        "kernels included)"
    ),
)

VLLM_024 = Overheads(
    host_ns=100_000,
    launch_ns=20_000,
    source=A100_STUDY,
    why_host=(
        f"plain decoding at batch 1 takes 10.81 ms ({A100_STUDY}) against 10.7 ms of composed kernels: the "
        "host is hidden behind the device (asynchronous scheduling). vLLM 0.10 left 1.207 ms visible"
    ),
    why_launch=(
        "five EAGLE-3 passes and five more verified tokens add 2.82 ms at batch 1 (0.56 ms per pass, "
        f"{A100_STUDY}); the composed kernels alone add that much, so launching a captured pass costs "
        "next to nothing"
    ),
)


def sampler() -> tuple[Term, ...]:
    """Sampling and rejection on the device."""
    return (Term(name="sampler", mark="assumed", source=SDBENCH, fixed_ns=SAMPLER_NS),)


def eager_extra(verify: Iterable[Term], layers: int) -> tuple[Term, ...]:
    """What a step costs more when it misses the captured graphs: launches, until work hides them."""
    terms = tuple(verify)
    floor = EAGER_NS_PER_LAYER * layers
    extra = [max(0.0, floor - pass_ns(terms, decode_shape(tokens, 0))) for tokens in EAGER_TOKENS]
    curve = Curve(x=EAGER_TOKENS, ns=tuple(significant(value) for value in extra))
    source = f"{EAGER}: {floor / 1e6:.1f} ms of launches for {layers} layers, less the captured step"
    return (Term(name="eager_extra", mark="assumed", source=source, curve=curve),)


def piecewise_extra(layers: int) -> tuple[Term, ...]:
    """What a step costs more whose graph is in pieces: attention launched apart in every layer."""
    source = f"{DYNAMIC_SD}: {PIECEWISE_NS_PER_LAYER / 1e3:g} us for each of {layers} layers"
    fixed = float(PIECEWISE_NS_PER_LAYER * layers)
    return (Term(name="piecewise_extra", mark="assumed", source=source, fixed_ns=fixed),)
