"""The event loop of a blocking client's thread.

Owns: which loop it is, and that threads of Python look up names. libuv uses its own threads for
that. A fork does not have these threads, but if it ends by `sys.exit`, it waits for them. Then it
would crash with a segmentation fault, long after it has left Python. Names are also looked up at
the end of the process, when the executors of Python have ended.
"""

import asyncio
import ipaddress
import socket
from functools import partial
from typing import Any, Final

from dodona_wire.net.descriptors import need_descriptors
from dodona_wire.net.pools import asked

DESCRIPTORS: Final = 12
"""More file descriptors than a loop needs."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop if that is installed: it halves the time of a round trip. Otherwise
    return one of asyncio. Raises Overloaded if this process can open no more files."""
    need_descriptors(DESCRIPTORS)
    try:
        import uvloop
    except (ImportError, RuntimeError):  # RuntimeError: the main thread has ended
        return _Loop()

    class Loop(uvloop.Loop):
        """The loop of uvloop, except that Python's threads look up names."""

        async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
            return await asked(partial(socket.getaddrinfo, host, port, **options))

        async def create_connection(
            self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
        ) -> Any:
            connect = super().create_connection
            if host is None or _is_address(host):
                return await connect(protocol_factory, host, port, **options)
            if options.get("ssl") and options.get("server_hostname") is None:
                options["server_hostname"] = host
            found = await self.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for *_, address in found[:-1]:
                try:
                    return await connect(protocol_factory, *address[:2], **options)
                except OSError:
                    continue
            return await connect(protocol_factory, *found[-1][-1][:2], **options)

    return Loop()


class _Loop(asyncio.SelectorEventLoop):
    """The loop of asyncio, except that Python's threads look up names."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return await asked(partial(socket.getaddrinfo, host, port, **options))


def _is_address(host: Any) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
