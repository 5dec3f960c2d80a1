"""Which model on which device, with which drafters, from which tables: the list of shipped profiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrate.compose.devices import A100, A100_OWN, B200, FA2_ROWS, H100, H200, Machine
from calibrate.compose.moe import ROUTING
from calibrate.compose.overheads import VLLM_010, VLLM_024, Overheads
from calibrate.compose.precision import BF16, FP8_BLOCK, MXFP4_EXPERTS, Precision
from calibrate.configs import Config, eagle3_head, from_config, mtp_head
from calibrate.deepseek_mtp import deepseek_mtp_head
from calibrate.profile import Assumption, DrafterKind, StatedError
from calibrate.shapes import Shape
from calibrate.sharding import WHOLE, Split

CREATED = "2026-11-29"
"""The date of these recipes, not of the run: the same tables must give the same bytes."""

LLAMA_8B = "model_configs/meta-llama--Meta-Llama-3.1-8B.json"
QWEN_27B = "model_configs/Qwen--Qwen3.5-27B.json"
QWEN_8B = "model_configs/Qwen--Qwen3-8B.json"
QWEN_32B = "model_configs/Qwen--Qwen3-32B.json"
LLAMA_70B = "model_configs/meta-llama--Meta-Llama-3.1-70B.json"
GPT_OSS = "model_configs/openai--gpt-oss-120b.json"
DEEPSEEK = "model_configs/deepseek-ai--DeepSeek-V3.json"
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
    as_target: bool = False
    """Whether it has the target's number formats, and experts laid as the target's (else bf16)."""


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


def _attention_error(relative: float, found: str) -> StatedError:
    """Of models with 32/8 heads, whose long steps are decode attention."""
    return StatedError(
        relative=relative,
        basis=f"mean error of decode attention, 32/8 heads, half of its cells from the others: {found} "
        "(docs/validation.md, case 8); Llama-3.1-8B's step on H100 is 8.8 % from SpecDecode-Bench's "
        "fitted forward (docs/profiles.md)",
    )


_H100_HEADS = _attention_error(0.10, "9.9 % on H100")
_A100_HEADS = _attention_error(0.10, "9.9 % on H100, whose table is scaled")
_B200_HEADS = _attention_error(0.11, "10.0 % on B200")
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
_TILES = Assumption(
    what="target.verify.attention_decode, drafters.eagle3.first.attention_decode",
    value=f"in a step that is wider than one token a sequence, {FA2_ROWS} query-key pairs per KV token",
    why=(
        "FlashAttention 2 packs the query heads of a KV head into one tile only where every sequence has one "
        "token (flash_api.cpp, seqlenq_ngroups_swapped); else each head computes whole tiles of "
        f"{FA2_ROWS} rows, at the rate of a prefill pair, beside reading the cache"
    ),
)
_A100 = (
    Assumption(
        what="target.verify.attention_decode, attention_prefill",
        value="H100 scaled by bandwidth and peak",
        why="the tables of this command hold no A100 attention",
    ),
    _TILES,
)
_LATENT = (
    Assumption(
        what="target.verify.attention_latent",
        value="wide verify passes pay a prefill pair's arithmetic times 3.4",
        why="the absorbed form scores 576 and sums 512 numbers where prefill has 192 and 128; not measured",
    ),
    Assumption(
        what="target.verify.linear",
        value="dense layers and shared experts at fp8 with one scale per tensor",
        why="the rows for scales in blocks take 57 us at any size: launches, which a graph does not pay",
    ),
)
_CASE_12 = StatedError(
    relative=0.12,
    basis="plain decoding of eight clients, vLLM 0.12, is 26 to 27 ms where this composes 25.6 "
    "(AltriaSetsuna/speculative-decoding-empirical, whose GPUs are not stated); drafting steps are 40 ms",
)

RECIPES = (
    Recipe(
        "llama-3.1-8b-h100",
        H100,
        LLAMA_8B,
        "Llama-3.1-8B",
        VLLM_010,
        (EAGLE3_LLAMA,),
        ngram=True,
        error=_H100_HEADS,
    ),
    Recipe("qwen3-8b-h100", H100, QWEN_8B, "Qwen3-8B", VLLM_024, (_EAGLE3_QWEN,), error=_H100_HEADS),
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
        error=_A100_HEADS,
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
        error=_B200_HEADS,
    ),
    Recipe(
        "qwen3.5-27b-b200", B200, QWEN_27B, "Qwen3.5-27B", VLLM_024, _DRAFTS_27B, assumptions=(*_GDN, *_B200)
    ),
    Recipe("qwen3-32b-h100", H100, QWEN_32B, "Qwen3-32B", VLLM_024, (EAGLE3_32B,), rows=False),
    Recipe(
        "qwen3-32b-h100-tp2",
        H100,
        QWEN_32B,
        "Qwen3-32B",
        VLLM_024,
        (EAGLE3_32B,),
        split=Split(tp=2),
        rows=False,
        error=NOT_COMPARED,
    ),
    Recipe(
        "qwen3-32b-a100-tp2",
        A100_OWN,
        QWEN_32B,
        "Qwen3-32B",
        VLLM_024,
        (EAGLE3_32B,),
        split=Split(tp=2),
        rows=False,
        assumptions=(_TILES,),
        error=_CASE_12,
    ),
    Recipe(
        "llama-3.1-70b-h100-tp4",
        H100,
        LLAMA_70B,
        "Llama-3.1-70B",
        VLLM_024,
        (Draft("eagle3", "eagle", eagle3_head, "draft_configs/llama3-70B-ealge3.json", 8),),
        split=Split(tp=4),
        ngram=True,
        rows=False,
        error=NOT_COMPARED,
    ),
    Recipe(
        "qwen3-30b-a3b-h100-tp2",
        H100,
        QWEN_30B,
        "Qwen3-30B-A3B",
        VLLM_024,
        (EAGLE3_30B,),
        max_tokens=2048,
        split=Split(tp=2),
        assumptions=_MOE,
        rows=False,
        error=NOT_COMPARED,
    ),
    Recipe(
        "gpt-oss-120b-h100",
        H100,
        GPT_OSS,
        "gpt-oss-120b",
        VLLM_024,
        (Draft("eagle3", "eagle", eagle3_head, "draft_configs/gpt-oss-120B-eagle3.json", 8),),
        precision=MXFP4_EXPERTS,
        assumptions=_MOE,
        rows=False,
        error=NOT_COMPARED,
    ),
    Recipe(
        "deepseek-v3-h200-tp8-ep8",
        H200,
        DEEPSEEK,
        "DeepSeek-V3",
        VLLM_024,
        (Draft("mtp", "mtp", deepseek_mtp_head, DEEPSEEK, 8, as_target=True),),
        split=Split(tp=8, ep=8),
        precision=FP8_BLOCK,
        assumptions=(*_MOE, *_LATENT),
        rows=False,
        error=NOT_COMPARED,
    ),
)
