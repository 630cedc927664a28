"""Reload the gateway's TLS certificate when its files change.

Owns: when the two files are checked, and which certificate each handshake uses. A renewed
certificate is in use within seconds: new connections get it, and open connections keep the old one.
While the files are no valid pair, for example while they are being replaced, nothing changes. The
old certificate stays in use until the files match.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from dodona_server.logs import tell

LOOK_SECONDS: Final = 5.0

_logger: Final = logging.getLogger("dodona.gateway")

_State = tuple[tuple[int, int, int], ...]
"""The state by which a change of the files is found. A Secret of Kubernetes changes by a new link,
which this state also shows."""


class Certificate:
    """The certificate of one gateway. Belongs to the gateway's event loop."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Note the state of the two files, which the server is about to read. Raises OSError if a
        file is missing."""
        self._paths = (chain, key)
        self._taken = self._state()
        self._renewed: ssl.SSLContext | None = None
        self._problem: str | None = None

    def attend(self, context: ssl.SSLContext) -> None:
        """Make handshakes of this context use the newest valid certificate."""
        context.sni_callback = self._choose

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        if self._renewed is not None:
            connection.context = self._renewed

    async def watch(self) -> None:
        """Check the files every `LOOK_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Load the certificate if its files have changed."""
        try:
            found = self._state()
            if found != self._taken:
                self._renewed = self._load()
                self._taken = found
                tell(_logger, logging.INFO, "certificate_renewed", "the new certificate is in use")
        except (OSError, ValueError) as error:  # files that do not match raise an OSError too
            self._note(str(error))
        else:
            self._problem = None

    def _note(self, reason: str) -> None:
        if reason != self._problem:
            text = "the changed certificate can't be loaded, so the old certificate stays in use"
            tell(_logger, logging.WARNING, "certificate_refused", text, reason=reason)
        self._problem = reason

    def _load(self) -> ssl.SSLContext:
        """Return a new context: a bad pair would leave a context that is in use half changed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        chain, key = self._paths
        context.load_cert_chain(chain, key, password=_no_password)
        return context

    def _state(self) -> _State:
        stats = [path.stat() for path in self._paths]
        return tuple((it.st_ino, it.st_mtime_ns, it.st_size) for it in stats)


def _no_password() -> str:
    """Refuse a password. Otherwise OpenSSL would ask for one at a terminal, and block the
    gateway."""
    raise ValueError("the key is encrypted: use a key without a password")
