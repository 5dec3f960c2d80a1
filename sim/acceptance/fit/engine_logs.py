"""What engines count by themselves: vLLM's log lines, and Prometheus counters.

vllm/v1/spec_decode/metrics.py, read at several commits of 2025 and 2026: a log line sums a window
(10 s by default) over all requests, and its per-position rates are accepted at that position over
*rounds* (unconditional). Early 2025 lines have neither a mean length nor rates by position.
llama.cpp exports the same counters under ``llamacpp:``.

A round counts only if it carries a draft, so look-up drafters look better than they are. A scrape
tells all the same: what ``generation_tokens`` has beyond accepted drafts and one token per round (and
per request, for its first) came from rounds without drafts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from sim.acceptance.fit.evidence import Counted, Evidence, pooled
from sim.errors import InputError
from sim.workload.problems import Problems

LOG_MARK = "SpecDecoding metrics:"
COUNTER_MARK = "spec_decode_num_"

_NUMBER = r"([0-9.]+|nan)"
_MEAN = re.compile(rf"Mean acceptance length: {_NUMBER}")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens")
_DRAFTED = re.compile(r"Drafted: (\d+) tokens")
_RATES = re.compile(r"Per-position acceptance rate: \[?((?:[0-9.]+|nan)(?:, (?:[0-9.]+|nan))*)")
_SAMPLE = re.compile(
    r"^(?:\w+:)?(?:spec_decode_num_)?(\w+?)(?:_total)?(\{[^}]*\})?\s+([0-9.eE+]+)(?:\s+\S+)?\s*$"
)
_OTHERS = ("generation_tokens_total", "request_success_total")
_PLAIN = 0.1  # share of rounds without drafts above which a drafter is one that looks up
_POSITION = re.compile(r'position="(\d+)"')

Counters = Mapping[str, float]


def read_log(file: str, text: str, depth: int | None) -> Evidence:
    """Windows of a vLLM log; other lines are passed over. ``depth`` is for lines that lack rates."""
    problems, windows = Problems(file), []
    for number, line in enumerate(text.splitlines(), 1):
        if LOG_MARK in line:
            try:
                window = _window(line, depth)
            except ValueError as error:
                problems.add(number, str(error))
                continue
            if window is not None:
                windows.append(window)
    problems.check()
    if not windows:
        raise InputError(f"{file}: no window of it has a round with drafts; log a busier server")
    return Evidence("vllm-log", counted=tuple(windows), notes=_varying(windows))


def _window(line: str, depth: int | None) -> Counted | None:
    """One line; ``None`` for a window without rounds, ``ValueError`` for a line that cannot be read."""
    accepted, drafted = _ACCEPTED.search(line), _DRAFTED.search(line)
    if accepted is None or drafted is None:
        raise ValueError("a SpecDecoding line lacks 'Accepted: N tokens' or 'Drafted: N tokens'; remove it")
    made, kept = int(drafted[1]), int(accepted[1])
    if kept > made:
        raise ValueError(f"accepts {kept} of {made} drafts; remove the line")
    rates = _RATES.search(line)
    if made == 0 or (rates is not None and "nan" in rates[1]):
        return None
    if rates is None:
        return _without_rates(made, kept, _MEAN.search(line), depth)
    return counted_rates([float(rate) for rate in rates[1].split(", ")], made, kept)


def counted_rates(rates: Sequence[float], drafted: float, accepted: float, rounds: float = 0.0) -> Counted:
    """Rates per round by position; ``rounds``, where not given, are those that make the rates add up."""
    if any(after > before for before, after in pairwise([1.0, *rates])):
        raise ValueError(f"per-position rates are {rates}; unconditional rates lie in 0..1 and never rise")
    total = sum(rates)
    rounds = rounds or (accepted / total if total else drafted / len(rates))
    return Counted(len(rates), 1 + total, tuple(rates), rounds, drafted)


def _without_rates(drafted: int, accepted: int, mean: re.Match[str] | None, depth: int | None) -> Counted:
    if depth is None:
        raise ValueError(
            f"has no rates by position, and accepted / drafted = {accepted / drafted:.3g} is not a "
            "per-token rate; say the depth that was drafted (--depth), from which a mean length follows"
        )
    length = float(mean[1]) if mean else 1 + depth * accepted / drafted
    return Counted(depth, length, rounds=drafted / depth, drafted=drafted)


def read_scrapes(files: Sequence[tuple[str, str]], depth: int | None) -> Evidence:
    """Prometheus text: one scrape since the server's start, or several in order of time."""
    scrapes = [(file, counters(file, text)) for file, text in files]
    if len(scrapes) == 1:
        file, only = scrapes[0]
        return _of_counters([(file, only)], depth, ("One scrape: counts since the server started.",))
    windows = [(later, _difference(earlier, later, a, b)) for (earlier, a), (later, b) in pairwise(scrapes)]
    return _of_counters(windows, depth, (f"{len(windows)} window(s) between {len(scrapes)} scrapes.",))


def _of_counters(
    windows: Sequence[tuple[str, Counters]], depth: int | None, notes: tuple[str, ...]
) -> Evidence:
    share = drafted_share([window for _, window in windows])
    groups = [group_of(file, window, depth) for file, window in windows]
    notes = (*notes, *_varying(groups))
    if share is None or not all(group.survival for group in groups):
        return Evidence("prometheus", counted=tuple(groups), notes=notes)
    notes += (f"Only {share:.0%} of rounds had a draft; the others are counted as rejecting one.",)
    first = pooled(groups).survival[0]
    in_vain = share * (1 - first) / (1 - share * first)
    diluted = tuple(_diluted(group, share) for group in groups)
    return Evidence("prometheus", counted=diluted, in_vain=in_vain, notes=notes)


def drafted_share(windows: Sequence[Counters]) -> float | None:
    """Share of rounds that had a draft; ``None`` if it is not known, or nearly all had."""
    generated, first, accepted, rounds = (
        sum(window.get(name, 0.0) for window in windows)
        for name in ("generation_tokens", "request_success", "accepted_tokens", "drafts")
    )
    plain = generated - first - accepted - rounds
    share = rounds / (rounds + plain) if generated and plain > 0 else 1.0
    return None if share > 1 - _PLAIN else share


def _diluted(group: Counted, share: float) -> Counted:
    """Counts over all rounds, of which only ``share`` had drafts."""
    return replace(
        group,
        tokens_per_round=1 + share * (group.tokens_per_round - 1),
        survival=tuple(share * rate for rate in group.survival),
        rounds=group.rounds / share,
    )


def counters(file: str, text: str) -> Counters:
    """Counters summed over engines and models; positions as ``accepted_tokens_per_pos/0`` and on."""
    found: dict[str, float] = {}
    for name, value in _samples(file, text):
        found[name] = found.get(name, 0.0) + value
    return found


def _samples(file: str, text: str) -> Iterator[tuple[str, float]]:
    problems = Problems(file)
    for number, line in enumerate(text.splitlines(), 1):
        wanted = COUNTER_MARK in line or any(name in line for name in _OTHERS)
        if line.startswith("#") or not wanted or "_created" in line:
            continue
        sample = _SAMPLE.match(line.strip())
        if sample is None:
            problems.add(number, f"{line.strip()[:60]!r} is no counter; write NAME{{LABELS}} VALUE")
            continue
        name, labels, value = sample.groups()
        position = _POSITION.search(labels or "")
        if name.endswith("per_pos") and position is None:
            problems.add(number, f'{name} has no label position="..."; keep the labels of the scrape')
            continue
        yield f"{name}/{position[1]}" if name.endswith("per_pos") and position else name, float(value)
    problems.check()


def _difference(earlier: str, later: str, before: Counters, after: Counters) -> Counters:
    for name, value in before.items():
        if after.get(name, 0.0) < value:
            raise InputError(
                f"{later}: {name} is {after.get(name, 0.0):g}, less than {value:g} in {earlier}; give "
                "scrapes of one server in order of time, without a restart between them"
            )
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


def group_of(file: str, found: Counters, depth: int | None) -> Counted:
    """Counters as rates; ``InputError`` where they lack rounds."""
    rounds, drafted = found.get("drafts", 0.0), found.get("draft_tokens", 0.0)
    accepted = found.get("accepted_tokens", 0.0)
    if not rounds:
        raise InputError(f"{file}: no rounds were counted (spec_decode_num_drafts); scrape a busier server")
    positions = sorted(
        int(name.split("/")[1]) for name in found if name.startswith("accepted_tokens_per_pos/")
    )
    if positions:
        rates = [found[f"accepted_tokens_per_pos/{position}"] / rounds for position in positions]
        try:
            return counted_rates(rates, drafted, accepted, rounds)
        except ValueError as error:
            raise InputError(f"{file}: {error}") from None
    depth = depth or round(drafted / rounds)
    if not depth:
        raise InputError(f"{file}: no draft tokens were counted; say the depth that was drafted (--depth)")
    return Counted(depth, 1 + accepted / rounds, rounds=rounds, drafted=drafted)


def _varying(groups: Sequence[Counted]) -> tuple[str, ...]:
    """A note where rounds drafted less than the depth: then late positions look worse than they are."""
    offered = sum(group.rounds * group.depth for group in groups)
    drafted = sum(group.drafted for group in groups)
    if not drafted or drafted > 0.98 * offered:
        return ()
    return (
        f"{1 - drafted / offered:.0%} of the drafts that the depth allows were never made: depths varied, "
        "and rates by position, which are per round, are too low the later the position.",
    )
