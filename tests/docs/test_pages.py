"""The pages that people write: short lines, common words, and names of files and headings that exist."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = {"docs/settings.md", "docs/metrics.md"}
PAGES = sorted(
    {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))} - GENERATED
)
MAX_COLUMNS = 120
PRIVATE_WORDS = re.compile(
    r"\b(?:foretold|made anew|bites?|is told|are told|knocks?|is believed|are believed|asks? of|a word of|unhurt)\b"
)
"""Metaphors of earlier texts. The pages use the words of Kubernetes instead."""

_TARGET = re.compile(r"\]\([^)]*\)|<?https?://\S+")


def lines_of(page: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without tables."""
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if not line.startswith("|"):
            yield number, line


def too_long(line: str) -> bool:
    """Whether *line* is too long even without the addresses of its links."""
    return len(_TARGET.sub("", line)) > MAX_COLUMNS


@pytest.mark.parametrize("page", PAGES)
def test_lines_outside_tables_have_at_most_120_columns(page: str) -> None:
    assert [number for number, line in lines_of(page) if too_long(line)] == []


def test_a_long_line_is_found_and_a_long_link_is_not() -> None:
    assert too_long("word " * 30)
    assert not too_long(f"see [the page](https://example.org/{'a' * 120})")
    assert too_long(f"{'word ' * 30}see [the page](x.md)")


@pytest.mark.parametrize("page", PAGES)
def test_pages_use_common_words(page: str) -> None:
    found = [
        (number, word)
        for number, line in lines_of(page)
        for word in PRIVATE_WORDS.findall(re.sub(r"`[^`]*`", "", line))
    ]
    assert found == []


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted({*PAGES, *GENERATED}))
def test_links_between_pages_lead_somewhere(page: str) -> None:
    here = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", here.read_text()):
        if not target.startswith("http"):
            file, _, anchor = target.partition("#")
            found = here.parent / file if file else here
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), target


def test_the_glossary_is_short_and_each_entry_has_few_sentences() -> None:
    entries = re.findall(
        r"^- \*\*(.+?)\*\*: ((?:.+\n)(?:  .+\n)*)", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE
    )
    assert 30 <= len(entries) <= 40
    assert len({name for name, _ in entries}) == len(entries)
    for name, text in entries:
        assert len(re.findall(r"[.](?:\s|$)", text)) <= 3, name


def test_every_page_is_reachable_from_the_readme() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "docs/*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert set(tracked.split()) <= linked


def test_every_decision_has_at_most_five_lines() -> None:
    records = re.findall(r"^- (\*\*.+(?:\n  .+)*)", (ROOT / "docs/decisions.md").read_text(), re.MULTILINE)
    assert len(records) > 60
    assert [record for record in records if len(record.splitlines()) > 5] == []


def test_every_library_is_named_with_the_decisions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.split(r"[<>=;\[ ]", requirement)[0] for requirement in wanted} - {project["name"]}
    listed = (ROOT / "docs/decisions.md").read_text().partition("## Libraries")[2]
    named = {
        name
        for names in re.findall(r"^- (.*?(?:\n  .*?)*):", listed, re.MULTILINE)
        for name in re.findall(r"[\w-]+", names)
    }
    assert names - named == set()
