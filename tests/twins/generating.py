"""Make the text of a blocking module of the text of an asyncio one.

Owns: the marks in the asyncio text, and the words that differ. The marks are:

- `# asyncio only` at the end of a line, or on a line above others that end with `# end`: the
  blocking module has none of these lines.
- `# blocking: …` at the end of a line: the blocking module has this code in its place.
- `With asyncio, ` at the beginning of a docstring's paragraph: the blocking one lacks it.
"""

import re
from collections.abc import Iterator
from typing import Final

ASYNCIO_ONLY: Final = "# asyncio only"
END: Final = "# end"
BLOCKING: Final = "  # blocking: "
PARAGRAPH: Final = re.compile(r'\n\n *With asyncio, [\s\S]*?(?=\n\n|\n?""")')
ORIGIN: Final = re.compile(r"(?m)^# `python -m twins` makes \w+\.py of this module\.$")
INNER: Final = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]"
NESTED: Final = rf"((?:[^\[\]]|{INNER})*)"
"""The inside of brackets, with at most two more levels of brackets in it."""

WORDS: Final = [
    (re.compile(pattern), words)
    for pattern, words in (
        # prose
        (r"\basyncio (API|client)\b", r"blocking \1"),
        (r"\b([Aa])n `async with`", r"\1 `with`"),
        (r"\btask(s?)\b", r"thread\1"),
        # keywords, and methods that Python calls
        (r"\basync (?=def|for|with)", ""),
        (r"\bawait ", ""),
        (r"__a(enter|exit|iter|next)__", r"__\1__"),
        (r"\bStopAsyncIteration\b", "StopIteration"),
        # what a call returns
        (rf"\b(?:Awaitable|Beginning)\[{NESTED}\]", r"\1"),
        (rf"\bCoroutine\[Any, Any, {NESTED}\]", r"\1"),
        (r"\bBeginning\(partial\(([\w.]+), (.*)\)\)", r"\1(\2)"),
        # a blocking write is done when its call returns, so there is nothing to wait for
        (r"\b_writes\.begin\(", "_run("),
        (r"\b_run_(?:read|end)\(", "_run("),
        # names
        (r"\bdodona\.aio\.", "dodona."),
        (r"\baio_(\w+)", r"\1"),
        (r"\bAsync([A-Z])", r"\1"),
        (r"async_", ""),
    )
]


def generated(source: str) -> str:
    """Return the blocking text, not yet formatted: its imports are not in order, and it may not
    need all of them. Raises ValueError for a mark without its end."""
    text = PARAGRAPH.sub("", "\n".join(_kept(source)) + "\n")
    for pattern, words in WORDS:
        text = pattern.sub(words, text)
    return text


def with_origin(text: str, origin: str) -> str:
    """Return the blocking text with a line that names the asyncio file. The line replaces the one
    in the asyncio text that names the blocking file. Raises ValueError if there is no such line."""
    line = f"# Generated from {origin} by python -m twins: change that, and run it."
    text, count = ORIGIN.subn(line, text)
    if count != 1:
        raise ValueError(f"{origin} has no line that names the module that is made of it")
    return text


def _kept(source: str) -> Iterator[str]:
    """Yield the lines of the asyncio text that the blocking one has, or those in their place."""
    is_left_out = False
    for line in source.splitlines():
        if line.strip() == ASYNCIO_ONLY:
            if is_left_out:
                raise ValueError(f"{ASYNCIO_ONLY} within {ASYNCIO_ONLY}")
            is_left_out = True
        elif line.strip() == END:
            if not is_left_out:
                raise ValueError(f"{END} without {ASYNCIO_ONLY}")
            is_left_out = False
        elif not is_left_out and not line.endswith(f"  {ASYNCIO_ONLY}"):
            yield _blocking(line)
    if is_left_out:
        raise ValueError(f"{ASYNCIO_ONLY} without {END}")


def _blocking(line: str) -> str:
    code, mark, instead = line.partition(BLOCKING)
    return line[: len(line) - len(line.lstrip())] + instead if mark else code
