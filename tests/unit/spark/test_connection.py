"""Clients of a process that runs tasks: one for each cluster, however many threads ask."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import dodona
from pyspark_dodona import connection

URL = "http://127.0.0.1:1"


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
        together.wait(10)
        return connection.connect(URL)

    with ThreadPoolExecutor(4) as threads:
        assert set(map(id, threads.map(ask, range(4)))) == {id(made[0])}
    assert len(made) == 1
