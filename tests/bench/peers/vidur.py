"""Vidur (github.com/microsoft/vidur, main): replays a CSV of requests."""

from __future__ import annotations

import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.bench.peers.sides import Absent, Facts, Side
from tests.bench.peers.vidur_attention import write_attention

MODEL: Final = "meta-llama/Meta-Llama-3-8B"
LENGTHS: Final = "data/processed_traces/splitwise_conv.csv"
BATCH: Final = 128  # also the largest batch of its tables
CHUNK: Final = 512
NAME: Final = "Vidur"
_FOREST: Final = "--random_forrest_execution_time_predictor_config_"
_TIME: Final = re.compile(r"INFO (\d\d-\d\d \d\d:\d\d:\d\d) simulator\.py")


def lengths_of(home: Path) -> Path:
    """The lengths that Vidur ships."""
    return home / "vidur" / LENGTHS


def vidur(home: Path, trace: Path, results: Path, count: int) -> Side | Absent:
    """Vidur on a trace; ``home`` has ``vidur``, a checkout, and ``vidur-env``, a virtual environment."""
    checkout, python = home / "vidur", home / "vidur-env" / "bin" / "python"
    if not (checkout / "vidur" / "main.py").exists() or not python.exists():
        return Absent(NAME, "no checkout vidur, or no environment vidur-env, in the folder of peers")
    attention = checkout / "data" / "profiling" / "compute" / "a100" / MODEL / "attention.csv"
    made = not attention.exists() or attention.stat().st_size < 4 * 2**20
    if made:
        write_attention(attention)
    return Side(
        NAME,
        _version(checkout),
        (str(python), "-m", "vidur.main", *_flags(trace, results, home / "vidur-cache")),
        checkout,
        lambda output: _facts(output, count),
        {"WANDB_MODE": "disabled"},
        notes="attention.csv made from a roofline: the snapshot lacks it" if made else "",
    )


def _flags(trace: Path, results: Path, cache: Path) -> tuple[str, ...]:
    pairs = {
        "--replica_config_device": "a100",
        "--replica_config_model_name": MODEL,
        "--cluster_config_num_replicas": "1",
        "--request_generator_config_type": "trace_replay",
        "--trace_request_generator_config_trace_file": str(trace),
        "--trace_request_generator_config_max_tokens": "4096",
        "--replica_scheduler_config_type": "sarathi",
        "--sarathi_scheduler_config_batch_size_cap": str(BATCH),
        "--sarathi_scheduler_config_chunk_size": str(CHUNK),
        "--execution_time_predictor_config_type": "random_forrest",
        f"{_FOREST}num_estimators": "100",
        f"{_FOREST}max_depth": "32",
        f"{_FOREST}min_samples_split": "2",
        f"{_FOREST}k_fold_cv_splits": "2",
        "--metrics_config_output_dir": str(results),
        "--metrics_config_cache_dir": str(cache),
    }
    listed = tuple(word for pair in pairs.items() for word in pair)
    return (*listed, "--no-metrics_config_store_plots", "--no-metrics_config_enable_chrome_trace")


def _version(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "log", "-1", "--format=main of %cs, %h", "--abbrev=8"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _facts(output: str, count: int) -> Facts:
    """Its log has whole seconds; a run that leaves requests behind says so by an exception."""
    ended = re.search(r"Simulation ended at: ([\d.]+)s", output)
    if ended is None:
        raise SystemExit("Vidur's output does not say when the simulation ended")
    times = [datetime.strptime(text, "%m-%d %H:%M:%S") for text in _TIME.findall(output)]
    return Facts(count, float(ended[1]), (times[1] - times[0]).total_seconds())
