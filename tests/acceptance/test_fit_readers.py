"""Every format says the same thing in its own words, and bad lines say where they are bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.acceptance.build import expected_survival
from sim.acceptance.fit.evidence import Evidence, pooled
from sim.acceptance.fit.readers import FORMATS, Stated, read_files, recognise
from sim.acceptance.fit.synthetic import config_of, falling, fields_of
from sim.errors import InputError, TraceError

# Two windows of a server with three drafts: 100 and 300 rounds. The text is vLLM's (metrics.py, 2026).
WINDOW = (
    "(APIServer pid=7) INFO 04-22 19:12:46 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: "
    "{mean}, Accepted throughput: 766.65 tokens/s, Drafted throughput: 1432.10 tokens/s, "
    "Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
    "Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 53.5%"
)
LOG = "\n".join(
    [
        "INFO 04-22 19:12:40 [loggers.py:310] Engine 000: Running: 8 reqs, GPU KV cache usage: 1.0%",
        WINDOW.format(mean="2.30", accepted=130, drafted=300, rates="0.700, 0.400, 0.200"),
        WINDOW.format(mean="nan", accepted=0, drafted=0, rates="nan, nan, nan"),
        WINDOW.format(mean="2.50", accepted=450, drafted=900, rates="0.800, 0.500, 0.200"),
    ]
)
SURVIVAL = [0.775, 0.475, 0.2]  # of 400 rounds: (70 + 240, 40 + 150, 20 + 60) / 400


def scrape(drafts: int, accepted: list[int], width: int = 3, **more: int) -> str:
    """Text of /metrics: two engines, of which the second did a tenth of the first's rounds."""
    lines = ["# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts."]
    values = {
        "spec_decode_num_drafts_total": drafts,
        "spec_decode_num_draft_tokens_total": drafts * width,
        "spec_decode_num_accepted_tokens_total": sum(accepted),
        **more,
    }
    for engine, share in (("0", 0.9), ("1", 0.1)):
        labels = f'engine="{engine}",model_name="m"'
        lines += [f"vllm:{name}{{{labels}}} {value * share}" for name, value in values.items()]
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{i}"}} {count * share}'
            for i, count in enumerate(accepted)
        ]
        lines.append(f"vllm:spec_decode_num_drafts_created{{{labels}}} 1.7e+09")
    return "\n".join(lines) + "\n"


BENCH = {
    "request_throughput": 3.0,
    "spec_decode_acceptance_rate": 48.33,
    "spec_decode_acceptance_length": 2.45,
    "spec_decode_num_drafts": 400,
    "spec_decode_draft_tokens": 1200,
    "spec_decode_accepted_tokens": 580,
    "spec_decode_per_position_acceptance_rates": SURVIVAL,
}
HISTOGRAM = {"0": 90, "1": 120, "2": 110, "3": 80}  # rounds by accepted drafts: the same survival
AIPERF = {"schema_version": "1.4", "pooled_spec_decode_acceptance_histogram": HISTOGRAM}
SERVER = {
    "metrics": {
        "vllm:spec_decode_num_drafts": {"series": [{"labels": {}, "stats": {"total": 400.0}}]},
        "vllm:spec_decode_num_draft_tokens": {"series": [{"labels": {}, "stats": {"total": 1200.0}}]},
        "vllm:spec_decode_num_accepted_tokens": {"series": [{"labels": {}, "stats": {"total": 580.0}}]},
        "vllm:spec_decode_num_accepted_tokens_per_pos": {
            "series": [
                {"labels": {"position": str(i)}, "stats": {"total": 400 * share}}
                for i, share in enumerate(SURVIVAL)
            ]
        },
    }
}
TEXTS = {
    "vllm-log": LOG,
    "prometheus": scrape(400, [310, 190, 80]),
    "vllm-bench": json.dumps(BENCH, indent=2),
    "aiperf": json.dumps(AIPERF),
    "aiperf-server": json.dumps(SERVER),
    "rates": "# ours\ndepth,rounds,p1,p2,p3\n3,100,.7,.4,.2\n3,300,.8,.5,.2\n",
}


def read(tmp_path: Path, *texts: str, form: str | None = None, depth: int | None = None) -> Any:
    """The evidence in files of these texts."""
    paths = []
    for i, text in enumerate(texts):
        paths.append(tmp_path / f"file{i}")
        paths[-1].write_text(text)
    return read_files(paths, form, depth)


@pytest.mark.parametrize("kind", TEXTS)
def test_every_count_of_the_same_rounds_is_the_same(tmp_path: Path, kind: str) -> None:
    """400 rounds of three drafts, in each format, recognised by content."""
    evidence = read(tmp_path, TEXTS[kind])
    assert evidence.format == kind
    whole = pooled(evidence.counted)
    assert whole.survival == pytest.approx(SURVIVAL, abs=1e-9)
    assert whole.rounds == pytest.approx(400)
    assert whole.tokens_per_round == pytest.approx(2.45)
    assert evidence.depths == (3,)


def test_log_windows_stay_apart_and_idle_ones_are_passed_over(tmp_path: Path) -> None:
    """Rounds of a window are its accepted drafts over the sum of its rates."""
    evidence = read(tmp_path, LOG)
    assert [window.rounds for window in evidence.counted] == pytest.approx([100, 300])
    assert evidence.counted[0].survival == (0.7, 0.4, 0.2)


def test_scrapes_in_order_are_windows_between_them(tmp_path: Path) -> None:
    """Counters grow; what grew between two scrapes is one window."""
    first, second, third = (
        scrape(n, counts) for n, counts in ((50, [30, 20, 9]), (150, [100, 60, 29]), (450, [340, 210, 89]))
    )
    evidence = read(tmp_path, first, second, third)
    assert [window.rounds for window in evidence.counted] == pytest.approx([100, 300])
    assert pooled(evidence.counted).survival == pytest.approx(SURVIVAL)
    with pytest.raises(InputError, match=r"file1: \w+ is \d+, less than .* in order of time"):
        read(tmp_path, second, first)


def test_rounds_without_drafts_are_seen_in_generated_tokens(tmp_path: Path) -> None:
    """400 drafted rounds emit 980 tokens; of 1,590 generated by 10 requests, 600 came one by one."""
    text = scrape(400, [310, 190, 80], generation_tokens_total=1590, request_success_total=10)
    evidence = read(tmp_path, text)
    assert evidence.in_vain == pytest.approx(0.4 * 0.225 / (1 - 0.4 * 0.775))
    assert pooled(evidence.counted).survival == pytest.approx(0.4 * np.array(SURVIVAL))
    assert pooled(evidence.counted).rounds == pytest.approx(1000)
    assert read(tmp_path, scrape(400, [310, 190, 80], generation_tokens_total=1000)).in_vain is None


def test_depths_that_varied_are_said(tmp_path: Path) -> None:
    """A third fewer drafts than rounds times depth."""
    text = WINDOW.format(mean="2.30", accepted=130, drafted=200, rates="0.700, 0.400, 0.200")
    assert any("33% of the drafts" in note for note in read(tmp_path, text).notes)


def test_accepted_over_drafted_needs_its_depth(tmp_path: Path) -> None:
    """Early 2025 lines hold sums alone: refused without a depth, a mean with one."""
    line = "SpecDecoding metrics: Draft acceptance rate: 45.0%, Accepted: 90 tokens, Drafted: 200 tokens"
    with pytest.raises(TraceError, match=r"file0:1: .*0\.45 is not a per-token rate; .*--depth"):
        read(tmp_path, line)
    group = read(tmp_path, line, depth=4).counted[0]
    assert group.tokens_per_round == pytest.approx(1 + 4 * 0.45)
    assert group.survival == ()


# -- requests --------------------------------------------------------------------------------------

DENSE = {
    "mean_acceptance_length": 2.0,
    "acceptance_histogram": [1, 2, 1, 0],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 4,
    "num_draft_tokens": 12,
    "num_spec_tokens": 3,
}
DETAILED = {**DENSE, "per_step_accepted": [1, 0, 2, 1], "per_step_drafted": [3, 3, 3, 2]}
AIPERF_RECORD = {"metadata": {}, "metrics": {"x": 1}, "spec_decode_acceptance": {**DENSE, "engine": "vllm"}}


@pytest.mark.parametrize(
    "rows",
    [
        [{"metrics": {"speculative_decoding": DENSE}}, {"metrics": {"speculative_decoding": DENSE}}],
        [{"metadata": {"benchmark_phase": "warmup"}}, AIPERF_RECORD, AIPERF_RECORD],
        [{**AIPERF_RECORD["spec_decode_acceptance"], "acceptance_histogram": {"0": 1, "1": 2, "2": 1}}] * 2,
    ],
    ids=["vllm responses", "aiperf records", "bare"],
)
def test_histograms_of_requests(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """Both spellings of the histogram; rounds have no order, and lines without acceptance are none."""
    evidence = read(tmp_path, "\n".join(map(json.dumps, rows)))
    assert evidence.format == "records"
    assert evidence.detail == "requests"
    assert [request.tokens_per_round for request in evidence.requests] == [2.0, 2.0]
    assert evidence.by_depth()[0].survival == (0.75, 0.25, 0.0)


def test_detailed_responses_keep_the_order_of_rounds(tmp_path: Path) -> None:
    """Drafted and accepted of each round; a response saved as one indented object is one, too."""
    body = {"choices": [], "metrics": {"speculative_decoding": DETAILED}}
    evidence = read(tmp_path, json.dumps(body, indent=1))
    assert evidence.detail == "rounds"
    assert evidence.requests[0].steps == ((3, 1), (3, 0), (3, 2), (2, 1))


def test_own_tables_of_requests(tmp_path: Path) -> None:
    """CSV sums, accepted per round, tokens per round: the same two requests."""
    csv = read(tmp_path, "request,rounds,accepted\na,4,4\nb,2,1\n", depth=3)
    accepted = read(
        tmp_path, '{"accepted_per_round": [1, 0, 2, 1], "depth": 3}\n{"accepted_per_round": [1, 0]}', depth=3
    )
    tokens = read(tmp_path, '{"tokens_per_round": [2, 1, 3, 2]}\n{"tokens_per_round": [2, 1]}', depth=3)
    for evidence in (csv, accepted, tokens):
        assert [(r.depth, r.rounds, r.accepted) for r in evidence.requests] == [(3, 4, 4), (3, 2, 1)]
    assert (csv.detail, tokens.detail) == ("requests", "rounds")


def test_lengths_by_depth_and_rates_by_position(tmp_path: Path) -> None:
    """Aliases of columns; conditional rates multiply up."""
    lengths = read(tmp_path, "k,tau\n1,1.6\n3,2.2\n")
    assert [(g.depth, g.tokens_per_round) for g in lengths.counted] == [(1, 1.6), (3, 2.2)]
    rates = read(tmp_path, "position,conditional\n1,.5\n2,.8\n")
    assert rates.counted[0].survival == pytest.approx((0.5, 0.4))


def test_recordings_are_read_at_every_depth(tmp_path: Path) -> None:
    """Compressed or plain; the longest run stands for a depth that no row states."""
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"accepted": [2, 1, 0, 5, 4]}\n{"accepted": [0, 1]}\n'))
    evidence = read_files([path], None, None)
    assert isinstance(evidence, Evidence)
    assert evidence.detail == "positions"
    assert [run.tolist() for run in evidence.runs] == [[2, 1, 0, 5, 4], [0, 1]]
    assert evidence.recorded_depth == 5
    stated = read(tmp_path, '{"accepted": [2, 1, 0], "depth": 4}')
    assert (stated.recorded_depth, stated.depth_in_rows) == (4, True)


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SpecDecoding metrics: Accepted: 5 tokens\n", r"file0:1: .*lacks 'Accepted"),
        (LOG.replace("Accepted: 450", "Accepted: 950"), r"file0:4: accepts 950 of 900"),
        (LOG.replace("0.500, 0.200", "0.500, 0.600"), r"file0:4: .*never rise"),
        ('vllm:spec_decode_num_drafts_total{a="b"} many\n', "file0:1: .* is no counter"),
        ("vllm:spec_decode_num_accepted_tokens_per_pos_total 4\n", "file0:1: .*no label position"),
        ("vllm:spec_decode_num_drafts_total 0\n", "no rounds were counted"),
        ("rounds,accepted\n4,4\n4\n4,13\n", r"file0:3: has 1 fields"),
        ("depth,acceptance_length\n3,5\n", r"file0:2: acceptance_length 5 is outside 1\.\.4"),
        ("position,rate\n1,.5\n2,.6\n", r"never rise, but 0\.6 follows 0\.5"),
        ("depth,p1,p3\n2,.5,.2\n", r"file0:2: .*leave none out"),
        ('{"accepted_per_round": [1, 4], "depth": 3}\n', r"file0:1: .*at most 3"),
        ('{"accepted_per_round": [1]}\n', "file0:1: says no depth"),
        ('{"accepted": [1]}\n{"accepted": [-1]}\n', r"file0:2: accepted\[0\] is -1"),
        (
            json.dumps(AIPERF_RECORD).replace('"num_spec_tokens": 3', '"num_spec_tokens": 1'),
            "file0:1: accepts 2",
        ),
        ('{"spec_decode_num_drafts": 5}', "has no spec_decode"),
        ("hello\n", "none of the known formats"),
        ("", "none of the known formats"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    """File and line where there is one, and what would be right."""
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_several_bad_rows_are_told_together(tmp_path: Path) -> None:
    """The user mends them in one go."""
    with pytest.raises(TraceError, match=r"file0:2: .*\n.*file0:4: "):
        read(tmp_path, "rounds,accepted,depth\n4,99,3\n4,4,3\n0,0,3\n")


def test_files_of_two_kinds_are_refused(tmp_path: Path) -> None:
    """What would be added up must count the same thing."""
    with pytest.raises(InputError, match=r"file0 is vllm-log, .*file1 is vllm-bench"):
        read(tmp_path, LOG, TEXTS["vllm-bench"])


def test_every_format_that_is_listed_can_be_forced(tmp_path: Path) -> None:
    """A forced format reads the file in its own way, so wrong ones fail with a message."""
    for form in FORMATS:
        with pytest.raises(InputError, match="file0"):
            read(tmp_path, "x,y\n1,2\n", form=form)


# -- vLLM's synthetic acceptance -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "depth", "rates"),
    [
        (2.6, 3, [1.0, 0.6, 0.0]),
        (1.0, 3, [0.0, 0.0, 0.0]),
        (4.0, 3, [1.0, 1.0, 1.0]),
        (2.0, 3, [1.0, 0.0, 0.0]),
        (3.5, 4, [1.0, 1.0, 0.5, 0.0]),
    ],
)
def test_a_synthetic_length_means_the_rates_of_least_variance(
    length: float, depth: int, rates: list[float]
) -> None:
    """The cases of vLLM's own test (tests/v1/spec_decode/test_synthetic_rejection_sampler_utils.py)."""
    fields = {"num_speculative_tokens": depth, "synthetic_acceptance_length": length}
    assert expected_survival(config_of("f", fields), depth) == pytest.approx(rates)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=9))
def test_synthetic_rates_survive_the_round_trip(ten_thousandths: list[int]) -> None:
    """Fields to process to fields, to the four digits that are written."""
    rates = sorted((value / 10_000 for value in ten_thousandths), reverse=True)
    fields = {
        "num_speculative_tokens": len(rates),
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": rates,
    }
    process = config_of("f", fields)
    assert fields_of(expected_survival(process, len(rates)).tolist()) == fields


@given(st.floats(0, 1), st.integers(1, 12))
def test_the_older_mean_rate_is_accepted_over_drafted(rate: float, depth: int) -> None:
    """vLLM PR 38045: joint probabilities average to the rate; conditional ones fall by 0.85 or less."""
    config = falling(rate, depth)
    assert expected_survival(config, depth).mean() == pytest.approx(rate, abs=1e-6)
    assert 0.85 <= config.depth_decay <= 1
    assert config.depth_decay in (0.85, 1.0) or config.alpha == 1


def test_a_speculative_config_is_recognised_in_json_and_yaml(tmp_path: Path) -> None:
    """At the top or one level down."""
    body = {
        "method": "eagle3",
        "num_speculative_tokens": 2,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [0.8, 0.5],
    }
    for text in (
        json.dumps(body),
        json.dumps({"speculative_config": body}),
        "speculative_config: " + json.dumps(body),
    ):
        stated = read(tmp_path, text)
        assert isinstance(stated, Stated)
        assert recognise("f", text) == "vllm-synthetic"
        assert expected_survival(stated.config, 2) == pytest.approx([0.8, 0.5])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rejection_sample_method": "standard"}, "only 'synthetic'"),
        ({"num_speculative_tokens": 0}, "whole number from 1"),
        ({}, "none of synthetic_acceptance_rates"),
        ({"synthetic_acceptance_length": 2, "synthetic_acceptance_rates": [1, 0, 0]}, "exactly one"),
        ({"synthetic_acceptance_rates": [0.5, 0.4]}, "list 3 rates"),
        ({"synthetic_acceptance_rates": [0.5, 0.6, 0.1]}, "must not rise"),
        ({"synthetic_acceptance_rates": [1.5, 0.6, 0.1]}, r"lie in 0\.\.1"),
        ({"synthetic_acceptance_length": 5}, r"lie in 1\.\.4"),
    ],
)
def test_synthetic_fields_that_vllm_refuses_are_refused(fields: dict[str, Any], message: str) -> None:
    """Length, range and order, as vLLM checks them."""
    with pytest.raises(InputError, match=message):
        config_of("f", {"num_speculative_tokens": 3, **fields})
