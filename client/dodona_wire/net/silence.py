"""How long a server has been silent, and what is said about it.

Owns: when a server counts as dead, how briefly later calls wait for it then, and the attributes by
which a failure names it. A server is dead from the first call that it left unanswered, connection
that it refused or probe that it missed, until it is heard again. Knows no socket: its owner says
what was heard, and when.
"""

from typing import Any, Final

from dodona_wire.messages.base import Failure

DEAD_AFTER_SECONDS: Final = 4.0
"""Of silence. A server that is started again is usually back by then."""
BRIEF_SECONDS: Final = 0.5
"""How long a call waits for a server that is dead; another try is made meanwhile."""


class Silence:
    """Of one server. Instants are those of its event loop's clock, in seconds."""

    __slots__ = ("_where", "heard_at", "name", "since")

    def __init__(self, name: str, where: dict[str, Any]) -> None:
        self.name = name
        """The server, as messages call it."""
        self._where = where
        self.since: float | None = None
        """None while the server answers, or was not asked yet."""
        self.heard_at = 0.0

    def begin(self, since: float) -> None:
        """It did not answer; if it is silent already, nothing is new."""
        if self.since is None:
            self.since = since

    def end(self, now: float) -> None:
        """It was heard."""
        self.since = None
        self.heard_at = now

    def is_dead(self, now: float) -> bool:
        return self.since is not None and now - self.since >= DEAD_AFTER_SECONDS

    def failure(self, text: str, now: float, *, is_sent: bool) -> Failure:
        """Why a call to it has no answer. `is_sent` is False where it certainly never left."""
        attributes = dict(self._where)
        if self.since is not None:
            attributes["silent_ms"] = max(0, int((now - self.since) * 1000))
        if not is_sent:
            attributes["is_sent"] = False
        return Failure("unavailable", text, attributes)
