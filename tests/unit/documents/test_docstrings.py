"""Pages and headings that docstrings name are there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = re.compile(r"docs/[\w./-]*\.md\b")
HEADING: Final = re.compile(r'\("([A-Z][^"]+)"\)')
"""As `("Long reads")` at the end of a docstring."""
OF_OTHERS: Final = "YTsaurus"


def docstrings(tree: ast.Module) -> Iterator[str]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield " ".join(text.split())


def lost(text: str, pages: dict[str, str]) -> list[str]:
    """What a docstring names and no page has."""
    missing = [it for it in PAGE.findall(text) if it not in pages]
    if OF_OTHERS not in text:
        headings = "\n".join(pages.values())
        missing += [
            heading
            for heading in HEADING.findall(text)
            if not re.search(rf"^#+ {re.escape(heading)}$", headings, re.MULTILINE)
        ]
    return missing


def pages() -> dict[str, str]:
    paths = sorted((ROOT / "docs").rglob("*.md"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


@pytest.mark.parametrize("part", ["client", "oracle", "tablets"])
def test_docstrings_name_only_existing_pages_and_headings(part: str) -> None:
    known = pages()
    found = {
        str(path.relative_to(ROOT)): missing
        for path in sorted((ROOT / part).rglob("*.py"))
        for text in docstrings(ast.parse(path.read_text()))
        if (missing := lost(text, known))
    }
    assert found == {}


def test_a_lost_heading_or_page_would_be_seen() -> None:
    known = {"docs/a.md": "# A\n\n## Long reads\n"}
    assert lost('Reads. ("Long reads") See docs/a.md.', known) == []
    assert lost('Reads. ("Writing rows") See docs/b.md.', known) == ["docs/b.md", "Writing rows"]
    assert lost('Source: the YTsaurus document, ("Reading").', known) == []
