"""Pages, help texts and docstrings are easy to read, as far as that can be measured."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from documents.blocks import DOCS, ROOT
from documents.readability import (
    FRONT_SCORE_MIN,
    PAGE_SCORE_MIN,
    WORDS_MAX,
    prose_of,
    readability,
    sentences_of,
    syllable_count,
)
from dodona_local.cli import application

PAGES: Final = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
        *(ROOT / name for name in ("STYLE.md", "CHANGELOG.md")),
        *(ROOT / name / "README.md" for name in ("client", "loadtest")),
        *(ROOT / "helm").rglob("*.md"),
        *DOCS.rglob("*.md"),
    ]
)
REPLACED: Final = DOCS / "decisions" / "005-servers-use-the-clients-transport.md"
"""A decision that another one replaced keeps its text."""
FRONT: Final = {ROOT / "README.md", DOCS / "tutorial.md", DOCS / "reference" / "cli-options.md"}
PARTS: Final = [
    *(f"client/{it.name}" for it in sorted((ROOT / "client").iterdir()) if it.is_dir()),
    "oracle",
    "tablets",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda it: str(it.relative_to(ROOT)))
def test_a_page_is_easy_to_read(page: Path) -> None:
    found = readability(prose_of(page.read_text("utf-8")))
    assert found.score >= (FRONT_SCORE_MIN if page in FRONT else PAGE_SCORE_MIN)
    if page != REPLACED:
        assert (found.long, found.avoided) == ([], [])


def test_the_help_of_commands_is_easy_to_read() -> None:
    texts = list(help_texts(typer.main.get_command(application)))
    assert len(texts) > 100
    found = readability(texts)
    assert found.score >= FRONT_SCORE_MIN
    assert (found.long, found.avoided) == ([], [])


def help_texts(command: Any) -> Iterator[str]:
    yield from prose_of(command.help or "")
    yield from (it.help for it in command.params if getattr(it, "help", None))
    for each in getattr(command, "commands", {}).values():
        yield from help_texts(each)


@pytest.mark.parametrize("part", PARTS)
def test_docstrings_are_easy_to_read(part: str) -> None:
    texts = [
        paragraph
        for path in sorted((ROOT / part).rglob("*.py"))
        for text in docstrings(ast.parse(path.read_text("utf-8")))
        for paragraph in prose_of(inspect.cleandoc(text))
    ]
    found = readability(texts)
    assert found.score >= PAGE_SCORE_MIN
    assert (found.long, found.avoided) == ([], [])


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Those of attributes, too: texts that stand alone."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


# ---- the measure


PAGE: Final = """# A title, which is left out

A row has a key. It is
`sorted` by [its key](page.md#keys)! Is that all:

- *one* item
- another. With two sentences

| a table | is left out |
|---|---|

- [only](a.md): [links](b.md)

    make test     # an indented block is code

<!-- nobody sees this -->
```python
print("nor this")
```
"""


def test_prose_of_returns_only_the_text_that_people_read() -> None:
    paragraphs = prose_of(PAGE)
    first = "A row has a key. It is code by its key! Is that all:"
    assert paragraphs == [first, "one item", "another. With two sentences"]
    assert [it for text in paragraphs for it in sentences_of(text)] == [
        "A row has a key.",
        "It is code by its key!",
        "Is that all",
        "one item",
        "another.",
        "With two sentences",
    ]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "a key it's keys stored locked pulls the row's"),
        (2, "table tables gateway commit commits something using timestamp"),
        (3, "transaction however deleted everything created"),
        (4, "participant's operation"),
        (5, "serializable"),
    ],
)
def test_syllables_are_counted(count: int, words: str) -> None:
    assert {word: syllable_count(word) for word in words.split()} == dict.fromkeys(
        words.split(), count
    )


def test_a_text_is_measured() -> None:
    easy = readability(["The cat sat on the mat. The dog ran."])
    assert easy.score > 100
    hard = readability(["Serializability necessitates coordination of participating transactions."])
    assert hard.score < 0
    long = "a " * WORDS_MAX
    assert readability([f"{long}."]).long == []
    assert readability([f"{long} a."]).long == [f"{long} a."]
    assert readability(["Whoever asks is told. The rest is fine."]).avoided == [
        "Whoever asks is told."
    ]
    assert readability([]).score == 100
