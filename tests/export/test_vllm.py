"""Exported settings in the hands of the real vLLM: its own parser, config classes and look-up.

Needs an interpreter that has vLLM (a CPU build is enough): set ``LEADLINE_VLLM_PYTHON`` to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sim.export import vllm
from sim.policies.config import Bounds
from sim.policies.per_batch_size import PerBatchSizeConfig
from tests.engine.modelled import view
from tests.export.wishes import ROWS, cost, policy, wish

PYTHON = os.environ.get("LEADLINE_VLLM_PYTHON") or (sys.executable if find_spec("vllm") else None)
pytestmark = pytest.mark.skipif(PYTHON is None, reason="needs vLLM; set LEADLINE_VLLM_PYTHON")

_TARGET = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
_EAGLE = {"model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 256}

SCRIPT = """
import json, os, sys
os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
from vllm.config import SpeculativeConfig
from vllm.config.model import ModelConfig
from vllm.config.parallel import ParallelConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

asked = json.load(sys.stdin)
parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
answers = []
for words in asked["commands"]:
    args = parser.parse_args(["--model", asked["target"], *words])
    told = dict(args.speculative_config)
    target = ModelConfig(model=asked["target"], tokenizer=asked["target"], skip_tokenizer_init=True)
    made = SpeculativeConfig(**told, target_model_config=target, target_parallel_config=ParallelConfig())
    rows = made.num_speculative_tokens_per_batch_size
    table = rows and build_dynamic_sd_schedule_lookup(rows, 256, made.num_speculative_tokens)
    answers.append({
        "method": made.method,
        "k": made.num_speculative_tokens,
        "adaptive": made.enable_adaptive_verification,
        "table": table,
    })
print("ANSWERS " + json.dumps(answers))
"""

ASKED = {
    "static": (policy("static", k=3), "eagle3"),
    "table": (policy("goodput"), "eagle3"),
    "own table": (policy("per_batch_size"), "eagle3"),
    "adaptive": (policy("vllm_adaptive", k_max=5), "eagle3"),
    "ngram": (policy("static", k=4), "ngram"),
    "ngram table": (policy("goodput"), "ngram"),
    "draft model": (policy("static", k=2), "draft_model"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What vLLM makes of every command, in one process of its own."""
    folder = tmp_path_factory.mktemp("models")
    for name, config in (("target", _TARGET), ("eagle3", _EAGLE), ("draft_model", _TARGET)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({**_SHAPE, **config}))
    commands = [_words(name, folder) for name in ASKED]
    asked = json.dumps({"target": str(folder / "target"), "commands": commands})
    done = subprocess.run(
        [str(PYTHON), "-c", SCRIPT], input=asked, capture_output=True, text=True, check=False, timeout=300
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS ")]
    assert found, done.stderr[-3000:]
    return dict(zip(ASKED, json.loads(found[0].removeprefix("ANSWERS ")), strict=True))


def _words(name: str, folder: Path) -> list[str]:
    """The exported flags as a shell would pass them, with the placeholder filled in."""
    import shlex

    of, family = ASKED[name]
    text = vllm.express(wish(of, family)).text
    return shlex.split(text.replace(f"<PATH of {family}>", str(folder / family)))


def test_vllm_accepts_every_exported_setting(answers: dict[str, dict[str, Any]]) -> None:
    assert {name: answer["method"] for name, answer in answers.items()} == {
        "static": "eagle3",
        "table": "eagle3",
        "own table": "eagle3",
        "adaptive": "eagle3",
        "ngram": "ngram",
        "ngram table": "ngram",
        "draft model": "draft_model",
    }
    assert answers["static"]["k"] == 3
    assert [name for name, answer in answers.items() if answer["adaptive"]] == ["adaptive"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [("table", ROWS), ("ngram table", ROWS), ("own table", policy("per_batch_size").table)],  # type: ignore[attr-defined]
)
def test_vllms_own_look_up_gives_the_depth_that_was_asked_for(
    name: str, rows: Any, answers: dict[str, dict[str, Any]]
) -> None:
    """At every batch size, vLLM's dense table holds what our policy of that table answers."""
    table = PerBatchSizeConfig(policy="per_batch_size", table=rows).build(Bounds(16))
    told = answers[name]["table"]
    for batch in range(1, 257):
        assert told[batch] == table.draft_depths(view(cost(), batch, 500)), batch
