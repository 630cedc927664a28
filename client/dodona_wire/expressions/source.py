"""The text of a query or an expression, and errors about a place in it.

Owns: offsets (in characters, from 0), lines and a line's characters (from 1), and the limit on a
query's length.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from dodona_wire.errors import InvalidRequest, LimitExceeded

TEXT_LENGTH_MAX: Final = 1 << 20
NEAR_LENGTH_MAX: Final = 24


class Source:
    """The text of one query, or of one expression that is no part of a query."""

    __slots__ = ("noun", "text")

    def __init__(
        self, text: str | bytes, noun: str = "query", length_max: int = TEXT_LENGTH_MAX
    ) -> None:
        """`text` is UTF-8 if it is bytes. `noun` names it in errors. Raises InvalidRequest,
        LimitExceeded."""
        self.noun: Final = noun
        if not isinstance(text, str | bytes):
            raise InvalidRequest(f"Pass the {noun} as str or bytes, not {type(text).__name__}.")
        if len(text) > length_max:
            message = f"The {noun} has more than {length_max} characters. Make it shorter."
            raise LimitExceeded(message, length_max=length_max)
        try:
            decoded = text if isinstance(text, str) else text.decode()
            decoded.encode()
        except UnicodeError as error:
            message = f"The {noun} is not valid Unicode. Pass a valid str, or bytes in UTF-8."
            raise InvalidRequest(message) from error
        self.text: Final = decoded

    def error(self, at: int, message: str, **attributes: Any) -> InvalidRequest:
        """Return an error about an offset."""
        return InvalidRequest(message, **self._place(at), **attributes)

    def limit(self, at: int, message: str, **attributes: Any) -> LimitExceeded:
        """Return an error about a limit that is exceeded at an offset."""
        return LimitExceeded(message, **self._place(at), **attributes)

    def unsupported(self, at: int, what: str, hint: str = "") -> InvalidRequest:
        """Return an error about a part of YTsaurus's language that Dodona lacks. `what` names the
        part."""
        text = f"Dodona does not support {what}."
        return self.error(at, f"{text} {hint}" if hint else text, unsupported=what)

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
    """Raise LimitExceeded for a RecursionError. The nesting is limited, but its caller may already
    be deep in its own calls."""
    try:
        yield
    except RecursionError as error:
        raise LimitExceeded("The query is nested too deeply. Make it simpler.") from error
