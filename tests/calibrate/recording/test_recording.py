"""A recording predicts real speculative decoding of the pair, and says what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="recording needs torch (pip install 'leadline[calibrate]')")

from typer.testing import CliRunner  # noqa: E402

from calibrate.cli import app  # noqa: E402
from calibrate.recording import run  # noqa: E402
from calibrate.recording.block import block_logits, train_block  # noqa: E402
from calibrate.recording.corpus import Corpus  # noqa: E402
from calibrate.recording.model import Shape  # noqa: E402
from calibrate.recording.pair import Pair, Recipe, load_pair, save_pair, untrained  # noqa: E402
from calibrate.recording.record import record  # noqa: E402
from calibrate.recording.sampling import GREEDY, generate  # noqa: E402
from calibrate.recording.speculate import speculate  # noqa: E402
from calibrate.recording.statistics import walk  # noqa: E402
from calibrate.recording.train import Plan  # noqa: E402
from sim.acceptance.trace import ChanceRow, read_trace  # noqa: E402

TINY = Recipe(
    target=Shape(1, 16, 2),
    draft=Shape(1, 8, 1),
    target_steps=3,
    draft_steps=3,
    block_steps=2,
    context=48,
)
PROMPT, OUTPUT, REQUESTS = 6, 24, 150


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def pair() -> Pair:
    """Random models of firm and related opinions; in double precision rounding breaks no tie."""
    made = untrained(TINY)
    with torch.no_grad():
        for model in (made.target, made.draft, made.block):
            model.double()
        made.draft.embedding.weight.copy_(made.target.embedding.weight[:, :8])
        for model in (made.target, made.draft):
            model.embedding.weight.mul_(30)
    text = generate(made.target, prompts(), 42, 1.0, luck(0)).flatten().to(torch.uint8)
    plan = Plan(25, windows=8, context=48, peak_rate=3e-2)
    train_block(made.block, made.target, Corpus({"code": text, "prose": text}, {}, ""), plan, 0)
    return made


def prompts() -> Any:
    return torch.randint(0, 256, (REQUESTS, PROMPT), generator=torch.Generator().manual_seed(3))


def luck(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


def test_a_cache_changes_nothing(pair: Pair) -> None:
    """Tokens fed in two parts give the logits of the whole, also after a roll-back."""
    text = generate(pair.target, prompts()[:4], 10, 1.0, luck(0))
    cache = pair.target.new_cache(4, 16)
    pair.target(text[:, :9], cache)
    cache.length = cache.length - 4
    assert torch.allclose(pair.target(text[:, 5:], cache), pair.target(text)[:, 5:])


def test_no_token_sees_what_follows_it(pair: Pair) -> None:
    """Changing the last token changes only the last logits."""
    text = prompts()[:4]
    changed = text.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 256
    before, after = pair.target(text), pair.target(changed)
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


@pytest.mark.parametrize(("drafter", "depth"), [("pair", 4), ("block", 2)])
def test_greedy_speculation_changes_no_token(pair: Pair, drafter: str, depth: int) -> None:
    """And its rounds are the recording's, to the last one."""
    plain = generate(pair.target, prompts(), OUTPUT + 4, GREEDY, luck(0))
    rounds = speculate(pair, drafter, prompts(), OUTPUT, depth, GREEDY, luck(1))
    assert torch.equal(rounds.text, plain[:, : PROMPT + OUTPUT])
    replay = walk(record(pair, plain, PROMPT, GREEDY)[drafter].chance, depth)
    inside = rounds.tokens.numpy() <= OUTPUT  # a row starts again where real text goes on
    assert inside.sum() > REQUESTS // 5
    assert np.array_equal(replay.rounds[inside], rounds.rounds.numpy()[inside])
    assert replay.rounds.sum() == pytest.approx(rounds.rounds.sum())


@pytest.mark.parametrize(
    ("drafter", "depth", "temperature"), [("pair", 1, 1.0), ("pair", 3, 0.6), ("block", 3, 1.0)]
)
def test_a_recording_predicts_rejection_sampling(
    pair: Pair, drafter: str, depth: int, temperature: float
) -> None:
    """Tokens per round of real rounds and of the recording differ by no more than luck."""
    text = generate(pair.target, prompts(), OUTPUT + 4, temperature, luck(5))
    replay = walk(record(pair, text, PROMPT, temperature)[drafter].chance, depth)
    real = speculate(pair, drafter, prompts(), OUTPUT, depth, temperature, luck(6))
    tokens, rounds = real.tokens.double().numpy(), real.rounds.double().numpy()
    mean = replay.tokens_per_round
    rest = (tokens - mean * rounds) / rounds.mean()
    own = (replay.tokens - mean * replay.rounds) / replay.rounds.mean()
    error = np.hypot(rest.std(), own.std()) / np.sqrt(REQUESTS)
    assert 1.05 < mean < depth + 0.9
    assert abs(rest.mean()) < 4 * error


def test_sampled_speculation_emits_the_targets_distribution(pair: Pair) -> None:
    """First tokens of many equal prompts are spread as the target's own probabilities."""
    count = 4000
    same = prompts()[:1].expand(count, -1)
    first = speculate(pair, "pair", same, 1, 2, 1.0, luck(8)).text[:, PROMPT]
    wanted = pair.target(same[:1])[0, -1].softmax(-1).detach().numpy()
    seen = np.bincount(first.numpy(), minlength=256)
    likely = wanted * count > 5
    score = (seen - wanted * count)[likely] / np.sqrt(wanted * (1 - wanted) * count)[likely]
    assert likely.sum() >= 3
    assert np.abs(score).max() < 4.5


def test_a_block_draft_sees_neither_the_drafts_before_it_nor_what_it_predicts(pair: Pair) -> None:
    """Round i's logits depend on tokens up to its bonus, token i + 1, alone."""
    text = prompts()[:3]
    changed = text.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 256
    before, after = (block_logits(pair.block, pair.target, each) for each in (text, changed))
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3], after[:, 3])


def test_a_command_leaves_traces_that_the_simulator_reads(tmp_path: Path) -> None:
    """Training, recording and the check of a tiny pair, to files; the models are kept for the next time."""
    options = run.Options(tmp_path, (GREEDY, 1.0), 8, PROMPT, 20, threads=1, recipe=TINY)
    paths = run.run(options, lambda _: None)
    assert [path.name for path in paths] == [
        f"byte-{each}.jsonl.gz" for each in ("pair-greedy", "block-greedy", "pair-t1", "block-t1")
    ]
    rows = read_trace(paths[2])
    assert len(rows) == 8
    assert all(isinstance(row, ChanceRow) and row.chance.shape == (20,) for row in rows)
    block = read_trace(paths[3])[0]
    assert isinstance(block, ChanceRow)
    assert block.chance.shape == (20, 4)
    about = json.loads((tmp_path / "byte-pair-t1.json").read_text())
    assert about["kind"] == "measured"
    assert about["models"]["target"]["tokens"] == 3 * 16 * 48
    assert set(about["check"]) == {"1", "2", "4", "8"}
    before = paths[2].read_bytes()
    run.run(options, lambda _: None)
    assert paths[2].read_bytes() == before


def test_models_of_another_recipe_are_not_taken(tmp_path: Path) -> None:
    """A folder keeps one pair."""
    save_pair(untrained(TINY), tmp_path / "pair.pt")
    with pytest.raises(ValueError, match="another recipe"):
        load_pair(Recipe(seed=1), tmp_path / "pair.pt")


def test_nothing_is_recorded_beyond_the_training_context(tmp_path: Path) -> None:
    """There acceptance falls because the models have never been there."""
    with pytest.raises(ValueError, match="at most 40 fit the training context"):
        run.Options(tmp_path, (1.0,), prompt_tokens=20, output_tokens=21, recipe=TINY)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--temperature", "warm"], "--temperature 'warm' is neither greedy nor a positive number"),
        (["--temperature", "0"], "--temperature '0' is neither"),
        (["--temperature", "nan"], "--temperature 'nan' is neither"),
        (["--requests", "3"], "--requests 3 is too few"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, flags: list[str], message: str) -> None:
    """Before anything is trained."""
    result = CliRunner().invoke(app, ["record-acceptance", "--out", str(tmp_path / "x"), *flags])
    assert result.exit_code == 2
    assert message in result.output
