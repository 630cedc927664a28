"""The event loop of a blocking client's thread.

Owns: which one it is, and that names are looked up in threads that Python knows. libuv has threads
of its own for that, and a fork that ends by `sys.exit` waits for them although it does not have
them: it would die of a segmentation fault, long after it has left Python. Names are found at the
end of the process as well, when Python's executors have ended.
"""

import asyncio
import ipaddress
import socket
from functools import partial
from typing import Any, Final

from dodona_wire.net.descriptors import need_descriptors
from dodona_wire.net.pools import asked

DESCRIPTORS: Final = 12
"""More than a loop takes."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: it halves the time of a round trip. Raises Overloaded if this
    process may open no more files."""
    need_descriptors(DESCRIPTORS)
    try:
        import uvloop
    except (ImportError, RuntimeError):  # it can't be imported once the main thread has ended
        return _Loop()

    class Loop(uvloop.Loop):
        """uvloop's, but for looking up names."""

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
    """asyncio's, but for looking up names."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return await asked(partial(socket.getaddrinfo, host, port, **options))


def _is_address(host: Any) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
