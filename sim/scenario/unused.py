"""Limits of the engine that change nothing, since what they are limits of is off."""

from __future__ import annotations

from collections.abc import Iterator

from sim.scenario.model import Scenario, speculates


def unused_limits(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Each limit that is set and idle, with what it needs."""
    engine = scenario.engine
    for need, met, names in _needs(scenario):
        if not met:
            for name in names:
                neutral = type(engine).model_fields[name].default
                if name in engine.model_fields_set and getattr(engine, name) != neutral:
                    yield name, need


def _needs(scenario: Scenario) -> Iterator[tuple[str, bool, tuple[str, ...]]]:
    """What limits need, whether it is there, and which limits."""
    engine = scenario.engine
    behaviour = engine.behaviour
    drafts = any(speculates(policy) for policy in scenario.policies)
    first = behaviour.prefill == "first" or (drafts and not behaviour.mixed_under_speculation)
    front = bool(engine.frontend_time or engine.frontend_time_per_token)
    masks = any(kind.structured for kind in scenario.workload.classes)
    yield "prefill: first", first, ("max_prefill_steps",)
    yield "prefix_caching: true", behaviour.prefix_caching, ("prefix_unit",)
    yield "preemption: swap", behaviour.preemption == "swap", ("swap_space", "swap_bandwidth")
    yield "async_scheduling: true", behaviour.async_scheduling, ("answers_end",)
    yield "chunked_prefill: true", behaviour.chunked_prefill, ("long_prefill_token_threshold",)
    yield "frontend_time or frontend_time_per_token", front, ("frontend_servers",)
    yield (
        "a request class with structured: true",
        masks,
        ("grammar_overhead", "grammar_overhead_per_draft"),
    )
    yield (
        "a policy that drafts",
        drafts,
        (
            "drafter_max_model_len",
            "draft_kv_tokens",
            "depth_zero_overhead",
            "depth_zero_overhead_per_sequence",
        ),
    )
