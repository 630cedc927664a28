"""A proxy's way to the master: timestamps over the data plane, registration over REST.

Owns: the two connections to the master. A question that the master did not answer becomes the
core's `handle_failure`; a registration that failed is tried again at the next turn.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from dodona._core.effects import AskMaster
from dodona._core.messages import Failure, GenerateTimestamps, RegisterProxy, Reply, TimestampRange
from dodona._core.rest import JSON_TYPE, decode_reply, encode_call
from dodona._io.cluster_key import key_headers
from dodona._io.logs import tell
from dodona._io.peer import Peer, rpc_url
from dodona._io.runtime import Runtime
from dodona._io.sessions import hide_password
from dodona._io.silence import Silence
from dodona_oracle.core.proxy import ProxyCore
from dodona_oracle.shell.settings import ProxySettings

if TYPE_CHECKING:
    import httpx

_logger: Final = logging.getLogger("dodona.proxy")


class MasterLink:
    """Asks the master for ranges on behalf of a core. Belongs to one event loop."""

    def __init__(self, core: ProxyCore, runtime: Runtime, settings: ProxySettings) -> None:
        self._core = core
        self._runtime = runtime
        place = hide_password(settings.master_url)
        self._peer = Peer(
            rpc_url(settings.master_url),
            timeout_ms=settings.answer_ms_max,
            key=settings.cluster_key,
            silence=Silence(f"the master at {place}", {"server": "master", "address": place}),
        )

    def ask(self, effect: AskMaster) -> None:
        """Carry out the core's wish; the answer comes back to the core."""
        self._peer.ask(GenerateTimestamps(effect.count), partial(self._answered, effect))

    async def close(self) -> None:
        """Fail what is under way and let the connection go."""
        await self._peer.close()

    def _answered(self, effect: AskMaster, reply: Reply) -> None:
        core, runtime = self._core, self._runtime
        if isinstance(reply, TimestampRange) and reply.count == effect.count:
            runtime.call(core.handle_range, effect.token, reply.first)
        elif isinstance(reply, Failure):
            fail = partial(core.handle_failure, attributes=reply.attributes)
            runtime.call(fail, effect.token, reply.message)
        else:
            text = f"it answered {effect.count} timestamps with {type(reply).__name__}"
            runtime.call(core.handle_failure, effect.token, text)


class Registration:
    """Tells the master again and again where this proxy is."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._reason: str | None = "not registered with the master yet"

    @property
    def reason(self) -> str | None:
        """Why the master does not know of this proxy, or None if it does."""
        return self._reason

    async def run(self) -> None:
        """Until cancelled."""
        period_s = self._settings.register_ms / 1000
        # In a thread: the import takes long, and callers of the data plane wait for nothing.
        made = await asyncio.to_thread(self._make_client, period_s)
        async with made as client:
            while True:
                self._note(await self._register(client))
                await asyncio.sleep(period_s)

    def _make_client(self, period_s: float) -> "httpx.AsyncClient":
        import httpx

        return httpx.AsyncClient(
            base_url=self._settings.master_url,
            headers=key_headers(self._settings.cluster_key),
            timeout=max(1.0, period_s),
            trust_env=False,
        )

    async def _register(self, client: "httpx.AsyncClient") -> str | None:
        from httpx import HTTPError

        call = encode_call(RegisterProxy(self._settings.address))
        try:
            response = await client.request(
                call.method,
                call.target,
                content=call.content,
                headers={"content-type": JSON_TYPE},
            )
        except HTTPError as error:
            return f"the master can't be reached: {str(error) or type(error).__name__}"
        reply = decode_reply(RegisterProxy, response.status_code, response.content)
        return reply.message if isinstance(reply, Failure) else None

    def _note(self, reason: str | None) -> None:
        if reason != self._reason:
            if reason is None:
                text = f"registered with {hide_password(self._settings.master_url)}"
                tell(_logger, logging.INFO, "ready", text)
            else:
                tell(_logger, logging.WARNING, "not_ready", "not registered", reason=reason)
        self._reason = reason
