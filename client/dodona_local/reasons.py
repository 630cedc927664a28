"""Find out why a server is not ready, for the user who waits for it.

Owns: the places where the reason is found: the server's answer, then the last error in its log.
"""

import json
import re
from contextlib import suppress
from typing import Final, NamedTuple

from dodona_local.folder import DataFolder
from dodona_local.probe import readiness_page

TELL_AFTER_S: Final = 5.0
"""No reason is shown before this many seconds, because a start takes a short time."""
SLOW_AFTER_S: Final = 20.0
"""Before this many seconds only errors are shown, because a start on a busy machine takes
longer."""
TAIL_LINES: Final = 40
_BAD_LEVEL: Final = re.compile(r'\b(ERROR|CRITICAL|FATAL)\b|"level": ?"(error|critical|fatal)"')


class Reason(NamedTuple):
    text: str
    is_error: bool
    """Whether the server logged an error: then it will not become ready by a wait alone."""


async def reason_of(name: str, url: str, folder: DataFolder) -> Reason:
    """Return the reason in the server's own words, if it has any."""
    said = _detail(await readiness_page(url))
    line, is_error = last_words(folder.log_tail(name, TAIL_LINES))
    if said is None:
        return Reason(line or "it does not answer, and its log is empty", is_error)
    if not line or line in said:
        return Reason(said, is_error)
    if said in line:  # the log's line repeats the page, and is no other error
        return Reason(said, False)
    return Reason(
        f"{said.rstrip('.')}; its last {'error' if is_error else 'line'}: {line}", is_error
    )


def last_words(log: str) -> tuple[str, bool]:
    """Return the last line with an error and True, or the last line at all and False."""
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
