"""The runs of a results folder: each in a folder of its own, named by what decides its bytes.

A run is written under another name and renamed once it is whole, so it is there with all its
files or not at all, whenever a process dies. Two processes that make the same run write the
same bytes, and it does not matter whose stay.
"""

from __future__ import annotations

import math
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError
from sim.policies.config import PolicyConfig
from sim.results.metrics import Metrics, Slo
from sim.results.run_records import RunRecords
from sim.results.stability import Stability
from sim.results.store import RECORD_FILES, RUN_FILE, RUN_SCHEMA, read_json, read_run, write_json, write_run
from sim.results.window import Warmup, Window
from sim.scenario.model import Scenario
from sim.sweep.identity import identity, run_name, short_digest

MEASURED_SCHEMA: Final = "leadline.measured/1"
_UNFINISHED: Final = ".unfinished-"
_STALE_S: Final = 24 * 3600


@dataclass(frozen=True)
class Facts:
    """What is known of a finished run without its records.

    ``cut`` is the warm-up that MSER-5 finds in it alone, ``None`` if it is unstable;
    ``breakdown_ns`` where its time went; ``extrapolated_share`` the share of steps larger than
    the profile's measured domain.
    """

    cut: int | None
    breakdown_ns: dict[str, float]
    extrapolated_share: float


@dataclass(frozen=True)
class Measure:
    """How a run is measured: the warm-up cut from it, and the limits that make a request good."""

    warmup: Warmup
    slos: Mapping[str, Slo]

    @property
    def file(self) -> str:
        """File of a run's metrics under this measure."""
        warmup = self.warmup if isinstance(self.warmup, str) else self.warmup.model_dump(mode="json")
        slos = {name: slo.model_dump(mode="json") for name, slo in self.slos.items()}
        return f"measured-{short_digest({'warmup': warmup, 'slos': slos})}.json"


@dataclass(frozen=True)
class RunFolder:
    """Where one run is kept; ``made_from`` is its identity, written beside it."""

    path: Path
    made_from: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> Facts | None:
        """What is known of the run, ``None`` if it is not there or cannot be read."""
        try:
            found = read_json(self.path / RUN_FILE, RUN_SCHEMA)["facts"]
            return Facts(found["cut"], dict(found["breakdown_ns"]), found["extrapolated_share"])
        except (InputError, KeyError):
            return None

    def keep(self, records: RunRecords, facts: Facts) -> None:
        """Write the run, all of it or nothing; raises ``InputError`` where that cannot be done."""
        temporary = self.path.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
        try:
            write_run(temporary, records, {"facts": asdict(facts), "made_from": dict(self.made_from)})
            self._put(temporary)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _put(self, temporary: Path) -> None:
        """Rename a whole run into its place; one that is there already gets the files that it lacks."""
        try:
            temporary.rename(self.path)
        except OSError:
            for name in (*RECORD_FILES, RUN_FILE):
                os.replace(temporary / name, self.path / name)

    def records(self) -> RunRecords | None:
        """The run's records, ``None`` where they are not there or cannot be read."""
        try:
            return read_run(self.path)
        except (InputError, KeyError):
            return None

    @property
    def has_records(self) -> bool:
        """Whether the records were kept."""
        return all((self.path / name).is_file() for name in RECORD_FILES)

    def drop_records(self) -> None:
        """Remove the records, and keep what was measured."""
        for name in RECORD_FILES:
            (self.path / name).unlink(missing_ok=True)

    def metrics(self, measure: Measure) -> Metrics | None:
        """The run's metrics under a measure, if they were taken before."""
        try:
            data = read_json(self.path / measure.file, MEASURED_SCHEMA)
            return Metrics(
                {name: float(value) for name, value in data["values"].items()},
                Window(**data["window"]),
                Stability(**{name: _number(value) for name, value in data["stability"].items()}),
            )
        except (InputError, KeyError, TypeError, ValueError):
            return None

    def keep_metrics(self, measure: Measure, metrics: Metrics) -> None:
        """Keep the run's metrics; floats that JSON cannot hold are written as text."""
        data = {
            "schema": MEASURED_SCHEMA,
            "values": {name: _text(value) for name, value in metrics.values.items()},
            "window": asdict(metrics.window),
            "stability": {name: _text(value) for name, value in asdict(metrics.stability).items()},
        }
        write_json(self.path / measure.file, data)


@dataclass(frozen=True)
class Folder:
    """A results folder."""

    path: Path

    @property
    def runs(self) -> Path:
        """Where its runs are."""
        return self.path / "runs"

    def run(
        self, settings: Mapping[str, Any], scenario: Scenario, policy: PolicyConfig, seed: int
    ) -> RunFolder:
        """The folder of one run, whether it is there or not; ``settings`` is the cell's ``settings_of``."""
        made_from = identity(settings, scenario, policy, seed)
        return RunFolder(self.runs / run_name(made_from, policy), made_from)

    def prepare(self) -> None:
        """Make the folder; raises ``InputError`` where that cannot be done.

        What processes that died left behind more than a day ago is removed; others may be at work.
        """
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        for path in self.runs.glob(f"{_UNFINISHED}*"):
            try:
                if time.time() - path.stat().st_mtime > _STALE_S:
                    shutil.rmtree(path, ignore_errors=True)
            except OSError:
                continue  # another process was quicker


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be written ({error.strerror})")


def _text(value: Any) -> Any:
    """A float that is not finite as text, anything else as it is."""
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value
