"""The shipped profiles: made by the shipped recipes, close to what others measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.compose.__main__ import main
from calibrate.compose.checks import (
    AIC_8B,
    AIC_27B,
    FIT_8B,
    FORWARD_17B,
    FORWARD_17B_8K,
    STUDY_8B,
    VIDUR_8B,
    checks,
    moe_growth,
    report,
)
from calibrate.compose.evaluate import decode_shape, pass_ns
from calibrate.compose.moe import moe_term
from calibrate.compose.recipes import NAMES, compose, names_for
from calibrate.compose.tables import Folders, Ledger
from calibrate.profile import Profile, Term, dump_profile, load_profile
from calibrate.shapes import Moe
from tests.calibrate.conftest import ROOT

PROFILES = {name: load_profile(ROOT / "scenarios" / "profiles" / f"{name}.json") for name in NAMES}
SDBENCH = PROFILES["llama-3.1-8b-h100-sdbench"]
COMPOSED = [profile for name, profile in PROFILES.items() if profile is not SDBENCH]


def _passes(profile: Profile) -> dict[str, tuple[Term, ...]]:
    target = profile.target
    drafts = {
        f"{name}.{part}": terms
        for name, drafter in profile.drafters.items()
        for part, terms in (("first", drafter.first), ("next", drafter.next))
    }
    return {
        "verify": target.verify,
        "accept": target.accept,
        "host": target.host,
        "eager_extra": target.eager_extra,
        **drafts,
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_is_what_its_recipe_composes(name: str, folders: Folders, shipped: Path) -> None:
    if name not in names_for(folders):
        pytest.skip("needs aiconfigurator-core (LEADLINE_AICONFIGURATOR) or LEADLINE_LLMSERVINGSIM")
    assert (shipped / f"{name}.json").read_text() == dump_profile(compose(name, folders))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=NAMES)
def test_a_shipped_profile_is_small_and_says_where_each_number_is_from(
    profile: Profile, shipped: Path
) -> None:
    size = (shipped / f"{profile.name}.json").stat().st_size
    assert size < (400_000 if profile.samples else 60_000)
    for terms in _passes(profile).values():
        assert all(term.source for term in terms)
    assert all(source.what for source in profile.sources)
    if profile is not SDBENCH:
        tables = [source for source in profile.sources if source.file]
        assert tables
        assert all(len(source.sha256) == 64 and source.licence for source in tables)
        kept = {sample.source for sample in profile.samples}
        assert kept == ({source.name for source in tables} if kept else set())


@given(
    profile=st.sampled_from(list(PROFILES.values())),
    batch=st.integers(0, 512),
    width=st.integers(1, 17),
    context=st.integers(0, 131_072),
    chunk=st.integers(0, 8192),
)
def test_no_pass_of_a_shipped_profile_is_negative_or_undefined(
    profile: Profile, batch: int, width: int, context: int, chunk: int
) -> None:
    shape = decode_shape(batch, context, width, profile.target.work.window_tokens)
    shape["tokens"] += chunk
    shape["prefill_pairs"] = chunk * (context + chunk / 2)
    for name, terms in _passes(profile).items():
        ns = pass_ns(terms, shape)
        assert np.isfinite(ns), name
        assert ns >= 0, name


@pytest.mark.parametrize("profile", PROFILES.values(), ids=NAMES)
def test_a_captured_step_is_much_dearer_than_any_draft_pass(profile: Profile) -> None:
    """Every drafter is lighter than its target at every batch, else drafting could not pay."""
    for batch in (1, 16, 128):
        shape = decode_shape(batch, 512)
        verify = pass_ns(profile.target.verify, shape)
        for drafter in profile.drafters.values():
            assert pass_ns(drafter.next, shape) < verify / 3
            assert pass_ns(drafter.first, shape) < verify / 3


BOUNDS = {
    # largest and mean error: AIC composes the same tables its own way; the fit is one straight
    # line through a whole engine; a small model's kernels overlap more than isolated ones
    AIC_8B: (0.08, 0.04),
    FIT_8B: (0.13, 0.10),
    AIC_27B: (0.08, 0.04),
    VIDUR_8B: (0.01, 0.005),
    STUDY_8B: (0.04, 0.025),
    FORWARD_17B: (0.25, 0.22),
    FORWARD_17B_8K: (0.20, 0.12),
}


@pytest.mark.parametrize("group", BOUNDS)
def test_composed_steps_are_near_published_ones(group: str, folders: Folders) -> None:
    errors = [abs(check.error) for check in checks(folders) if check.group == group]
    largest, mean = BOUNDS[group]
    assert max(errors) < largest
    assert sum(errors) / len(errors) < mean


def test_a_mixtures_step_is_steep_then_flat(folders: Folders) -> None:
    """Few tokens reach more and more experts; once all are read, more tokens cost little."""
    growth = moe_growth(folders)
    assert growth[16] > 2.5
    assert growth[64] > 4.5
    assert growth[128] / growth[64] < 1.05
    assert growth[256] / growth[64] < 1.25


def test_the_expert_layer_is_the_published_row(folders: Folders) -> None:
    """Ground truth case 8: 49 to 554 us for 1 to 1024 tokens, power-law routing."""
    term = moe_term(folders, "h100_sxm", Moe(2048, 768, 128, 8, layers=1), Ledger())
    tokens = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    published = (49, 74, 123, 182, 230, 364, 444, 418, 452, 479, 554)
    composed = [pass_ns([term], {"tokens": n}) / 1e3 for n in tokens]
    assert composed == pytest.approx(published, rel=0.012)


def test_a_dense_step_below_the_ridge_is_nearly_flat() -> None:
    """Up to 128 tokens the linear layers of a dense model cost within a quarter of one token's."""
    for name in ("llama-3.1-8b-h100", "qwen3.5-27b-h200", "qwen3.5-27b-h100"):
        linear = PROFILES[name].target.verify[0]
        one, many = (pass_ns([linear], {"tokens": n}) for n in (1, 128))
        assert many < 1.25 * one


def test_hybrid_state_traffic_is_what_the_bandwidth_allows() -> None:
    """One more sequence reads and writes 2 x 144 MiB: at least that over the datasheet's 4.8 TB/s."""
    profile = PROFILES["qwen3.5-27b-h200"]
    gdn = [term for term in profile.target.verify if term.name == "gdn"]
    one, two = (pass_ns(gdn, decode_shape(batch, 0)) for batch in (1, 2))
    least = 2 * 144 * 2**20 / profile.device.bandwidth_bytes_per_s * 1e9
    assert least < two - one < 1.35 * least


@given(st.integers(1, 128), st.integers(0, 4096))
def test_the_published_constants_give_the_published_sums(batch: int, context: int) -> None:
    """SpecDecode-Bench: forward, overhead and the three EAGLE passes of k = 3."""
    kv = batch * context
    wide, narrow = decode_shape(batch, context, 4), decode_shape(batch, context)
    eagle = SDBENCH.drafters["eagle"]
    drafts = pass_ns(eagle.first, wide) + 2 * pass_ns(eagle.next, narrow)
    assert pass_ns(SDBENCH.target.verify, narrow) / 1e6 == pytest.approx(
        5.886 + 0.0210 * batch + 3.926e-5 * kv, rel=1e-3
    )
    assert drafts / 1e6 == pytest.approx(2.135 + 8.41e-4 * 3 * batch + 2.378e-6 * kv, rel=1e-5)
    assert pass_ns(SDBENCH.target.host, narrow) / 1e6 == pytest.approx(1.207)


def test_prompt_lookup_is_its_published_share_of_the_verify_pass() -> None:
    for name in ("llama-3.1-8b-h100", "llama-3.1-8b-a100", "llama-3.1-8b-h100-sdbench"):
        profile = PROFILES[name]
        shape = decode_shape(32, 700, 4)
        lookup = pass_ns(profile.drafters["ngram"].first, shape)
        assert lookup / pass_ns(profile.target.verify, shape) == pytest.approx(0.005875, rel=1e-4)


def test_prefill_attention_of_the_constants_is_the_composed_one() -> None:
    slopes = [
        term.per_ns["prefill_pairs"]
        for profile in (SDBENCH, PROFILES["llama-3.1-8b-h100"])
        for term in profile.target.verify
        if "prefill_pairs" in term.per_ns
    ]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-3)


def test_an_eagle3_round_on_h100_takes_what_was_measured() -> None:
    """SpecDecode-Bench Fig. 4, k = 3: 1.98, 1.74, 1.91 ms of drafting at batch 1, 64, 128."""
    eagle = PROFILES["llama-3.1-8b-h100"].drafters["eagle3"]
    for batch, measured in ((1, 1.98), (64, 1.74), (128, 1.91)):
        first = pass_ns(eagle.first, decode_shape(batch, 512, 4))
        drafts = first + 2 * pass_ns(eagle.next, decode_shape(batch, 512))
        assert drafts / 1e6 == pytest.approx(measured, rel=0.25)


def test_the_document_shows_the_errors_of_the_present_tables(folders: Folders) -> None:
    document = (ROOT / "docs" / "profiles.md").read_text()
    for row in report(folders).splitlines()[2:]:
        assert row in document


def test_the_command_writes_what_it_says_and_names_what_is_missing(
    tmp_path: Path, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--groundtruth", str(folders.groundtruth), "--configs", str(folders.configs)]
    name = "llama-3.1-8b-h100"
    options = [*places, "--out", str(tmp_path), "--no-checks", name]
    assert main(["--tables", str(folders.tables), *options]) == 0
    assert load_profile(tmp_path / f"{name}.json").name == name
    assert main(["--tables", str(tmp_path), *options]) == 2
    assert "give --tables" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--tables", str(folders.tables), *options, "no-such-profile"])
