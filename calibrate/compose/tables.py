"""Where the measured tables lie, how they are read, and the ledger of what was taken from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from calibrate.profile import Sample, Source

Floats = NDArray[np.float64]

AIC = "ai-dynamo/aiconfigurator measured kernels"
AIC_LICENCE = "Apache-2.0"
VIDUR = "microsoft/vidur data/profiling/compute"
VIDUR_LICENCE = "MIT"
PACKAGE = "aiconfigurator-core 0.12.0 from PyPI"
"""Whose ``systems/data`` folder has every table; the flat folder holds some of them."""


class TableError(ValueError):
    """A table that is missing, or that lacks the rows that a term needs."""


@dataclass(frozen=True)
class Folders:
    """The three input folders: kernel tables, ground truth (MoE and Vidur CSVs), model configs.

    ``tables`` is flat (``GPU_FAMILY_vllm_VERSION.parquet``) or the ``systems/data`` folder of an
    installed aiconfigurator package (``GPU/GROUP/vllm/VERSION/FAMILY_perf.parquet``); ``package`` is
    such a folder for what a flat ``tables`` lacks. ``bundles`` is LLMServingSim's ``profiler/perf``.
    """

    tables: Path
    groundtruth: Path
    configs: Path
    package: Path | None = None
    bundles: Path | None = None

    def perf(self, gpu: str, family: str) -> Path:
        """The one Parquet file of ``family`` on ``gpu``, whatever its engine version."""
        found = sorted(self.tables.glob(f"{gpu}_{family}_vllm_*.parquet"))
        found = found or self._packaged(f"{gpu}/*/vllm/*/{family}_perf.parquet")
        if not found:
            raise TableError(
                f"{self.tables}: no {gpu}_{family}_vllm_*.parquet, nor {gpu}/*/vllm/*/{family}_perf.parquet; "
                f"give --tables, or --package with the systems/data folder of {PACKAGE}"
            )
        return found[-1]

    def nccl(self, gpu: str) -> Path:
        """NCCL's collectives on ``gpu``, the newest version."""
        found = sorted(self.tables.glob(f"{gpu}_nccl_*.parquet"))
        found = found or self._packaged(f"{gpu}/comm/nccl/*/nccl_perf.parquet")
        if not found:
            raise TableError(
                f"{self.tables}: no {gpu}_nccl_*.parquet, nor {gpu}/comm/nccl/*/nccl_perf.parquet; "
                f"give --package with the systems/data folder of {PACKAGE}"
            )
        return found[-1]

    def _packaged(self, pattern: str) -> list[Path]:
        folders = (self.tables, *(() if self.package is None else (self.package,)))
        return next((found for folder in folders if (found := sorted(folder.glob(pattern)))), [])

    def bundle(self, device: str, model: str, tp: int) -> Path:
        """LLMServingSim's measurements of ``model`` on ``tp`` devices, bf16."""
        if self.bundles is None:
            raise TableError("no folder of LLMServingSim profiles; give --bundles (its profiler/perf)")
        found = self.bundles / device / model / "bf16" / f"tp{tp}"
        if not found.is_dir():
            raise TableError(f"{found}: not found; give --bundles with LLMServingSim's profiler/perf")
        return found

    @property
    def moe(self) -> Path:
        """Fused mixture-of-experts layers of all devices."""
        return self.groundtruth / "aiconfigurator_moe_by_tokens.csv"

    @property
    def vidur(self) -> Path:
        """Vidur's kernels of one decoder layer."""
        return self.groundtruth / "vidur_mlp_profile_by_num_tokens.csv"


@dataclass
class Ledger:
    """Sources and raw rows behind one profile, each once, in order of first use."""

    keeps_rows: bool = True
    """Whether raw rows go into the profile; without them its digests say what they were."""
    _sources: dict[str, Source] = field(default_factory=dict)
    _samples: dict[tuple[str, ...], Sample] = field(default_factory=dict)

    def source(self, key: str, path: Path, what: str, licence: str) -> str:
        """Record a table file with its digest; returns ``key``."""
        if key not in self._sources:
            self._sources[key] = Source(
                name=key, what=what, licence=licence, date="2026-08", file=_name(path), sha256=_sha256(path)
            )
        return key

    def publication(self, key: str, what: str, licence: str = "", date: str = "") -> str:
        """Record a source that is a text, not a table; returns ``key``."""
        self._sources.setdefault(key, Source(name=key, what=what, licence=licence, date=date))
        return key

    def keep(self, op: str, source: str, ms: float, **shape: Any) -> None:
        """Record one raw row (latency in milliseconds, as the tables have it)."""
        if not self.keeps_rows:
            return
        identity = (op, source, *(f"{name}={value}" for name, value in shape.items()))
        self._samples[identity] = Sample(op=op, shape=shape, us=significant(ms * 1e3), source=source)

    @property
    def sources(self) -> tuple[Source, ...]:
        """What was taken, in order of first use."""
        return tuple(self._sources.values())

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Raw rows, in order of first use."""
        return tuple(self._samples.values())


def _name(path: Path) -> str:
    """The flat name of a table, in whichever of the two layouts it lies; of a bundle its own path."""
    parts = path.parts
    if path.name == "nccl_perf.parquet" and len(parts) > 4:
        return f"{parts[-5]}_nccl_{parts[-2]}.parquet"
    if path.name.endswith("_perf.parquet") and len(parts) > 4:
        return f"{parts[-5]}_{path.name.removesuffix('_perf.parquet')}_{parts[-3]}_{parts[-2]}.parquet"
    if path.suffix == ".csv" and path.parent.name.startswith("tp") and len(parts) > 5:
        return "/".join(parts[-6:])
    return path.name


def significant(value: float, digits: int = 6) -> float:
    """``value`` to ``digits`` significant digits, so that files do not differ in a last bit."""
    return float(f"{float(value):.{digits}g}")


def rows(path: Path, columns: str, where: str, order: str) -> dict[str, NDArray[Any]]:
    """Columns of one table as arrays; ``TableError`` when no row matches."""
    if not path.exists():
        raise TableError(f"{path}: not found")
    reader = "read_parquet(?)" if path.suffix == ".parquet" else "read_csv(?, comment = '#')"
    query = f"SELECT {columns} FROM {reader} WHERE {where} ORDER BY {order}"
    table = duckdb.execute(query, [str(path)]).fetchnumpy()
    arrays = {name: np.ma.filled(column, np.nan) for name, column in table.items()}
    if not len(next(iter(arrays.values()))):
        raise TableError(f"{path}: no row with {where}")
    return arrays


def each(table: dict[str, NDArray[Any]]) -> Iterator[dict[str, Any]]:
    """The rows of ``rows()`` as plain Python values."""
    names = list(table)
    for values in zip(*(table[name].tolist() for name in names), strict=True):
        yield dict(zip(names, values, strict=True))


@cache
def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
