"""``leadline acceptance`` on the command line."""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sim.acceptance.build import expected_survival
from sim.acceptance.cli import app
from sim.acceptance.fit.readers import FORMATS
from sim.scenario.load import load_scenario
from tests.acceptance.helpers import configure
from tests.acceptance.test_fit_readers import LOG, TEXTS

SCENARIO = """
profile: llama-3.1-8b-h100
drafter: eagle3
{acceptance}
workload:
  arrival: {{process: poisson, request_rate: 4/s}}
  lengths: {{input: 512, output: 128}}
  num_requests: 50
policies: [off, {{policy: static, k: 3}}]
"""


def run(*arguments: str, code: int = 0) -> str:
    """What the command prints, on either stream."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result.output


def block_of(output: str) -> str:
    """The YAML block in a report."""
    lines = output[output.index("acceptance:\n") :].split("\n")
    return "\n".join(lines[: lines.index("")])


def test_the_command_is_one_of_leadlines() -> None:
    """The entry point leads here (after a change of pyproject.toml, install again)."""
    found = {entry.name: entry for entry in entry_points(group="leadline.commands")}
    assert found["acceptance"].load() is app


@pytest.mark.parametrize("kind", ["vllm-log", "prometheus", "vllm-bench"])
def test_the_block_can_be_pasted_into_a_scenario(tmp_path: Path, kind: str) -> None:
    """A report's block below a scenario's other keys loads, and is the process of --json."""
    file = tmp_path / "seen"
    file.write_text(TEXTS[kind])
    block = block_of(run("fit", str(file)))
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO.format(acceptance=block))
    data = json.loads(run("fit", str(file), "--json"))
    assert load_scenario(scenario).acceptance == configure(**data["acceptance"])
    assert data["evidence"]["tokens_per_round"] == {"3": 2.45}
    assert data["cannot_tell"]


def test_a_report_refuses_accepted_over_drafted_and_says_what_is_unknown(tmp_path: Path) -> None:
    """The rate of the data, why it is no alpha, and what the data leave open."""
    file = tmp_path / "server.log"
    file.write_text(LOG)
    output = " ".join(run("fit", str(file)).split())
    assert "accepted / drafted is 0.483 at depth 3. It is no per-token rate, and refused as alpha" in output
    assert "What these data cannot tell - How requests differ" in output
    assert "tok/round, other windows" in output


def test_a_mean_length_says_that_iid_was_assumed() -> None:
    """Nothing is held out, and the block is what a scenario knows as mean_length."""
    output = run("fit", "--mean-length", "2.88", "--depth", "5")
    assert yaml.safe_load(block_of(output)) == {
        "acceptance": {"process": "mean_length", "depth": 5, "acceptance_length": 2.88}
    }
    assert "(iid)" in output
    assert "nothing was left to hold out" in output


def test_rates_of_either_kind() -> None:
    """Conditional rates that are all alike are one rate."""
    data = json.loads(run("fit", "--rates", ".7,.7,.7,.7", "--conditional", "--json"))
    assert data["acceptance"] == {"process": "iid", "alpha": pytest.approx(0.7, abs=1e-3)}
    assert data["evidence"]["tokens_per_round"] == {"4": pytest.approx(2.7731)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the three"),
        (["--mean-length", "2.5"], "needs the depth"),
        (["--mean-length", "7", "--depth", "5"], "outside 1..6"),
        (["--rates", "a,b"], "write numbers with commas"),
        (["--rates", ".5,.6"], "--conditional"),
        (["--rates", ".5", "--format", "x"], "must be one of"),
        (["no-such-file"], "cannot be read"),
    ],
)
def test_mistakes_exit_with_2(arguments: list[str], message: str) -> None:
    """A message, no traceback."""
    assert message in " ".join(run("fit", *arguments, code=2).split())


def test_formats_are_listed() -> None:
    """One line each."""
    assert [line.split()[0] for line in run("formats").splitlines()] == list(FORMATS)


# -- export ----------------------------------------------------------------------------------------


def test_export_writes_what_fit_reads(tmp_path: Path) -> None:
    """From vLLM's fields to a block, and from the block to the same fields."""
    fields = {
        "num_speculative_tokens": 4,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [0.81, 0.62, 0.44, 0.3],
    }
    config = tmp_path / "speculative.json"
    config.write_text(json.dumps({"method": "eagle3", "model": "a-drafter", **fields}))
    block = tmp_path / "block.yaml"
    block.write_text(run("fit", str(config)))
    assert json.loads(run("export", str(block), "--depth", "4")) == fields


@pytest.mark.parametrize(
    "acceptance",
    [
        {"process": "markov", "good": 0.9, "bad": 0.3, "leave_good": 0.1, "leave_bad": 0.2},
        {"process": "beta", "a": 4.0, "b": 2.0},
        {"process": "iid", "alpha": 0.8, "depth_decay": 0.9},
    ],
    ids=lambda each: each["process"],
)
def test_exported_rates_are_the_unconditional_ones_of_walks(
    tmp_path: Path, acceptance: dict[str, object]
) -> None:
    """At the stated depth; they add up to the tokens per round, and never rise."""
    file = tmp_path / "block.yaml"
    file.write_text(yaml.safe_dump({"acceptance": acceptance}))
    rates = json.loads(run("export", str(file), "--for", "vllm", "-k", "5"))["synthetic_acceptance_rates"]
    assert rates == pytest.approx(expected_survival(configure(**acceptance), 5), abs=5e-5)
    assert rates == sorted(rates, reverse=True)


def test_export_of_a_recording_walks_it(tmp_path: Path) -> None:
    """Runs 2 0 1 at depth 2: rounds accept 2 and 0 and 1 of them... by hand."""
    (tmp_path / "t.jsonl").write_text('{"accepted": [2, 0, 0, 1, 0, 0]}\n')
    file = tmp_path / "block.yaml"
    file.write_text("acceptance: {process: trace, path: t.jsonl}\n")
    rates = json.loads(run("export", str(file), "-k", "2"))["synthetic_acceptance_rates"]
    assert rates == pytest.approx([2 / 3, 1 / 3], abs=1e-4)  # rounds at 0, 3, 5 accept 2, 1, 0


def test_export_of_a_scenario(tmp_path: Path) -> None:
    """A scenario's own acceptance; one that states none says how to."""
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO.format(acceptance="acceptance: {process: iid, alpha: 0.5}"))
    assert json.loads(run("export", str(file), "-k", "2"))["synthetic_acceptance_rates"] == [0.5, 0.25]
    file.write_text(SCENARIO.format(acceptance="").replace(", {policy: static, k: 3}", ""))
    assert "states no acceptance" in run("export", str(file), "-k", "2", code=2)
    file.write_text("acceptance: {process: iid, alpha: 2}\n")
    assert "acceptance.iid.alpha" in run("export", str(file), "-k", "2", code=2)
    assert "only vllm" in run("export", str(file), "-k", "2", "--for", "trt", code=2)


# -- documentation ---------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs" / "acceptance.md"


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    """The report and the export in docs/acceptance.md are real output."""
    page = PAGE.read_text(encoding="utf-8")
    command = next(
        line for line in page.splitlines() if line.startswith("    leadline acceptance fit --rates")
    )
    shown = page[page.index("```text\n--rates:") + len("```text\n") :]
    printed = run(*command.split()[2:])
    words, numbers = _parts(shown[: shown.index("```")])
    assert _parts(printed)[0] == words
    # The optimiser's last digit depends on the processor's instructions.
    assert _parts(printed)[1] == pytest.approx(numbers, rel=2e-3)
    file = tmp_path / "mine.yaml"
    file.write_text("acceptance: {process: per_position, unconditional: [.68, .47, .33]}\n")
    assert run("export", str(file), "--for", "vllm", "--depth", "3").strip() in page


def _parts(text: str) -> tuple[list[str], list[float]]:
    """The words of every line that has any, and the numbers between them."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    number = r"(?<![\w.])[-+]?\d+(?:\.\d+)?"
    return [re.sub(number, "#", line) for line in lines], [
        float(n) for n in re.findall(number, "\n".join(lines))
    ]
