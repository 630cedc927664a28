"""Keep clients while a worker process lives, because Spark uses one worker for many tasks and jobs.

Owns: the clients of this process. Invariant: only the process that created a client uses it. Spark
forks its workers, and a socket must not have two owners.
"""

import os
import threading
from typing import Final, Protocol

import dodona

CLIENTS_MAX: Final = 8

_lock = threading.Lock()
_clients: dict[tuple[int, str, int | None], dodona.Client] = {}


class Cluster(Protocol):
    """The options of each action that say how to reach the cluster."""

    @property
    def url(self) -> str: ...

    @property
    def call_timeout_ms(self) -> int | None: ...


def connect(cluster: Cluster) -> dodona.Client:
    """Return a client of the cluster. The first call in this process creates it. Do not close
    it."""
    key = (os.getpid(), cluster.url, cluster.call_timeout_ms)
    with _lock:  # the driver process of Spark may have several threads
        client = _clients.pop(key, None)
        if client is None:
            client = _connected(cluster.url, cluster.call_timeout_ms)
            _make_room()
        _clients[key] = client  # at the end: the least recently used client is first
        return client


def _connected(url: str, call_timeout_ms: int | None) -> dodona.Client:
    """Return a new client. The limit of calls is also that of the first one, in `connect`."""
    if call_timeout_ms is None:
        return dodona.connect(url)
    return dodona.connect(url, timeout_ms=call_timeout_ms, call_timeout_ms=call_timeout_ms)


def _make_room() -> None:
    """Close the oldest clients of this process. Clients that a fork inherited stay open: to close
    one would send a goodbye over the socket of another process."""
    mine = [key for key in _clients if key[0] == os.getpid()]
    for key in mine[: max(0, len(mine) - CLIENTS_MAX + 1)]:
        _clients.pop(key).close()
