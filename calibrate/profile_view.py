"""A profile in numbers: step times over batch and depth, terms and their shares, what it stands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from rich.table import Table

from calibrate.compose.evaluate import decode_shape, pass_ns, term_ns
from calibrate.profile import Drafter, Profile, ProfileError, Term, load_profile

BATCHES = (1, 8, 32, 64, 128, 256)
DEPTHS = (0, 1, 3, 5, 7)
CONTEXT = 1024


def shipped() -> dict[str, Path]:
    """Profiles that ship with leadline, by name."""
    folder = Path(str(files("scenarios"))) / "profiles"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def find_profile(name: str) -> Profile:
    """A profile by a shipped name or by path; ``ProfileError`` when there is none."""
    path = shipped().get(name, Path(name))
    if not path.is_file():
        raise ProfileError(
            name, "file", "is neither a file nor a shipped profile; see `leadline profile list`"
        )
    return load_profile(path)


def choose_drafter(profile: Profile, name: str | None) -> Drafter | None:
    """The drafter ``name``, by default the first; ``ProfileError`` names the known ones."""
    if name is None:
        return next(iter(profile.drafters.values()), None)
    if name not in profile.drafters:
        known = ", ".join(profile.drafters) or "none"
        raise ProfileError(profile.name, "drafters", f"has no {name!r}; it has: {known}")
    return profile.drafters[name]


def round_ns(profile: Profile, drafter: Drafter | None, batch: int, depth: int, context: int) -> float:
    """One decode-only round of ``batch`` sequences at one depth: drafts, verify, sampling and host.

    The same sum as the simulator's cost table: the drafter catches up on one token per sequence.
    """
    shape = decode_shape(batch, context, depth + 1, profile.target.work.window_tokens)
    counts = {name: shape[name] for name in ("tokens", "sequences", "logits")}
    target = profile.target
    ns = pass_ns(target.verify, shape) + pass_ns(target.accept, counts) + pass_ns(target.host, counts)
    return ns + (0.0 if drafter is None else draft_ns(drafter, batch, depth, context))


def draft_ns(drafter: Drafter, batch: int, depth: int, context: int) -> float:
    """All passes of the drafter in such a round; nothing at depth 0."""
    if depth == 0:
        return 0.0
    narrow = {**decode_shape(batch, context), "logits": batch}
    first = {**narrow, "tokens": batch * (1 + drafter.block_tokens)}
    return pass_ns(drafter.first, first) + (depth - 1) * pass_ns(drafter.next, narrow)


def passes(profile: Profile) -> dict[str, tuple[Term, ...]]:
    """Terms of every pass of a profile, by the name of the pass."""
    target = profile.target
    drafts = {
        f"{name} {part}": terms
        for name, drafter in profile.drafters.items()
        for part, terms in (("first", drafter.first), ("next", drafter.next))
    }
    found = {"verify": target.verify, "accept": target.accept, "host": target.host, **drafts}
    return {name: terms for name, terms in found.items() if terms}


def mark_shares(profile: Profile, batch: int, depth: int, context: int) -> dict[str, float]:
    """Share of the target's part of a round by mark: how much of it was measured, how much assumed."""
    shape = decode_shape(batch, context, depth + 1, profile.target.work.window_tokens)
    target = profile.target
    ns: dict[str, float] = {}
    for term in (*target.verify, *target.accept, *target.host):
        ns[term.mark] = ns.get(term.mark, 0.0) + term_ns(term, shape)
    total = sum(ns.values())
    return {mark: part / total for mark, part in sorted(ns.items(), key=lambda item: -item[1])}


def device_name(profile: Profile) -> str:
    """The device, with how many serve one replica where that is more than one."""
    device = profile.device
    return device.name if device.count == 1 else f"{device.count} x {device.name}"


def listing(paths: dict[str, Path]) -> Table:
    """All profiles, one a line."""
    table = Table("profile", "target", "device", "kind", "drafters", "error", box=None, pad_edge=False)
    for name, path in paths.items():
        profile = load_profile(path)
        error = "" if profile.error is None else f"±{profile.error.relative:.0%}"
        drafters, model = ", ".join(profile.drafters), profile.target.work.name
        table.add_row(name, model, device_name(profile), profile.kind, drafters, error)
    return table


def about(profile: Profile) -> Iterator[str]:
    """What the profile is and stands on, a line each."""
    work = profile.target.work
    yield f"{profile.name} · {profile.kind} · {work.name} on {device_name(profile)}"
    how = f"{profile.dtype}, {profile.execution}, {profile.sampling}"
    yield f"{how}; steps up to {profile.max_tokens:,} tokens"
    yield f"weights {work.weight_bytes / 1e9:.1f} GB, KV {work.kv_bytes_per_token / 1024:.0f} KiB per token"
    if profile.error is None:
        yield "error: not stated"
    else:
        yield f"error: ±{profile.error.relative:.0%}: {profile.error.basis}"
    yield f"made on {profile.created} by: {profile.command}"
    for verdict in profile.refused:
        yield f"refused {verdict}"
    for source in profile.sources:
        yield f"source {source.name}: {source.what}" + (f" ({source.file})" if source.file else "")
    for assumption in profile.assumptions:
        yield f"assumed {assumption.what}: {assumption.value}. {assumption.why}"


def term_table(profile: Profile, context: int, batch: int = 32, depth: int = 3) -> Table:
    """Every term with its mark, its time in one step and where it comes from."""
    step = f"ms at {batch} x depth {depth}"
    table = Table("pass", "term", "mark", step, "source", box=None, pad_edge=False)
    table.columns[3].justify = "right"
    for name, terms in passes(profile).items():
        wide = name in ("verify", "accept", "host")
        shape = decode_shape(batch, context, depth + 1 if wide else 1, profile.target.work.window_tokens)
        for index, term in enumerate(terms):
            ms, label = f"{term_ns(term, shape) / 1e6:.3f}", "" if index else name
            table.add_row(label, term.name, term.mark, ms, _short(term.source))
    return table


def _short(text: str, length: int = 70) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def step_table(
    profile: Profile, drafter: Drafter | None, context: int, depths: Sequence[int] = DEPTHS
) -> Table:
    """Round times in ms over batch (rows) and depth (columns)."""
    table = Table("batch", *(f"k={k}" for k in depths), box=None, pad_edge=False)
    for batch in BATCHES:
        ms = [round_ns(profile, drafter, batch, k, context) / 1e6 for k in depths]
        table.add_row(
            str(batch), *(_ms(profile, batch * (k + 1), value) for k, value in zip(depths, ms, strict=True))
        )
    _right(table)
    return table


def _ms(profile: Profile, tokens: int, ms: float) -> str:
    """Milliseconds, with a mark on steps beyond what was measured."""
    return f"{ms:.2f}" + ("*" if tokens > profile.max_tokens else "")


def diff_table(one: Profile, other: Profile, names: tuple[str | None, str | None], context: int) -> Table:
    """Round times of two profiles side by side, and the second over the first."""
    heads = [head for k in DEPTHS for head in (f"k={k} A", "B", "B/A")]
    table = Table("batch", *heads, box=None, pad_edge=False)
    drafters = choose_drafter(one, names[0]), choose_drafter(other, names[1])
    for batch in BATCHES:
        row = [str(batch)]
        for depth in DEPTHS:
            a = round_ns(one, drafters[0], batch, depth, context) / 1e6
            b = round_ns(other, drafters[1], batch, depth, context) / 1e6
            row += [f"{a:.2f}", f"{b:.2f}", f"{b / a:.2f}"]
        table.add_row(*row)
    _right(table)
    return table


def _right(table: Table) -> None:
    for column in table.columns:
        column.justify = "right"


def findings(profile: Profile) -> Iterable[tuple[str, str]]:
    """What refuses the profile or is worth knowing: (level, message)."""
    from calibrate.fit.check import check_profile

    for finding in check_profile(profile):
        yield finding.level, f"{finding.field}: {finding.message}"
    work, device = profile.target.work, profile.device
    room = device.count * device.memory_bytes
    if work.weight_bytes >= room:
        message = f"{work.weight_bytes / 1e9:.1f} GB do not fit the device's {room / 1e9:.1f} GB"
        yield "refused", f"target.work.weight_bytes: {message}; give the right device or count"
    if work.kv_bytes_per_token == 0:
        yield "warning", "target.work.kv_bytes_per_token: is 0, so memory never limits the batch"
    if profile.error is None:
        yield "warning", "error: is not stated, so no difference between policies counts as none"
    yield from _flat(profile)


def _flat(profile: Profile) -> Iterator[tuple[str, str]]:
    top = profile.max_tokens
    one, most = (pass_ns(profile.target.verify, decode_shape(n, 0)) for n in (1, top))
    if most <= 1.02 * one:
        yield "refused", f"target.verify: is flat from 1 to {top} tokens, so any depth would be free"
