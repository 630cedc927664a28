"""The commit protocol as transcripts: each step of each text has the effects that the text says."""

import re
from pathlib import Path
from typing import Final

import pytest

from transcripts.stage import Stage
from transcripts.text import FILES, NOTHING, rewritten, steps_of

RULES: Final = re.compile(r"\b[Rr]ules? \d+(?:(?:, | and )\d+)*")


@pytest.mark.parametrize("path", FILES, ids=lambda it: it.stem)
def test_cells_have_the_effects_that_the_transcript_lists(path: Path) -> None:
    stage = Stage()
    for step in steps_of(path.read_text("utf-8")):
        place = f"{path.name}:{step.line}: {step.command}"
        assert (place, stage.run(step.command) or [NOTHING]) == (place, step.effects)


def test_the_rules_of_the_protocol_are_followed() -> None:
    """Those that show in what goes into a cell and what comes out of it."""
    texts = [it for path in FILES for it in RULES.findall(path.read_text("utf-8"))]
    named = {int(it) for text in texts for it in re.findall(r"\d+", text)}
    assert {1, 4, 6, 8, 11, 13, 14, 15, 16, 17, 18, 19, 20} <= named


# ---- the format

TEXT: Final = """# Words for readers.

open 1 cell
----
nothing

begin T
----
something else
and more
"""


def test_a_transcript_is_a_row_of_steps() -> None:
    assert [tuple(it) for it in steps_of(TEXT)] == [
        (3, "open 1 cell", ["nothing"]),
        (7, "begin T", ["something else", "and more"]),
    ]


@pytest.mark.parametrize(
    "text", ["open 1 cell\n", "open 1 cell\n\nbegin T\n----\n", "a\nb\n----\n"]
)
def test_a_command_without_its_effects_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"line [12]: ---- is missing"):
        list(steps_of(text))


def test_rewriting_a_transcript_replaces_its_effects() -> None:
    said = {"open 1 cell": [], "begin T": ["one", "two", "three"]}
    text = rewritten(TEXT, said.__getitem__)
    assert text == TEXT.replace("something else\nand more", "one\ntwo\nthree")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("begin", "no command of a transcript"),
        ("commit-one T at 0: row 1 = 1", "nothing is called 'T'"),
        ("commit-one U at 0: column 1", "no change of a row"),
        ("deliver to 0", "nothing waits for cell 0"),
        ("the oracle answers 0", "nothing waits for cell 0"),
    ],
)
def test_an_impossible_command_in_a_transcript_is_an_error(command: str, words: str) -> None:
    stage = Stage()
    stage.run("open 1 cell")
    stage.run("begin U")
    with pytest.raises(ValueError, match=words):
        stage.run(command)
