"""The link of a proxy to the master: it asks for timestamps and registers the proxy.

Owns: the connection to the master. If the master does not answer a request, the core gets
`handle_failure`. If a registration fails, the proxy tries again at the next turn.
"""

import asyncio
import logging
from functools import partial
from typing import Final

from dodona_oracle.core.proxy import ProxyCore
from dodona_oracle.shell.settings import ProxySettings
from dodona_server.logs import tell
from dodona_server.master_peer import MasterPeer
from dodona_server.runtime import Runtime
from dodona_wire.cores.effects import AskMaster
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import RegisterProxy
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply
from dodona_wire.net.urls import hide_password

_logger: Final = logging.getLogger("dodona.proxy")


class MasterLink:
    """Asks the master for ranges of timestamps for a core. Belongs to one event loop."""

    def __init__(self, core: ProxyCore, runtime: Runtime, settings: ProxySettings) -> None:
        self._core = core
        self._runtime = runtime
        self.peer = MasterPeer(
            settings.master_url, timeout_ms=settings.answer_ms_max, key=settings.cluster_key
        )

    def ask(self, effect: AskMaster) -> None:
        """Send the core's request to the master. The answer goes back to the core."""
        self.peer.ask(GenerateTimestamps(effect.count), partial(self._answered, effect))

    async def close(self) -> None:
        """Fail the open requests and close the connection."""
        await self.peer.close()

    def _answered(self, effect: AskMaster, reply: Reply) -> None:
        core, runtime = self._core, self._runtime
        if isinstance(reply, TimestampRange) and reply.count == effect.count:
            runtime.call(core.handle_range, effect.token, reply.first)
        elif isinstance(reply, Failure):
            fail = partial(core.handle_failure, attributes=reply.attributes)
            runtime.call(fail, effect.token, reply.message)
        else:
            text = (
                f"it answered a request for {effect.count} timestamps with {type(reply).__name__}"
            )
            runtime.call(core.handle_failure, effect.token, text)


class Registration:
    """Registers this proxy with the master again and again."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._reason: str | None = "not registered with the master yet"

    @property
    def reason(self) -> str | None:
        """Why the master does not know this proxy, or None if it does."""
        return self._reason

    async def run(self, master: MasterPeer) -> None:
        """Register once each turn until the task is cancelled."""
        period_s = self._settings.register_ms / 1000
        while True:
            reply = await master.tell(RegisterProxy(self._settings.address))
            self._note(reply.message if isinstance(reply, Failure) else None)
            await asyncio.sleep(period_s)

    def _note(self, reason: str | None) -> None:
        if reason != self._reason:
            if reason is None:
                text = f"registered with {hide_password(self._settings.master_url)}"
                tell(_logger, logging.INFO, "ready", text)
            else:
                tell(_logger, logging.WARNING, "not_ready", "not registered", reason=reason)
        self._reason = reason
