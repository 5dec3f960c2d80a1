"""Which model on which device, with which drafters, from which tables: the list of shipped profiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrate.compose import overheads
from calibrate.compose.devices import A100, B200, H100, H200, Machine
from calibrate.compose.moe import ROUTING
from calibrate.compose.overheads import VLLM_010, VLLM_024, Overheads
from calibrate.compose.precision import BF16, Precision
from calibrate.configs import Config, eagle3_head, from_config, mtp_head
from calibrate.profile import Assumption, DrafterKind, StatedError
from calibrate.shapes import Shape
from calibrate.sharding import WHOLE, Split

CREATED = "2026-11-29"
"""The date of these recipes, not of the run: the same tables must give the same bytes."""

LLAMA_8B = "model_configs/meta-llama--Meta-Llama-3.1-8B.json"
QWEN_27B = "model_configs/Qwen--Qwen3.5-27B.json"
QWEN_8B = "model_configs/Qwen--Qwen3-8B.json"
QWEN_30B = "model_configs/Qwen--Qwen3-30B-A3B.json"


@dataclass(frozen=True)
class Draft:
    """A drafter of a recipe: its shape from a config file (``""``: the built-in 0.8B config)."""

    name: str
    kind: DrafterKind
    build: Callable[[Config, str], Shape]
    config: str
    max_depth: int
    tp: int | None = None
    """Devices that share it; ``None``: as many as share the target (vLLM's default)."""


@dataclass(frozen=True)
class Recipe:
    """One profile to compose. ``max_tokens`` is where its sparsest table ends.

    ``rows`` keeps the raw rows in the file; ``split`` lays the target over devices; ``precision`` is
    that of its products and experts.
    """

    name: str
    machine: Machine
    config: str
    model: str
    overheads: Overheads
    drafts: tuple[Draft, ...]
    max_tokens: int = 8192
    vidur_model: str = ""
    ngram: bool = False
    assumptions: tuple[Assumption, ...] = ()
    split: Split = WHOLE
    routing: str = ROUTING
    precision: Precision = BF16
    rows: bool = True
    error: StatedError | None = None


ERROR = StatedError(
    relative=0.09,
    basis="mean error of the composed Llama-3.1-8B step on H100 against SpecDecode-Bench's fitted forward, "
    "batch 1 to 256 (docs/profiles.md); taken for every composed profile, as no other was checked end to end",
)

NOT_COMPARED = StatedError(
    relative=0.12,
    basis="not compared: no whole step of this model on these devices was published; 9 % of composed ones "
    "on one device, and 3 % for what devices send each other",
)

EAGLE3_LLAMA = Draft("eagle3", "eagle", eagle3_head, "draft_configs/llama3-8B-eagle3.json", 8)
_EAGLE3_QWEN = Draft("eagle3", "eagle", eagle3_head, "draft_configs/qwen3-8b-eagle3.json", 8)
EAGLE3_32B = Draft("eagle3", "eagle", eagle3_head, "draft_configs/qwen3-32b-eagle3.json", 8)
EAGLE3_30B = Draft("eagle3", "eagle", eagle3_head, "draft_configs/qwen3-30B-A3B-eagle3.json", 8)
_DRAFTS_27B = (
    Draft("qwen3.5-0.8b", "draft_model", from_config, "", 16),
    Draft("mtp", "mtp", mtp_head, QWEN_27B, 8),
)
_GDN = (
    Assumption(
        what="target.verify.gdn",
        value="verifying k drafts reads one state and writes k+1",
        why="the table has decode and chunked prefill; the kernel that verifies drafts was not measured",
    ),
    Assumption(
        what="drafters.qwen3.5-0.8b",
        value="its shape",
        why="no config.json among the tables; the launch scripts of THUDM/slime and radixark/miles agree",
    ),
)
_MOE = (
    Assumption(
        what="target.verify.moe",
        value=f"routing {ROUTING}",
        why="real routing is skewed between balanced and power_law_1.2; the table has all three",
    ),
)
_B200 = (
    Assumption(
        what="target.verify.elementwise",
        value="Vidur's H100 kernels: launch kept, traffic divided by the bandwidth ratio 2.30",
        why="no small kernels were measured on B200",
    ),
)
_A100 = (
    Assumption(
        what="target.verify.attention_decode, attention_prefill",
        value="H100 scaled by bandwidth and peak; per query-context 0.32 ns per layer",
        why=(
            "no A100 attention table. FlashAttention 2 does not pack grouped queries when a sequence "
            "verifies more than one token: GSM8K and HumanEval steps at concurrency 32, k = 5, about 1,100 "
            "and 420 tokens of context (estimated), differ by 10 ns per query-context pair over 32 layers "
            f"({overheads.A100_STUDY})"
        ),
    ),
)

RECIPES = (
    Recipe("llama-3.1-8b-h100", H100, LLAMA_8B, "Llama-3.1-8B", VLLM_010, (EAGLE3_LLAMA,), ngram=True),
    Recipe("qwen3-8b-h100", H100, QWEN_8B, "Qwen3-8B", VLLM_024, (_EAGLE3_QWEN,)),
    Recipe("qwen3.5-27b-h200", H200, QWEN_27B, "Qwen3.5-27B", VLLM_024, _DRAFTS_27B, assumptions=_GDN),
    Recipe("qwen3.5-27b-h100", H100, QWEN_27B, "Qwen3.5-27B", VLLM_024, _DRAFTS_27B, assumptions=_GDN),
    Recipe(
        "llama-3.1-8b-a100",
        A100,
        LLAMA_8B,
        "Llama-3.1-8B",
        VLLM_024,
        (EAGLE3_LLAMA,),
        vidur_model="meta-llama/Meta-Llama-3-8B",
        ngram=True,
        assumptions=_A100,
    ),
    Recipe(
        "qwen3-30b-a3b-h100",
        H100,
        QWEN_30B,
        "Qwen3-30B-A3B",
        VLLM_024,
        (EAGLE3_30B,),
        max_tokens=2048,
        assumptions=_MOE,
    ),
    Recipe(
        "llama-3.1-8b-b200",
        B200,
        LLAMA_8B,
        "Llama-3.1-8B",
        VLLM_024,
        (EAGLE3_LLAMA,),
        ngram=True,
        assumptions=_B200,
    ),
    Recipe(
        "qwen3.5-27b-b200", B200, QWEN_27B, "Qwen3.5-27B", VLLM_024, _DRAFTS_27B, assumptions=(*_GDN, *_B200)
    ),
)
