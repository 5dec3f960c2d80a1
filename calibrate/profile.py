"""The cost profile: what a serving step costs on one device, and where each number comes from.

A profile is a JSON file. It holds, for the target and for each drafter, *passes*; a pass is a
sum of *terms*; a term is a curve over one variable plus a fixed and a linear part:

    ns(shape) = curve(shape[curve.over]) + fixed_ns + sum(per_ns[v] * shape[v] for v in per_ns)

The variables of a shape (all counts are of one forward pass):

    tokens                tokens in the pass, decode rows (k+1 each) and prefill chunks together
    sequences             sequences with at least one token in the pass
    logits                positions whose next token is sampled or verified (lm_head, sampler)
    context_tokens        KV tokens read, summed over decoding sequences
    query_context_tokens  query tokens x KV tokens, summed over decoding sequences
    prefill_pairs         query-key pairs of the prefill chunks: sum chunk * (prefix + chunk / 2)
    wide_context_tokens   context_tokens of a pass in which some sequence has more than one token, else 0:
                          FlashAttention 2 packs the query heads that share a KV head only where none has

Layers whose attention reaches ``window_tokens`` back at most have three more. Each sums what its
namesake does, with no query reading more than the window:

    window_context_tokens, window_query_context_tokens, window_prefill_pairs

Every term is marked ``measured``, ``composed`` (from which measurements), ``analytic`` (from
datasheet numbers) or ``assumed``, and names its source. This module is free of torch.

A measured profile also keeps its ``cells``, how they were timed (``method``, ``machine``), how far
the ``fit`` is off, *exact* terms through the measured medians beside the fitted ones
(``Profile.in_mode``), and a ``seal``: one digest per field, so that an edit is noticed and named.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from calibrate.canonical import canonical
from calibrate.cells import Measured
from calibrate.fit.report import FitReport, Machine, Method, Mode
from calibrate.work import Experts as Experts  # noqa: PLC0414  read from here, as all of a profile is
from calibrate.work import Frozen
from calibrate.work import ModelWork as ModelWork  # noqa: PLC0414  as above

SCHEMA = "leadline.profile/1"

Mark = Literal["measured", "composed", "analytic", "assumed"]
Variable = Literal[
    "tokens", "sequences", "logits", "context_tokens", "query_context_tokens", "prefill_pairs",
    "wide_context_tokens", "window_context_tokens", "window_query_context_tokens", "window_prefill_pairs",
]  # fmt: skip
Counted = Literal["tokens", "sequences", "logits"]
DrafterKind = Literal["draft_model", "eagle", "mtp", "parallel", "ngram"]


class ProfileError(ValueError):
    """A profile that cannot be used: which field, what is wrong, what would be right."""

    def __init__(self, file: str, field: str, message: str) -> None:
        self.file, self.field, self.message = file, field, message
        super().__init__(f"{file}: {field}: {message}")

    def __reduce__(self) -> tuple[type[ProfileError], tuple[str, str, str]]:
        """Travel whole from a worker process."""
        return type(self), (self.file, self.field, self.message)


class Curve(Frozen):
    """Time in ns at measured points of one count, linear between them.

    Below the first point the curve is flat (zero work costs nothing). Beyond the last it goes on
    with the slope of the last two points, or flat where they fall, and the simulator flags the
    step as extrapolated. ``step`` curves hold the value of the next point up instead (padding to
    the next captured size).
    """

    over: Counted = "tokens"
    x: tuple[int, ...] = Field(min_length=1)
    ns: tuple[float, ...] = Field(min_length=1)
    between: Literal["linear", "step"] = "linear"

    @model_validator(mode="after")
    def _points_make_a_curve(self) -> Curve:
        if len(self.x) != len(self.ns):
            raise ValueError(f"x has {len(self.x)} points and ns {len(self.ns)}; give one ns per x")
        if any(b <= a for a, b in zip(self.x, self.x[1:], strict=False)):
            raise ValueError("x must rise from point to point")
        if self.x[0] < 0 or min(self.ns) < 0:
            raise ValueError("x and ns must not be negative")
        return self


class Term(Frozen):
    """One addend of a pass: a named piece of work, its time and where the number comes from."""

    name: str
    mark: Mark
    source: str
    curve: Curve | None = None
    fixed_ns: float = Field(default=0.0, ge=0)
    per_ns: dict[Variable, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _no_negative_slope(self) -> Term:
        negative = [f"{name} {value}" for name, value in self.per_ns.items() if value < 0]
        if negative:
            raise ValueError(f"per_ns must not be negative: {', '.join(negative)}")
        return self


def _windowed(*passes: tuple[Term, ...]) -> bool:
    """Whether any term counts what windowed layers read."""
    return any(name.startswith("window_") for terms in passes for term in terms for name in term.per_ns)


class Target(Frozen):
    """The model that verifies. ``verify`` is one forward pass, prefill chunks included.

    ``accept`` is sampling, rejection and bookkeeping on the device; ``host`` what the engine's
    own loop adds to every step. ``exact`` is another ``verify``, through the measured medians.
    ``verify`` is a pass in one captured graph; ``piecewise_extra`` is what it takes more where attention
    runs between captured pieces, ``eager_extra`` where nothing is captured.
    """

    work: ModelWork
    verify: tuple[Term, ...] = Field(min_length=1)
    exact: tuple[Term, ...] = ()
    accept: tuple[Term, ...] = ()
    host: tuple[Term, ...] = ()
    eager_extra: tuple[Term, ...] = ()
    piecewise_extra: tuple[Term, ...] = ()

    @model_validator(mode="after")
    def _windows_are_known(self) -> Target:
        if _windowed(self.verify, self.exact) and not self.work.window_tokens:
            raise ValueError("a term over window_* needs work.window_tokens above 0")
        if _windowed(self.accept, self.host, self.eager_extra, self.piecewise_extra):
            raise ValueError("only verify has terms over window_*")
        return self


class Drafter(Frozen):
    """What proposes.

    ``first`` is the pass over every token of the step (catch-up, rejected ones included),
    ``next`` one further pass with one token per sequence (kinds draft_model, eagle, mtp), or the
    whole block is in ``first`` (kind parallel: ``block_tokens`` tokens per sequence are added to
    its tokens). Kind ngram has host terms in ``first`` only. ``max_depth`` bounds the depth that
    the drafter was built for. ``exact`` holds another ``first`` and ``next``, through the measured
    medians.
    """

    kind: DrafterKind
    work: ModelWork | None = None
    first: tuple[Term, ...] = ()
    next: tuple[Term, ...] = ()
    exact: dict[Literal["first", "next"], tuple[Term, ...]] = Field(default_factory=dict)
    block_tokens: int = Field(default=0, ge=0)
    max_depth: int = Field(default=16, gt=0)

    @model_validator(mode="after")
    def _no_windows(self) -> Drafter:
        if _windowed(self.first, self.next, *self.exact.values()):
            raise ValueError(
                "a drafter has no terms over window_*; the engine's draft_kv_tokens bounds its KV"
            )
        return self


class Device(Frozen):
    """The accelerator, as its datasheet gives it (per device) and how many serve one replica."""

    name: str
    count: int = Field(default=1, gt=0)
    memory_bytes: float = Field(gt=0)
    bandwidth_bytes_per_s: float = Field(gt=0)
    peak_flops_per_s: float = Field(gt=0)
    source: str = ""


class Source(Frozen):
    """One origin of numbers: what was taken, from where, under which licence."""

    name: str
    what: str
    licence: str = ""
    date: str = ""
    file: str = ""
    sha256: str = ""


class Assumption(Frozen):
    """A number that was not measured for this device and model, and why it was chosen."""

    what: str
    value: str
    why: str


class Sample(Frozen):
    """One raw measurement behind a term, as its source gives it (time in microseconds)."""

    op: str
    shape: dict[str, int | float | str]
    us: float = Field(gt=0)
    source: str


class StatedError(Frozen):
    """How far step times of this profile may be off: a share of the step, and what says so.

    Differences between policies smaller than this are reported as none.
    """

    relative: float = Field(ge=0, lt=1)
    basis: str


class Profile(Frozen):
    """One device serving one target with any of its drafters."""

    schema_: str = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    kind: Literal["measured", "composed", "analytic"]
    created: str
    command: str
    device: Device
    dtype: str
    execution: Literal["cuda_graph", "eager", "cpu"] = "cuda_graph"
    sampling: str = "greedy"
    max_tokens: int = Field(gt=0, description="largest step (tokens) inside the measured domain")
    target: Target
    drafters: dict[str, Drafter] = Field(default_factory=dict)
    error: StatedError | None = None
    sources: tuple[Source, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    samples: tuple[Sample, ...] = ()
    method: Method | None = None
    machine: Machine | None = None
    fit: dict[str, FitReport] = Field(default_factory=dict)
    cells: tuple[Measured, ...] = ()
    refused: tuple[str, ...] = Field(
        default=(), description="why its own check refuses it, none if it may be used"
    )
    seal: dict[str, str] = Field(default_factory=dict)
    notes: str = ""

    @field_validator("cells")
    @classmethod
    def _samples_are_times(cls, cells: tuple[Measured, ...]) -> tuple[Measured, ...]:
        for index, measured in enumerate(cells):
            if not all(0 < us < math.inf for us in (*measured.samples_us, measured.median_us)):
                raise ValueError(f"cells.{index}: every sample must be above 0 and finite")
        return cells

    def in_mode(self, mode: Mode) -> Profile:
        """The same profile, pricing passes by its fit or by its exact terms where it has any.

        Passes without exact terms stay as they are. Raises ``ProfileError`` for ``exact`` when the
        target has none.
        """
        if mode == "fit":
            return self
        if not self.target.exact:
            message = "has no exact terms: only a profile measured by `leadline calibrate` does; use mode fit"
            raise ProfileError(self.name, "target.exact", message)
        target = self.target.model_copy(update={"verify": self.target.exact})
        drafters = {name: d.model_copy(update=dict(d.exact.items())) for name, d in self.drafters.items()}
        return self.model_copy(update={"target": target, "drafters": drafters, "seal": {}})

    @property
    def ridge_tokens(self) -> float | None:
        """Tokens where a verify pass turns from memory- to compute-bound (``calibrate.ridge``)."""
        from calibrate.ridge import ridge_tokens

        return ridge_tokens(self)

    def sealed(self) -> Profile:
        """The same profile with a digest of every field except its name and notes."""
        return self.model_copy(update={"seal": _digests(self)})


def _digests(profile: Profile) -> dict[str, str]:
    data = profile.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"seal", "name", "notes"}
    )
    return {field: _digest(value) for field, value in data.items()}


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def load_profile(path: Path) -> Profile:
    """Read and check one profile file; raises ``ProfileError`` naming the field and the remedy."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(str(path), "file", f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ProfileError(str(path), f"byte {error.start}", "is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        message = f"is not JSON ({error.msg}); {_remedy(None)}"
        raise ProfileError(str(path), f"line {error.lineno}", message) from None
    return parse_profile(data, str(path))


def parse_profile(data: Any, file: str) -> Profile:
    """Check decoded JSON; raises ``ProfileError`` naming the first wrong field."""
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise ProfileError(file, "schema", _other_schema(schema, data))
    try:
        return _unedited(Profile.model_validate(data), file)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        message = f"{first['msg'].removeprefix('Value error, ')}; {_remedy(data.get('command'))}"
        raise ProfileError(file, field or "profile", message) from None


def _other_schema(schema: object, data: Any) -> str:
    """What to do about a file of another version, or about one that is no profile."""
    version = re.fullmatch(r"leadline\.profile/(\d{1,9})", schema) if isinstance(schema, str) else None
    found = f"is {schema!r}; this version reads {SCHEMA!r}"
    if version is None:
        return found
    if int(version[1]) > int(SCHEMA.rpartition("/")[2]):
        return f"{found}. A newer leadline wrote it: upgrade leadline, or {_remedy(data.get('command'))}"
    return f"{found}. An older leadline wrote it: {_remedy(data.get('command'))}"


def _unedited(profile: Profile, file: str) -> Profile:
    """The profile, unless it is sealed and a field no longer fits its digest."""
    found = _digests(profile) if profile.seal else {}
    for field in sorted({*found, *profile.seal}):
        if found.get(field) != profile.seal.get(field):
            message = (
                "was changed after the file was written: restore it, "
                f"{_remedy(profile.command)}, or delete `seal` to keep the change as your own"
            )
            raise ProfileError(file, field, message)
    return profile


def _remedy(command: object) -> str:
    """What makes a new profile: the command that made this one, when it is still legible."""
    if isinstance(command, str) and command:
        return f"make a new profile with: {command}"
    return "make a new profile with `python -m calibrate.compose`"


def dump_profile(profile: Profile) -> str:
    """Canonical JSON text of a profile, the same bytes for the same profile."""
    data = profile.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return canonical(data) + "\n"


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile so that a reader sees the old file or the new one, never a part of it."""
    write_atomically(path, dump_profile(profile))


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to a temporary file beside ``path``, then put it in its place.

    Raises ``OSError`` when the folder cannot be written; the old file is then untouched and no
    temporary file stays behind.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
