"""Why a server is not ready, for the person who waits for it.

Owns: where that is looked for: in what the server answers, then in the last error of its log.
"""

import json
import re
from contextlib import suppress
from typing import Final, NamedTuple

from dodona_local.folder import DataFolder
from dodona_local.probe import readiness_page

TELL_AFTER_S: Final = 5.0
"""A start takes a moment: whoever watches hears nothing before."""
SLOW_AFTER_S: Final = 20.0
"""A start on a machine that is busy takes longer: before this, only errors are told."""
TAIL_LINES: Final = 40
_BAD_LEVEL: Final = re.compile(r'\b(ERROR|CRITICAL)\b|"level": ?"(error|critical)"')


class Reason(NamedTuple):
    text: str
    is_error: bool
    """Whether the server logged an error: it will not just be ready a moment later."""


async def reason_of(name: str, url: str, folder: DataFolder) -> Reason:
    """In the server's own words, as far as it has any."""
    said = _detail(await readiness_page(url))
    line, is_error = last_words(folder.log_tail(name, TAIL_LINES))
    if said is None:
        return Reason(line or "it does not answer, and its log says nothing", is_error)
    if not line or line in said:
        return Reason(said, is_error)
    if said in line:  # the log's line is what the page says, and no more of an error than that
        return Reason(said, False)
    return Reason(f"{said}; its last {'error' if is_error else 'words'}: {line}", is_error)


def last_words(log: str) -> tuple[str, bool]:
    """→ the last line that tells of an error and True, or the last line at all and False."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    bad = [line for line in lines if _BAD_LEVEL.search(line)]
    return (bad or lines or [""])[-1], bool(bad)


def _detail(page: bytes) -> str | None:
    with suppress(ValueError):
        said = json.loads(page)
        found = said.get("detail", said.get("status")) if isinstance(said, dict) else None
        if isinstance(found, str):
            return found
    return None
