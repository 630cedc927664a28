"""Clients kept for the life of a worker process: Spark uses one worker for many tasks and jobs.

Owns: the clients of this process. Invariant: a client is used by the process that made it and by no
other, since Spark forks its workers and a socket must not have two owners.
"""

import os
import threading
from typing import Final, Protocol

import dodona

CLIENTS_MAX: Final = 8

_lock = threading.Lock()
_clients: dict[tuple[int, str, int | None], dodona.Client] = {}


class Cluster(Protocol):
    """What the options of each action say of it."""

    @property
    def url(self) -> str: ...

    @property
    def call_timeout_ms(self) -> int | None: ...


def connect(cluster: Cluster) -> dodona.Client:
    """A client of the cluster, made at the first call in this process. Do not close it."""
    key = (os.getpid(), cluster.url, cluster.call_timeout_ms)
    with _lock:  # a driver may have several threads
        client = _clients.pop(key, None)
        if client is None:
            client = dodona.connect(cluster.url, call_timeout_ms=cluster.call_timeout_ms)
            _make_room()
        _clients[key] = client  # behind all others: the one used least recently is first
        return client


def _make_room() -> None:
    """Close this process's oldest clients. Those inherited by a fork stay untouched: closing one
    would say goodbye over the socket of the process that owns it."""
    mine = [key for key in _clients if key[0] == os.getpid()]
    for key in mine[: max(0, len(mine) - CLIENTS_MAX + 1)]:
        _clients.pop(key).close()
