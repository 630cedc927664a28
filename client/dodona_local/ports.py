"""Choose, check and reserve the ports of a local cluster.

Owns: the reservations. A reservation is a bound socket that never listens. The server binds the
same port beside it, because both set SO_REUSEADDR. While the server is down, no outgoing connection
can get the port. On loopback such a port would connect a waiting client to itself.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from random import Random

from dodona_local.errors import LaunchFailed

HOST = "127.0.0.1"
FREE_PORT_MIN = 10_000
FREE_PORT_MAX = 32_000
"""The bound is below the ports that Linux gives to outgoing connections, so that nothing takes a
port by chance."""

ATTEMPTS_MAX = 200


class PortReservation:
    """A run of neighbouring ports on loopback. Keep it until the servers have ended."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        assert sockets
        self.ports: tuple[int, ...] = tuple(held.getsockname()[1] for held in sockets)
        self._sockets = sockets
        if sys.platform != "linux":  # elsewhere a bound socket keeps the server out too
            self.release()

    def release(self) -> None:
        """Release the ports. A repeat is harmless."""
        for held in self._sockets:
            held.close()
        self._sockets = []


def reserve_ports(base: int, count: int) -> PortReservation:
    """Reserve `count` ports from `base` on, or any free ports for base 0.

    Raises LaunchFailed, which names the first port that is taken.
    """
    assert count > 0
    if base:
        return _reserve_run(base, count)
    for candidate in _candidates(count):
        with suppress(LaunchFailed):
            return _reserve_run(candidate, count)
    raise LaunchFailed(
        f"there are no {count} adjacent free ports between {FREE_PORT_MIN} and {FREE_PORT_MAX}"
    )


def _candidates(count: int) -> Iterator[int]:
    # Unseeded on purpose: clusters that start at the same time must not try the same ports.
    random = Random()
    for _ in range(ATTEMPTS_MAX):
        yield random.randrange(FREE_PORT_MIN, FREE_PORT_MAX - count)


def _reserve_run(base: int, count: int) -> PortReservation:
    if not 0 < base <= 65_536 - count:
        raise LaunchFailed(
            f"ports {base} to {base + count - 1} do not exist: choose a smaller --port-base"
        )
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            held.append(_bind(base + len(held)))
    except OSError as error:
        for bound in held:
            bound.close()
        raise LaunchFailed(
            f"port {base + len(held)} is not free ({error.strerror}): stop the process that uses "
            "it, or choose other ports with --port-base (0 takes any free ports)"
        ) from error
    return PortReservation(held)


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
    except OSError:
        bound.close()
        raise
    return bound
