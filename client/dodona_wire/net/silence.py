"""Measure how long a server has been silent, and name it in failures.

Owns: the time after which a silent server counts as lost, and how briefly later calls then wait for
it. Also owns the attributes by which a failure names it. The silence begins with the first call
that the server left unanswered, connection that it refused or probe that it missed. It ends when
the server is heard again. Knows no socket: its owner says when the server was heard.
"""

from typing import Any, Final

from dodona_wire.messages.base import Failure

DEAD_AFTER_SECONDS: Final = 4.0
"""Seconds of silence. A server that restarts is usually back by then."""
BRIEF_SECONDS: Final = 0.5
"""Seconds that a call waits for such a server. The client tries again meanwhile."""


class Silence:
    """The silence of one server. Instants are those of its event loop's clock, in seconds."""

    __slots__ = ("_where", "heard_at", "name", "since")

    def __init__(self, name: str, where: dict[str, Any]) -> None:
        self.name = name
        """The server's name in messages."""
        self._where = where
        self.since: float | None = None
        """When the silence began. None while the server answers, or was not asked yet."""
        self.heard_at = 0.0

    def begin(self, since: float) -> None:
        """Note that the server did not answer. If it is silent already, nothing changes."""
        if self.since is None:
            self.since = since

    def end(self, now: float) -> None:
        """Note that the server was heard."""
        self.since = None
        self.heard_at = now

    def is_dead(self, now: float) -> bool:
        return self.since is not None and now - self.since >= DEAD_AFTER_SECONDS

    def failure(self, text: str, now: float, *, is_sent: bool) -> Failure:
        """Return why a call has no answer. `is_sent` is False if it certainly never left."""
        attributes = dict(self._where)
        if self.since is not None:
            attributes["silent_ms"] = max(0, int((now - self.since) * 1000))
        if not is_sent:
            attributes["is_sent"] = False
        return Failure("unavailable", text, attributes)
