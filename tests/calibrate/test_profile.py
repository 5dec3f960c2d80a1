"""The profile file: it says which field is wrong, and it survives being written and read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.profile import (
    SCHEMA,
    Curve,
    Device,
    Drafter,
    ModelWork,
    Profile,
    ProfileError,
    Sample,
    Target,
    Term,
    dump_profile,
    load_profile,
    parse_profile,
    save_profile,
    write_atomically,
)

VARIABLES = (
    "tokens",
    "sequences",
    "logits",
    "context_tokens",
    "query_context_tokens",
    "prefill_pairs",
)
times = st.floats(min_value=0.0, max_value=1e12)
sizes = st.floats(min_value=1.0, max_value=1e15)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    x = sorted(draw(st.sets(st.integers(0, 100_000), min_size=1, max_size=12)))
    ns = draw(st.lists(times, min_size=len(x), max_size=len(x)))
    return Curve(
        over=draw(st.sampled_from(VARIABLES[:3])),
        x=tuple(x),
        ns=tuple(ns),
        between=draw(st.sampled_from(("linear", "step"))),
    )


terms = st.builds(
    Term,
    name=st.text(min_size=1, max_size=8),
    mark=st.sampled_from(("measured", "composed", "analytic", "assumed")),
    source=st.text(max_size=20),
    curve=st.none() | curves(),
    fixed_ns=times,
    per_ns=st.dictionaries(st.sampled_from(VARIABLES), times, max_size=3),
)
works = st.builds(
    ModelWork,
    name=st.just("m"),
    parameters=sizes,
    weight_bytes=sizes,
    read_bytes=sizes,
    flops_per_token=sizes,
)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    device = Device(name="d", memory_bytes=8e10, bandwidth_bytes_per_s=2e12, peak_flops_per_s=3e14)
    drafter = Drafter(kind="eagle", work=draw(works), first=(draw(terms),), next=(draw(terms),))
    sample = Sample(op="gemm", shape={"m": 1, "kind": "bf16"}, us=draw(sizes), source="s")
    return Profile(
        schema=SCHEMA,
        name="p",
        kind="composed",
        created="2026-11-29",
        command="make it",
        device=device,
        dtype="bfloat16",
        max_tokens=draw(st.integers(1, 10_000)),
        target=Target(work=draw(works), verify=tuple(draw(st.lists(terms, min_size=1, max_size=3)))),
        drafters=draw(st.sampled_from(({}, {"eagle": drafter}))),
        samples=(sample,),
    )


@given(profiles())
def test_a_profile_written_and_read_is_the_same_profile(profile: Profile) -> None:
    assert parse_profile(json.loads(dump_profile(profile)), "p.json") == profile


@given(profiles())
def test_a_profile_written_twice_is_the_same_bytes(profile: Profile) -> None:
    text = dump_profile(profile)
    assert dump_profile(parse_profile(json.loads(text), "p.json")) == text


def _minimal() -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": "p",
        "kind": "measured",
        "created": "2026-11-29",
        "command": "leadline calibrate --out p.json",
        "device": {"name": "d", "memory_bytes": 1, "bandwidth_bytes_per_s": 1, "peak_flops_per_s": 1},
        "dtype": "bfloat16",
        "max_tokens": 512,
        "target": {
            "work": {
                "name": "m",
                "parameters": 1,
                "weight_bytes": 2,
                "read_bytes": 2,
                "flops_per_token": 2,
            },
            "verify": [
                {
                    "name": "linear",
                    "mark": "measured",
                    "source": "here",
                    "curve": {"x": [1, 2, 4], "ns": [5.0, 5.0, 6.0]},
                    "per_ns": {"context_tokens": 1.0},
                }
            ],
        },
    }


Damage = Callable[[dict[str, Any]], None]


def _set(*path: Any, to: Any) -> Damage:
    def damage(data: dict[str, Any]) -> None:
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return damage


def _drop(*path: Any) -> Damage:
    def damage(data: dict[str, Any]) -> None:
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return damage


TERM = ("target", "verify", 0)

DAMAGED: list[tuple[Damage, str, str]] = [
    (_drop("target"), "target", "required"),
    (_drop("device", "memory_bytes"), "device.memory_bytes", "required"),
    (_drop(*TERM, "source"), "target.verify.0.source", "required"),
    (_set("target", "verify", to=[]), "target.verify", "at least 1"),
    (_set("schema", to="leadline.profile/9"), "schema", "leadline.profile/1"),
    (_set("kind", to="guessed"), "kind", "measured"),
    (_set("name", to="../evil"), "name", "pattern"),
    (_set("max_tokens", to=0), "max_tokens", "greater than 0"),
    (_set("device", "memory_bytes", to=-1), "device.memory_bytes", "greater than 0"),
    (_set("colour", to="blue"), "colour", "not permitted"),
    (_set(*TERM, "colour", to="blue"), "target.verify.0.colour", "not permitted"),
    (_set(*TERM, "mark", to="sure"), "target.verify.0.mark", "assumed"),
    (_set(*TERM, "fixed_ns", to=-1), "target.verify.0.fixed_ns", "greater than or equal to 0"),
    (_set(*TERM, "fixed_ns", to=float("nan")), "target.verify.0.fixed_ns", "finite"),
    (_set(*TERM, "fixed_ns", to="soon"), "target.verify.0.fixed_ns", "number"),
    (_set(*TERM, "per_ns", to={"context_tokens": -1.0}), "target.verify.0", "context_tokens -1.0"),
    (_set(*TERM, "per_ns", to={"moon": 1.0}), "target.verify.0.per_ns.moon", "tokens"),
    (_set(*TERM, "per_ns", "context_tokens", to=float("inf")), "per_ns.context_tokens", "finite"),
    (_set(*TERM, "curve", "ns", to=[5.0, 5.0]), "target.verify.0.curve", "one ns per x"),
    (_set(*TERM, "curve", "ns", to=[5.0, -5.0, 6.0]), "target.verify.0.curve", "negative"),
    (_set(*TERM, "curve", "ns", 1, to=float("nan")), "target.verify.0.curve.ns.1", "finite"),
    (_set(*TERM, "curve", "x", to=[1, 1, 4]), "target.verify.0.curve", "rise"),
    (_set(*TERM, "curve", "x", to=[-1, 2, 4]), "target.verify.0.curve", "negative"),
    (_set(*TERM, "curve", "x", to=[1, 2.5, 4]), "target.verify.0.curve.x.1", "integer"),
    (_set(*TERM, "curve", to={"x": [], "ns": []}), "target.verify.0.curve.x", "at least 1"),
    (
        _set("samples", to=[{"op": "gemm", "shape": {}, "us": 0, "source": "s"}]),
        "samples.0.us",
        "greater than 0",
    ),
    (_set("drafters", to={"d": {"kind": "magic"}}), "drafters.d.kind", "draft_model"),
]


@pytest.mark.parametrize(("damage", "field", "words"), DAMAGED, ids=[f"{d[1]}-{d[2]}" for d in DAMAGED])
def test_a_damaged_profile_is_refused_with_its_field_and_remedy(
    tmp_path: Path, damage: Damage, field: str, words: str
) -> None:
    data = _minimal()
    damage(data)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert field in caught.value.field
    assert words in caught.value.message
    assert str(caught.value).startswith(f"{path}: ")
    if field != "schema":
        assert "leadline calibrate --out p.json" in caught.value.message


def test_the_undamaged_profile_of_these_tests_is_accepted() -> None:
    assert parse_profile(_minimal(), "p.json").max_tokens == 512


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused_at_its_line(tmp_path: Path, shipped: Path, share: float) -> None:
    text = (shipped / "llama-3.1-8b-h100-sdbench.json").read_text()
    path = tmp_path / "p.json"
    path.write_text(text[: int(share * len(text))])
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert caught.value.field.startswith("line ")


@pytest.mark.parametrize("text", ["null", "[]", "3", '"x"', "{}"])
def test_json_that_is_not_a_profile_is_refused_at_its_schema(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match="schema"):
        load_profile(path)


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(path)
    path.write_bytes(b'{"schema": "\xff"}')
    with pytest.raises(ProfileError, match="byte 12: is not UTF-8"):
        load_profile(path)


def test_writing_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    profile = parse_profile(_minimal(), "p.json")
    path.write_text("old")
    save_profile(profile, path)
    assert load_profile(path) == profile
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half of it \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
