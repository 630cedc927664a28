"""The gateway's certificate, which is another after a while: files that are read again.

Owns: when the two files are looked at, and what each handshake is done with. A certificate that
was renewed is taken up within seconds: new connections are made with it, and those that are there
stay as they are. Files that are no pair, as while they are being replaced, change nothing: what was
in use stays in use until they are one.
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
"""By which the files are told from what they were. Those of Kubernetes's Secrets are links to
others when they change."""


class Certificate:
    """Of one gateway. Belongs to its event loop."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Of files that are about to be read. Raises OSError if there are none."""
        self._paths = (chain, key)
        self._taken = self._state()
        self._renewed: ssl.SSLContext | None = None
        self._problem: str | None = None

    def attend(self, context: ssl.SSLContext) -> None:
        """Have handshakes of this context done with what the files say by then."""
        context.sni_callback = self._choose

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        if self._renewed is not None:
            connection.context = self._renewed

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Take up what has changed."""
        try:
            found = self._state()
            if found != self._taken:
                self._renewed = self._load()
                self._taken = found
                tell(_logger, logging.INFO, "certificate_renewed", "the certificate is a new one")
        except (OSError, ValueError) as error:  # what is no pair is an OSError, too
            self._note(str(error))
        else:
            self._problem = None

    def _note(self, reason: str) -> None:
        if reason != self._problem:
            text = "the certificate changed and can't be taken: the old one stays in use"
            tell(_logger, logging.WARNING, "certificate_refused", text, reason=reason)
        self._problem = reason

    def _load(self) -> ssl.SSLContext:
        """A context of its own: one that is in use would be left with half of a bad pair."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        chain, key = self._paths
        context.load_cert_chain(chain, key, password=_no_password)
        return context

    def _state(self) -> _State:
        stats = [path.stat() for path in self._paths]
        return tuple((it.st_ino, it.st_mtime_ns, it.st_size) for it in stats)


def _no_password() -> str:
    """Else OpenSSL would ask for one at a terminal, and all would wait."""
    raise ValueError("the key is encrypted")
