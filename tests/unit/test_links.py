"""No page of the project links to a file that is not there, to a heading that it does not have, or
to a test of that name; and the index of the documents leads to each page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
LINK: Final = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TOPS: Final = ("client", "docs", "helm", "loadtest", "tests")
PAGES: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *(it for top in TOPS for it in (ROOT / top).rglob("*.md")),
    ]
)


def prose(page: Path) -> str:
    """Without blocks of code, in which brackets are no links."""
    return FENCED.sub("", page.read_text("utf-8"))


def links_of(page: Path) -> Iterator[str]:
    for found in LINK.finditer(re.sub(r"`[^`\n]*`", "", prose(page))):
        target = found[1] or found[2]
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors_of(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them; a heading that comes again is numbered."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = sum(
            it == anchor or re.fullmatch(rf"{anchor}-\d+", it) is not None for it in anchors
        )
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def places_in(target: Path) -> set[str]:
    """What may be behind the `#`: a heading of a page, a function of a Python file."""
    if target.suffix == ".py":
        return set(re.findall(r"^(?:async )?def (\w+)", target.read_text("utf-8"), re.MULTILINE))
    return anchors_of(target)


def complaint(page: Path, link: str) -> str | None:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return f"{page.relative_to(ROOT)}: there is no {name}"
    if anchor and anchor not in places_in(target):
        return f"{page.relative_to(ROOT)}: {name or 'it'} has no #{anchor}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda it: str(it.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [it for link in links_of(page) if (it := complaint(page, link))] == []


def test_the_check_of_links_notices_a_dead_link(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    assert complaint(page, "docs/nowhere.md")
    assert complaint(page, "docs/README.md#nowhere")
    assert complaint(page, "#nowhere")
    assert complaint(page, "tests/unit/test_links.py#test_nothing")
    assert (
        complaint(page, "tests/unit/test_links.py#test_the_check_of_links_notices_a_dead_link")
        is None
    )
    assert complaint(page, "docs/README.md#reference-to-look-something-up") is None
    seen = tmp_path / "page.md"
    seen.write_text(
        '[a](b.md) <img src="c.svg"> `[d](e)` [f](https://g)\n```\n[h](i)\n```\n## J k!\n'
    )
    assert list(links_of(seen)) == ["b.md", "c.svg"]
    assert anchors_of(seen) == {"j-k"}


def test_the_index_leads_to_every_page() -> None:
    index = DOCS / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index)}
    pages = {it for it in DOCS.rglob("*.md") if it.parent.name != "decisions"} - {index}
    assert sorted(pages - linked) == []
