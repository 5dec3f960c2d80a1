"""The site is built without a warning, is whole, and asks the network for nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from tests.docs import command_line, depth_and_breadth, engines, modelled, schema, tutorial
from tests.docs.blocks import filled, table
from tests.docs.links import without_outside

ROOT = Path(__file__).resolve().parents[2]
GENERATED = (command_line, depth_and_breadth, engines, modelled, schema)
FETCHED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
KEPT_FOR_MACHINES = {"canonical", "alternate", "next", "prev"}


class Fetches(HTMLParser):
    """What a browser asks for when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        wanted = values.get(FETCHED.get(tag, ""))
        if wanted and not (tag == "link" and values.get("rel") in KEPT_FOR_MACHINES):
            self.found.append(wanted)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs and mkdocs-material, the extra `site`, are not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    made = subprocess.run(
        [*command, "-d", str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return folder


def test_the_site_builds_in_strict_mode_with_a_page_for_every_document(site: Path) -> None:
    """Strict mode refuses broken links, broken anchors and pages that no part of the site holds."""
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {page.with_name("index") if page.name == "README" else page for page in pages} <= built


def test_no_page_asks_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetches = Fetches()
        fetches.feed(page.read_text(encoding="utf-8"))
        assert fetches.found, page
        assert [each for each in fetches.found if re.match(r"(\w+:)?//", each)] == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", sheet.read_text(encoding="utf-8")) == [], sheet


def test_the_site_has_the_four_parts() -> None:
    # mkdocs.yml is plain YAML on purpose, without tags that only mkdocs reads.
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert [name for part in nav for name in part] == [
        "Home",
        "Tutorial",
        "Guides",
        "Reference",
        "Background",
    ]


@pytest.mark.parametrize("generator", GENERATED, ids=lambda g: g.__name__.rpartition(".")[2])
def test_generated_pages_are_current(generator: object) -> None:
    """If this fails, run ``python -m tests.docs.NAME``."""
    page = generator.PAGE.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert generator.page() == page  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_tutorial_shows_what_its_commands_print() -> None:
    pytest.importorskip("altair", reason="the extra `report` is not installed")
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    assert tutorial.page() == tutorial.PAGE.read_text(encoding="utf-8")


def test_the_pictures_of_depth_and_breadth_are_small() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("depth-and-breadth-*.svg"))
    assert len(pictures) == 4
    assert all(picture.stat().st_size < 150_000 for picture in pictures)


def test_an_edit_of_the_tutorial_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("a: 1\nb: 2\n")
    tutorial.edit(file, "-b: 2\n+b: 3\n+c: 4\n")
    assert file.read_text() == "a: 1\nb: 3\nc: 4\n"
    with pytest.raises(ValueError, match="b: 2"):
        tutorial.edit(file, "-b: 2\n+b: 5\n")


@pytest.mark.parametrize(
    ("folders", "text", "shown"),
    [
        (0, "[a](../x/y.yaml) [b](b.md)", "a [b](b.md)"),
        (1, "[a](../b.md) [c](../../x.py)", "[a](../b.md) c"),
    ],
)
def test_links_out_of_the_documentation_become_text(folders: int, text: str, shown: str) -> None:
    assert without_outside(text, folders) == shown


def test_parts_are_filled_and_a_missing_part_is_an_error() -> None:
    page = "x\n<!-- n -->\nold\n<!-- /n -->\ny"
    made = filled(page, {"n": table(("a",), [("1|2",)])})
    assert made == "x\n<!-- n -->\n\n| a |\n| --- |\n| 1\\|2 |\n\n<!-- /n -->\ny"
    assert filled(made, {"n": table(("a",), [("1|2",)])}) == made
    with pytest.raises(ValueError, match="other"):
        filled(page, {"other": ""})
