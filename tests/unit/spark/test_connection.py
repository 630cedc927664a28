"""Clients of a process that runs tasks: one for each cluster, however many threads ask."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import dodona
from pyspark_dodona import connection
from pyspark_dodona.options import ReadOptions
from suite.waiting import WAIT_S_MAX

CLUSTER = ReadOptions("http://127.0.0.1:1", "//a")


def test_threads_share_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(connection, "_clients", {})

    def connect(url: str) -> object:
        time.sleep(0.05)  # so that others come meanwhile
        made.append(object())
        return made[-1]

    monkeypatch.setattr(dodona, "connect", connect)
    together = threading.Barrier(4)

    def ask(_: int) -> object:
        together.wait(WAIT_S_MAX)
        return connection.connect(CLUSTER)

    with ThreadPoolExecutor(4) as threads:
        assert set(map(id, threads.map(ask, range(4)))) == {id(made[0])}
    assert len(made) == 1


def test_clients_with_other_bounds_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, int]]] = []
    monkeypatch.setattr(connection, "_clients", {})

    def connect(url: str, **bounds: int) -> object:
        made.append((url, bounds))
        return object()

    monkeypatch.setattr(dodona, "connect", connect)
    bounded = replace(CLUSTER, call_timeout_ms=500)
    clients = [connection.connect(it) for it in (CLUSTER, bounded, CLUSTER, bounded)]
    both = {"timeout_ms": 500, "call_timeout_ms": 500}  # a silent master is waited for no longer
    assert made == [(CLUSTER.url, {}), (CLUSTER.url, both)]
    assert clients[:2] == clients[2:]
