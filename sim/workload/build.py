"""From the configuration of a workload and a seed to the requests of one run.

Every draw has a stream of its own (``arrivals``, ``classes``, ``lengths.input``,
``lengths.output``, ``prefix.groups``, ``arrivals.jitter``), so changing one part of the workload
leaves the draws of the others alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sim.errors import InputError
from sim.streams import uniforms
from sim.units import NS_PER_S
from sim.workload.arrival_config import TraceArrival
from sim.workload.arrivals import Locate, arrival_times_ns
from sim.workload.config import RequestClass, WorkloadConfig
from sim.workload.lengths import lengths_at
from sim.workload.requests import Requests
from sim.workload.traces import read_trace

Int64 = NDArray[np.int64]


def build_requests(config: WorkloadConfig, seed: int, locate: Locate) -> Requests:
    """Draw or replay the requests; deterministic in (config, seed).

    ``locate`` turns a shipped name or a path, as the configuration has it, into a file. Raises
    ``InputError`` (``TraceError`` for rows) when a file cannot be used or no request results.
    """
    if isinstance(config.arrival, TraceArrival):
        requests = _replayed(config, config.arrival, seed, locate)
    else:
        requests = _drawn(config, seed, locate)
    if config.timeout is not None:
        requests = replace(requests, timeout_ns=config.timeout)
    if not len(requests):
        raise InputError("the workload has no request; give a longer duration or a higher request_rate")
    return requests


def _drawn(config: WorkloadConfig, seed: int, locate: Locate) -> Requests:
    assert not isinstance(config.arrival, TraceArrival)
    arrival_ns = arrival_times_ns(config.arrival, seed, locate, config.num_requests, config.end_ns)
    class_id = _class_ids(config.classes, seed, len(arrival_ns))
    prompt_tokens, output_tokens = _lengths(config, seed, class_id, locate)
    prefix_group, prefix_tokens = _prefixes(config, seed, class_id)
    return Requests(
        arrival_ns=arrival_ns,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        class_id=class_id,
        classes=_names(config.classes),
        max_concurrency=config.arrival.max_concurrency,
        prefix_group=prefix_group,
        prefix_tokens=prefix_tokens,
    )


def _names(classes: tuple[RequestClass, ...]) -> tuple[str, ...]:
    return tuple(kind.name for kind in classes) or ("default",)


def _class_ids(classes: tuple[RequestClass, ...], seed: int, count: int) -> Int64:
    if len(classes) < 2:
        return np.zeros(count, dtype=np.int64)
    upper = np.cumsum([kind.share for kind in classes])[:-1]
    return np.searchsorted(upper, uniforms(seed, "classes", 0, count), side="right").astype(np.int64)


def _lengths(config: WorkloadConfig, seed: int, class_id: Int64, locate: Locate) -> tuple[Int64, Int64]:
    """Lengths of every request; all classes share the draws, each with its own distribution."""
    count = len(class_id)
    u_input = uniforms(seed, "lengths.input", 0, count)
    u_output = uniforms(seed, "lengths.output", 0, count)
    kinds = [kind.lengths or config.lengths for kind in config.classes] or [config.lengths]
    prompt_tokens, output_tokens = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for number, lengths in enumerate(kinds):
        assert lengths is not None  # WorkloadConfig has checked
        here = class_id == number
        prompt_tokens[here], output_tokens[here] = lengths_at(lengths, u_input[here], u_output[here], locate)
    return prompt_tokens, output_tokens


def _prefixes(config: WorkloadConfig, seed: int, class_id: Int64) -> tuple[Int64 | None, Int64 | None]:
    """Prefix group and tokens of every request, if prompts share any.

    Classes without a prefix of their own share the workload's groups; those of a class are its own.
    """
    own = [kind.prefix for kind in config.classes]
    if config.prefix is None and not any(own):
        return None, None
    draws = uniforms(seed, "prefix.groups", 0, len(class_id))
    group, tokens = np.full(len(class_id), -1, dtype=np.int64), np.zeros(len(class_id), dtype=np.int64)
    first = config.prefix.groups if config.prefix is not None else 0
    for number, prefix in enumerate(own or [None]):
        chosen, start = (config.prefix, 0) if prefix is None else (prefix, first)
        first += prefix.groups if prefix is not None else 0
        if chosen is not None:
            here = class_id == number
            group[here] = start + np.floor(draws[here] * chosen.groups).astype(np.int64)
            tokens[here] = chosen.tokens
    return group, tokens


def _replayed(config: WorkloadConfig, arrival: TraceArrival, seed: int, locate: Locate) -> Requests:
    path, form = locate(arrival.path), arrival.format
    requests = read_trace(path, form, arrival.limit, arrival.drop_failed, arrival.hash_block)
    requests = _classified(requests, config.classes, seed, arrival.path)
    requests = _rescaled(_jittered(requests, arrival.jitter, seed), arrival)
    if arrival.max_concurrency is not None:
        requests = replace(requests, max_concurrency=arrival.max_concurrency)
    return _cut(requests, config, arrival.path)


def _classified(requests: Requests, classes: tuple[RequestClass, ...], seed: int, path: str) -> Requests:
    """Keep the classes the trace names; a trace that names none gets them by share."""
    if not classes:
        return requests
    names = _names(classes)
    if requests.classes == ("default",):
        return replace(requests, class_id=_class_ids(classes, seed, len(requests)), classes=names)
    unknown = [name for name in requests.classes if name not in names]
    if unknown:
        raise InputError(f"{path}: has the class {unknown[0]!r}; workload.classes has {', '.join(names)}")
    to_ours = np.array([names.index(name) for name in requests.classes], dtype=np.int64)
    return replace(requests, class_id=to_ours[requests.class_id], classes=names)


def _jittered(requests: Requests, jitter_ns: int, seed: int) -> Requests:
    if not jitter_ns:
        return requests
    u = uniforms(seed, "arrivals.jitter", 0, len(requests))
    arrival_ns = requests.arrival_ns + np.floor(u * jitter_ns).astype(np.int64)
    return _picked(requests, np.argsort(arrival_ns, kind="stable"), arrival_ns)


def _rescaled(requests: Requests, arrival: TraceArrival) -> Requests:
    factor = arrival.time_scale
    if arrival.request_rate is not None:
        span_s = int(requests.arrival_ns[-1] - requests.arrival_ns[0]) / NS_PER_S
        if not span_s:
            raise InputError(
                f"{arrival.path}: all requests arrive at once, so no request_rate fits; remove it"
            )
        factor = (len(requests) - 1) / span_s / arrival.request_rate
    if factor is None or factor == 1:
        return requests
    return replace(requests, arrival_ns=np.rint(requests.arrival_ns * factor).astype(np.int64))


def _cut(requests: Requests, config: WorkloadConfig, path: str) -> Requests:
    if config.num_requests is not None and config.num_requests > len(requests):
        raise InputError(f"{path}: has {len(requests)} requests; num_requests asks for {config.num_requests}")
    count = len(requests) if config.num_requests is None else config.num_requests
    if config.end_ns is not None:
        count = min(count, int(np.searchsorted(requests.arrival_ns, config.end_ns)))
    return _picked(requests, np.arange(count), requests.arrival_ns)


def _picked(requests: Requests, order: Int64, arrival_ns: Int64) -> Requests:
    """Pick the requests numbered ``order``, in that order, with new arrivals."""
    return replace(
        requests,
        arrival_ns=arrival_ns[order],
        prompt_tokens=requests.prompt_tokens[order],
        output_tokens=requests.output_tokens[order],
        class_id=requests.class_id[order],
        prefix_group=None if requests.prefix_group is None else requests.prefix_group[order],
        prefix_tokens=None if requests.prefix_tokens is None else requests.prefix_tokens[order],
        hashes=None if requests.hashes is None else requests.hashes.picked(order),
    )
