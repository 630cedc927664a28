"""A real replica: it is killed while owners write, stopped, and started in the wrong folder."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dodona_local.ports import reserve_ports
from dodona_replication.core.entries import make_entry
from dodona_replication.shell.replica_check import verify_replica
from dodona_replication.shell.replica_metrics import REPLICA_METRICS
from dodona_server.metrics import full_name
from dodona_wire.messages.base import Failure
from dodona_wire.messages.replicas import (
    AwaitSilence,
    EntriesStored,
    Entry,
    EpochTooOld,
    FenceLog,
    FetchEntries,
    LogEntries,
    LogFenced,
    LogPong,
    LogSilence,
    PingLog,
    StoreEntries,
)
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.peer import Peer
from dodona_wire.net.rpc_urls import rpc_url
from integration.replication.replica_process import Replica
from suite.waiting import WAIT_S_MAX, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.part("a log replica is killed under load")]

LOGS = [f"cell-{number}" for number in range(8)]
ANSWERED_MIN = 400
"""Entries of all logs that are acknowledged before the replica is killed."""


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    reserved = reserve_ports(0, 1)
    made = Replica(tmp_path / "replica", *reserved.ports)
    made.start()
    yield made
    made.close()
    reserved.release()


def entry_of(log: str, index: int) -> Entry:
    return make_entry(index, 1, f"{log} {index} ".encode() * (index % 50))


class Owner:
    """Writes to one log, with several requests under way, until the replica is gone."""

    def __init__(self, replica: Replica, peer: Peer, log: str) -> None:
        self._replica = replica
        self._peer = peer
        self._log = log
        self.stored_index = 0

    async def write(self) -> None:
        fenced = await self._peer.call(self._replica.request(FenceLog, self._log, 1))
        assert fenced == LogFenced(1, 0, ())
        window: list[asyncio.Future[Any]] = []
        index = 0
        while True:
            while len(window) < 4:
                previous = index, 1 if index else 0
                index += 1
                body = (entry_of(self._log, index),)
                request = self._replica.request(StoreEntries, self._log, 1, *previous, body)
                window.append(self._peer.call(request))
            answer = await window.pop(0)
            if isinstance(answer, Failure):
                return
            assert answer == EntriesStored(self.stored_index + 1)
            self.stored_index += 1


async def write_and_kill(replica: Replica) -> list[Owner]:
    """Let owners write to all logs, and kill the replica under them."""
    peer = Peer(rpc_url(replica.url))
    owners = [Owner(replica, peer, log) for log in LOGS]
    writing = [asyncio.create_task(it.write()) for it in owners]
    while sum(it.stored_index for it in owners) < ANSWERED_MIN:
        assert not any(it.done() for it in writing), "an owner gave up"
        await asyncio.sleep(0.01)
    replica.process.kill()
    await asyncio.gather(*writing)
    await peer.close()
    return owners


async def read_all(replica: Replica, peer: Peer, log: str) -> list[Entry]:
    found: list[Entry] = []
    while True:
        page = await peer.call(replica.request(FetchEntries, log, 2, len(found) + 1, 1_000))
        assert isinstance(page, LogEntries), page
        if not page.entries:
            return found
        found += page.entries


def test_what_a_replica_acknowledged_is_there_after_it_was_killed(replica: Replica) -> None:
    owners = asyncio.run(write_and_kill(replica))
    replica.process.wait(WAIT_S_MAX)
    replica.start()

    async def look() -> None:
        peer = Peer(rpc_url(replica.url))
        for log, owner in zip(LOGS, owners, strict=True):
            fenced = await peer.call(replica.request(FenceLog, log, 2))
            assert isinstance(fenced, LogFenced)
            ((epoch, last_index),) = fenced.last_indexes
            assert (epoch, fenced.first_index) == (1, 1)
            assert owner.stored_index <= last_index
            entries = await read_all(replica, peer, log)
            assert entries == [entry_of(log, index) for index in range(1, last_index + 1)]
            late = replica.request(StoreEntries, log, 1, last_index, 1, ())
            assert await peer.call(late) == EpochTooOld(2)
        await peer.close()

    asyncio.run(look())
    assert replica.end(signal.SIGTERM) == 0
    summary = verify_replica(replica.folder)
    assert (summary.log_count, summary.damages) == (len(LOGS), ())
    assert summary.entry_count >= sum(it.stored_index for it in owners)


def test_several_logs_share_syncs(replica: Replica) -> None:
    async def write() -> None:
        peer = Peer(rpc_url(replica.url))
        await asyncio.gather(*[peer.call(replica.request(FenceLog, log, 1)) for log in LOGS])
        for index in range(1, 11):
            previous = index - 1, 1 if index > 1 else 0
            bodies = [
                replica.request(StoreEntries, log, 1, *previous, (entry_of(log, index),))
                for log in LOGS
            ]
            answers = await asyncio.gather(*[peer.call(it) for it in bodies])
            assert answers == [EntriesStored(index)] * len(LOGS)
        await peer.close()

    asyncio.run(write())
    runtime = replica.statistics()["runtime"]
    assert runtime["record_count"] == 11 * len(LOGS)
    assert runtime["flush_count"] == 11


def test_a_replica_has_pages_and_metrics_and_answers_candidates(replica: Replica) -> None:
    async def ask() -> list[Any]:
        peer = Peer(rpc_url(replica.url))
        requests = [
            replica.request(FenceLog, LOGS[0], 1),
            replica.request(PingLog, LOGS[0], 1, 7),
            replica.request(PingLog, LOGS[0], 2, 7),
            replica.request(AwaitSilence, LOGS[0], 1, 50, 60_000),
        ]
        answers = [await peer.call(it) for it in requests]
        await peer.close()
        return answers

    fenced, pong, _, silence = asyncio.run(ask())
    assert fenced == LogFenced(1, 0, ())
    assert isinstance(pong, LogPong)
    assert isinstance(silence, LogSilence)
    assert silence.silence_ms >= 50
    for path in ("healthz", "startupz", "readyz"):
        assert httpx.get(f"{replica.url}/{path}").status_code == 200
    metrics = httpx.get(f"{replica.url}/metrics").text
    assert 'dodona_replica_refusals_total{kind="fence_first"} 1' in metrics
    assert "dodona_replica_logs 1" in metrics
    assert "dodona_replica_log_flush_seconds_count 1" in metrics
    assert "dodona_replica_full 0" in metrics
    assert f'dodona_replica_owner_silent_seconds{{log="{LOGS[0]}"}}' in metrics
    families = {it.name: it for it in text_string_to_metric_families(metrics)}
    for metric in REPLICA_METRICS:
        name = full_name("replica", metric).removesuffix("_total")
        assert families[name].type == metric.kind
    assert families["dodona_replica_disk_free_bytes"].samples[0].value > 0
    page = httpx.get(f"{replica.url}/v1/logs").json()
    assert page["count"] == 1
    assert page["logs"][0]["log"] == LOGS[0]
    assert page["logs"][0]["owner_silent_ms"] >= 50


@pytest.mark.rest("the tests of the pages show it for every server")
def test_a_replica_with_keys_shows_its_metrics_to_those_only(
    replica: Replica, tmp_path: Path
) -> None:
    replica.end(signal.SIGTERM)
    for name in ("cluster-key", "metrics-key"):
        (tmp_path / name).write_text(f"the-{name}-of-a-test")
        replica.words += [f"--{name}-file", str(tmp_path / name)]
    replica.launch()
    url = replica.url
    wait_until(lambda: is_ready(url), "the replica does not get ready")
    cluster = ClusterKey("the-cluster-key-of-a-test").authorization()
    metrics = "Bearer the-metrics-key-of-a-test"
    for shown, statuses in ((None, (401, 401)), (metrics, (200, 401)), (cluster, (200, 200))):
        headers = {} if shown is None else {"authorization": shown}
        found = [
            httpx.get(f"{url}{path}", headers=headers, timeout=30).status_code
            for path in ("/metrics", "/v1/logs")
        ]
        assert tuple(found) == statuses


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=30).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.rest("the test of the store shows it, too")
def test_a_folder_of_another_cluster_is_refused(replica: Replica) -> None:
    replica.end(signal.SIGTERM)
    words = [{"home": "away"}.get(it, it) for it in replica.words]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=WAIT_S_MAX)
    assert ended.returncode == 1
    assert "is of cluster home. Name that cluster, or use another folder." in ended.stderr
    assert os.listdir(replica.folder)
