"""Profiles from what others measured, or from what a deployment logged.

    leadline profile import FORMAT FILE... --name NAME --device GPU --config CONFIG --out FOLDER

An importer reads files into a ``Reading``: terms, samples, sources, what had to be assumed and how far
off that leaves a step. ``assemble`` makes the profile. A bad row is a ``ProfileError`` that names the
file, the line, what is wrong and what would be right.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calibrate.importers.aiconfigurator import read_aiconfigurator
from calibrate.importers.common import About, Importer, Reading, assemble
from calibrate.importers.engines import read_sglang, read_trtllm, read_vllm
from calibrate.importers.points import read_points
from calibrate.importers.serving import read_serving
from calibrate.importers.vidur import read_vidur
from calibrate.profile import Profile

FORMATS: dict[str, tuple[Importer, str]] = {
    "csv": (read_points, "a table n_tokens,ms of step times"),
    "serving-log": (read_serving, "vLLM bench or AIPerf JSON results, or a CSV, at several concurrencies"),
    "vllm-cost": (read_vllm, "vLLM's adaptive-verification cost tables (CSV curve,x,ms or JSON)"),
    "sglang-sps": (read_sglang, "SGLang's DSpark steps-per-second table (JSON)"),
    "trtllm-cost": (read_trtllm, "TensorRT-LLM's DSpark cost table (JSON)"),
    "vidur": (read_vidur, "Vidur's mlp.csv"),
    "aiconfigurator": (
        read_aiconfigurator,
        "a folder of aiconfigurator tables, or none: the installed package",
    ),
}
"""Every format: its importer, and what it reads."""


def import_profile(name: str, files: Sequence[Path], about: About) -> Profile:
    """The profile of ``files`` in format ``name`` (a key of ``FORMATS``); ``ProfileError`` on bad input."""
    importer, _ = FORMATS[name]
    return assemble(about, importer(files, about))


__all__ = ["FORMATS", "About", "Reading", "import_profile"]
