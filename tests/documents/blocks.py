"""The fenced blocks of a page, and the commands within them.

Owns: what the language of a block means for those who run it.

- `python` runs, in one namespace a page. If its first line names a file (`# bank.py`), it is saved
  under that name instead.
- `output` is what the `python` block before it prints. A block without one prints nothing.
- `console` has commands, each after a `$`, and what they say. A block that shows no answer at all
  says nothing of answers.
- Any other language is shown and not run: `page_runs.SHOWN` counts those, `pyi` is a signature.

Must not import anything of Dodona: pages are text here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
RUN: Final = ("python", "output", "console")
FENCE: Final = re.compile(r"^( *)```(.*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the text between the fences, where it begins, and under which heading."""

    page: str
    line: int
    language: str
    heading: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """Under which a `python` block is saved, instead of being run."""
        found = re.match(r"# ([\w-]+\.py)\n", self.text)
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Command:
    """One of a `console` block, and what it says."""

    text: str
    answer: str


def pages() -> list[str]:
    """Every page whose blocks count, relative to the repository's root."""
    paths = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *DOCS.rglob("*.md")]
    return sorted(str(it.relative_to(ROOT)) for it in paths)


def blocks_of(page: str) -> list[Block]:
    """In their order. Raises ValueError where a block has no end."""
    return list(_blocks(page, (ROOT / page).read_text("utf-8")))


def _blocks(page: str, text: str) -> Iterator[Block]:
    heading, opened, lines = "", None, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence is not None:
                opened, lines = (number, fence[2].strip(), len(fence[1])), []
            elif line.startswith("#"):
                heading = line.lstrip("#").strip()
        elif fence is not None and not fence[2]:
            begun, language, indent = opened
            body = "".join(f"{it[indent:]}\n" for it in lines)
            yield Block(page, begun, language, heading, body)
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: the block has no end")


def commands_of(block: Block) -> list[Command]:
    """Of a `console` block. A command goes on where a quoted text does, and behind a backslash."""
    commands = []
    before, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if before or not parts:
        raise ValueError(f"{block.place}: a console block begins with a command, after $")
    for part in parts:
        lines = part.splitlines(keepends=True)
        count = 1
        while count < len(lines) and _goes_on("".join(lines[:count])):
            count += 1
        commands.append(Command("".join(lines[:count]).rstrip("\n"), "".join(lines[count:])))
    return commands


def _goes_on(text: str) -> bool:
    return text.endswith("\\\n") or text.count("'") % 2 == 1
