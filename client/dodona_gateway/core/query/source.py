"""A query's text, and how a complaint about a place in it is worded.

Owns: offsets (in characters, from 0), lines and a line's characters (from 1), and the bound on a
query's length.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from dodona_wire.errors import InvalidRequest, LimitExceeded

TEXT_LENGTH_MAX: Final = 1 << 20
NEAR_LENGTH_MAX: Final = 24


class Source:
    """The text of one query."""

    __slots__ = ("text",)

    def __init__(self, text: str | bytes) -> None:
        """Bytes are UTF-8. Raises InvalidRequest, LimitExceeded."""
        if not isinstance(text, str | bytes):
            raise InvalidRequest(f"a query is a text, not {type(text).__name__}")
        if len(text) > TEXT_LENGTH_MAX:
            raise LimitExceeded(
                f"a query has at most {TEXT_LENGTH_MAX} characters", length_max=TEXT_LENGTH_MAX
            )
        try:
            decoded = text if isinstance(text, str) else text.decode()
            decoded.encode()
        except UnicodeError as error:
            raise InvalidRequest("a query is Unicode text, as UTF-8 if it is bytes") from error
        self.text: Final = decoded

    def error(self, at: int, message: str, **attributes: Any) -> InvalidRequest:
        """What is wrong at an offset."""
        return InvalidRequest(message, **self._place(at), **attributes)

    def limit(self, at: int, message: str, **attributes: Any) -> LimitExceeded:
        """Which limit was passed at an offset."""
        return LimitExceeded(message, **self._place(at), **attributes)

    def unsupported(self, at: int, what: str, hint: str = "") -> InvalidRequest:
        """A part of YTsaurus's language that is not taken here. `what` names it."""
        text = f"{what} is not supported"
        return self.error(at, f"{text}: {hint}" if hint else text, unsupported=what)

    def _place(self, at: int) -> dict[str, Any]:
        line_start = self.text.rfind("\n", 0, at) + 1
        return {
            "offset": at,
            "line": self.text.count("\n", 0, at) + 1,
            "character": at - line_start + 1,
            "near": self.text[at : at + NEAR_LENGTH_MAX],
        }


@contextmanager
def not_too_deep() -> Iterator[None]:
    """What is nested is bounded; but its caller may have called itself often before."""
    try:
        yield
    except RecursionError as error:
        raise LimitExceeded("the query is nested too deeply") from error
