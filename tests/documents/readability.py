"""How easy a text is to read: Flesch's score, the length of its sentences, and words to avoid.
`python -m documents.readability PAGE...` prints it.

Owns: which part of a page is prose, and what the house asks of prose (STYLE.md, "Words"). Source of
the score: R. Flesch, "A new readability yardstick", 1948: 100 is easy, 60 is plain, 30 is a paper.
The syllables are counted by rules. For 99 of 100 words of these pages they agree with the CMU
dictionary of pronunciations.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

WORDS_MAX: Final = 25
"""Of a sentence."""
PAGE_SCORE_MIN: Final = 65.0
FRONT_SCORE_MIN: Final = 70.0
"""Of pages and help texts that a newcomer reads first."""

AVOIDED: Final = re.compile(
    r"\b(whoever|whatever|whichever|nobody|somebody|everybody|anybody|told|goes by|lets? go of"
    r"|all the same|at once|mischief)\b",
    re.IGNORECASE,
)
"""Words for which a noun, or a term of the field, says more."""

_FENCE: Final = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_NO_PROSE: Final = ("#", "|", "<", "![")
_INDENTED: Final = "    "
"""Begins a block of code, unless it goes on with a list item."""
_ITEM: Final = re.compile(r"(?:[-*+]|\d+\.)\s+")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE: Final = re.compile(r"`[^`]*`")
_MARKS: Final = re.compile(r"[*_]{1,3}([^*_]+)[*_]{1,3}")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[\"')]*\s+|:$")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'’]*")

_VOWELS: Final = re.compile("[aeiouy]+")
_TWO_SYLLABLES: Final = re.compile(r"ia(?!l)|io(?!n|us)|eo(?!p)|ua(?![rg])|iu|ie[rtn]|yi|(?<=cr)ea")
"""Vowels side by side that are spoken one after the other."""
_SILENT: Final = re.compile(
    r"(?<![^aeiouy]l)e$|(?<![dtu])ed$|(?<![scxzgiu])(?<!sh)(?<!ch)(?<![^aeiouy]l)es$"
    r"|e(?=ment|ful$|ly$|less)"
    r"|(?<=^tim)e|(?<=^som)e|(?<=^wher)e|(?<=^gat)e|(?<=^ther)e|(?<=^ever)y|(?<=^mor)e"
)
_SHORT_WORD: Final = 4


class Readability(NamedTuple):
    """Of one text."""

    score: float
    word_count: int
    long: list[str]
    """Sentences above `WORDS_MAX` words."""
    avoided: list[str]
    """Sentences with a word of `AVOIDED`."""


def readability(paragraphs: Iterable[str]) -> Readability:
    """Measure prose. Without a sentence the score is 100."""
    sentences = [it for paragraph in paragraphs for it in sentences_of(paragraph)]
    words = [word for it in sentences for word in _WORD.findall(it)]
    if not words:
        return Readability(100.0, 0, [], [])
    per_sentence = len(words) / len(sentences)
    per_word = sum(map(syllable_count, words)) / len(words)
    return Readability(
        206.835 - 1.015 * per_sentence - 84.6 * per_word,
        len(words),
        [it for it in sentences if len(_WORD.findall(it)) > WORDS_MAX],
        [it for it in sentences if AVOIDED.search(it)],
    )


def prose_of(page: str) -> list[str]:
    """Return the paragraphs and list items of a Markdown page, each on one line. Code blocks,
    tables, headings, comments, and lists of links alone are left out. A code span counts as one
    word."""
    found: list[str] = []
    lines: list[str] = []
    for line in (*_COMMENT.sub("", _FENCE.sub("\n", page)).splitlines(), ""):
        text = line.strip()
        item = _ITEM.match(text)
        is_prose = bool(text) and not text.startswith(_NO_PROSE)
        if lines and (item or not is_prose):
            found.append(" ".join(lines))
            lines = []
        if is_prose and (lines or item or not line.startswith(_INDENTED)):
            lines.append(text[item.end() :] if item else text)
    return [_plain(it) for it in found if _WORD.search(_LINK.sub("", it))]


def sentences_of(paragraph: str) -> list[str]:
    return [it for it in _SENTENCE_END.split(paragraph) if _WORD.search(it)]


def syllable_count(word: str) -> int:
    """Return how many syllables an English word has, by rules: at least one."""
    plain = re.sub(r"['’]s?$", "", word.lower())
    count = len(_VOWELS.findall(plain)) - len(_SILENT.findall(plain))
    if len(plain) > _SHORT_WORD:
        count += len(_TWO_SYLLABLES.findall(plain))
    return max(count, 1)


def _plain(text: str) -> str:
    return _MARKS.sub(r"\1", _CODE.sub("code", _LINK.sub(r"\1", text)))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        measured = readability(prose_of(Path(argument).read_text("utf-8")))
        print(f"{measured.score:5.1f} {measured.word_count:6} words  {argument}")
        for sentence in dict.fromkeys((*measured.long, *measured.avoided)):
            print(f"      {sentence}")
