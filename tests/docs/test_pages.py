# SPDX-License-Identifier: MIT
"""Pages keep their word: snippets run, embedded files are the files, links lead on."""

import re
from pathlib import Path

import pytest

from tests.docs.test_examples import ROOT, run

PRELUDES = Path(__file__).parent / "preludes"  # what a page's reader has already
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```python\n(?P<code>.*?)^```$", re.M | re.S
)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def snippets(page: Path) -> list[str]:
    """The Python that stands only on the page."""
    found = BLOCK.finditer(page.read_text())
    return [match["code"] for match in found if not match["file"]]


def prelude(page: Path) -> list[str]:
    path = PRELUDES / f"{page.stem}.py"
    return [path.read_text()] if path.exists() else []


WITH_SNIPPETS = [page for page in PAGES if snippets(page)]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name_of)
def test_the_snippets_of_a_page_run_as_one_program(page: Path, tmp_path: Path) -> None:
    program, code = tmp_path / "page.py", "\n".join([*prelude(page), *snippets(page)])
    if re.search(r"^import torch$", code, re.M):
        pytest.importorskip("torch")
    program.write_text(code)
    run(program, cwd=tmp_path)


def test_embedded_files_are_the_files() -> None:
    found = [match for page in PAGES for match in BLOCK.finditer(page.read_text())]
    files = [(match["file"], match["code"]) for match in found if match["file"]]
    assert files
    other = [file for file, code in files if code != (ROOT / file).read_text()]
    assert other == [], "run .ci/embed"


def test_links_lead_somewhere() -> None:
    links = [(page, to) for page in PAGES for to in LINK.findall(page.read_text())]
    assert [(p, to) for p, to in links if not (p.parent / to).exists()] == []


def test_the_readme_has_twenty_lines_or_so_that_run() -> None:
    (program,) = snippets(ROOT / "README.md")
    code = [line for line in program.splitlines() if line.strip()]
    assert 15 <= len(code) <= 25


def test_figures_of_the_readme_are_those_of_the_performance_page() -> None:
    def rows(page: str) -> list[list[str]]:
        lines = (ROOT / page).read_text().splitlines()
        table = [line for line in lines if line.startswith("| ") and "goal" not in line]
        return [[cell.strip() for cell in line.split("|")] for line in table]

    measured = rows("docs/performance.md")
    assert len(rows("README.md")) == 5
    assert [row for row in rows("README.md") if row not in measured] == []


def test_the_words_of_the_design_are_sorted_and_name_what_exists() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+?) \|$", glossary, re.M)[1:]
    words = [word.split(",")[0] for word, _ in rows]
    assert words == sorted(words) and len(set(words)) == len(words) > 20
    places = [place for _, where in rows for place in re.findall(r"`(.+?)`", where)]
    roots = (ROOT, ROOT / "mooactor", ROOT / "mooactor" / "tensors")
    assert [p for p in places if not any((root / p).exists() for root in roots)] == []
