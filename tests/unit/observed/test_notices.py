"""A server's log says when it begins to serve and when it does not, and for which reason."""

import asyncio
import logging
from pathlib import Path

import pytest

from dodona_oracle.core.master import MasterCore
from dodona_oracle.shell.master import create_master
from dodona_oracle.shell.settings import MasterSettings
from dodona_oracle.shell.store import MasterStore
from dodona_server import notices
from dodona_server.lifecycle import Lifecycle
from dodona_server.notices import Readiness, look_around
from dodona_server.process import read_clock
from dodona_server.recovery_book import RecoveryBook
from dodona_server.settings import parse_settings
from dodona_wire.messages.data import GenerateTimestamps
from suite.waiting import until


class Watched:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._log = caplog
        self.reason: str | None = None
        self.lifecycle = Lifecycle(lambda: self.reason)
        self._readiness = Readiness(self.lifecycle)

    def look(self, reason: str | None) -> list[tuple[str, str | None]]:
        """→ which events were told by one more look, with their reasons."""
        self._log.clear()
        self.reason = reason
        self._readiness.look()
        found = [it.fields for it in self._log.records]  # type: ignore[attr-defined]
        return [(it["event"], it.get("reason")) for it in found]


def test_each_change_of_readiness_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(caplog)
    assert watched.look("waiting for the oracle") == [("not_ready", "waiting for the oracle")]
    assert watched.look("waiting for the oracle") == []
    assert watched.look("waiting for the master") == [("not_ready", "waiting for the master")]
    assert watched.look(None) == [("ready", None)]
    assert watched.look(None) == []
    assert len(watched.look("the disk has not answered for 2001 ms")) == 1
    assert watched.look("the disk has not answered for 3001 ms") == [], "that is no news"
    assert watched.look(None) == [("ready", None)]


def test_readiness_is_not_logged_while_the_server_drains(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(caplog)
    watched.lifecycle.is_draining = True
    assert watched.look("x") == watched.look(None) == []


def test_the_check_of_readiness_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "LOOK_SECONDS", 0.001)
    looked: list[int] = []

    async def run() -> None:
        looking = asyncio.create_task(look_around(lambda: looked.append(1)))
        await until(lambda: len(looked) >= 3)
        looking.cancel()

    asyncio.run(run())


def test_a_master_that_refuses_every_timestamp_is_not_ready(tmp_path: Path) -> None:
    """Another machine's may still give some out: it waits until that must have ended."""
    options = ["--data-dir", str(tmp_path / "data")]
    settings = parse_settings(MasterSettings, "master", options)
    store = MasterStore.open(settings.data_dir)
    try:
        first = MasterCore.recover([], read_clock(), machine="first")
        first.handle("route", GenerateTimestamps(1), read_clock())
        store.append([it.record for it in first.take_effects() if hasattr(it, "record")])
        core = MasterCore.recover(store.items(), read_clock(), machine="second")
        lifecycle = create_master(core, store, settings, RecoveryBook.open(store.path)).lifecycle
        assert "just started on another machine" in str(lifecycle.why_not_ready())
        again = MasterCore.recover(store.items(), read_clock(), machine="first")
        lifecycle = create_master(again, store, settings, RecoveryBook.open(store.path)).lifecycle
        assert lifecycle.why_not_ready() is None
    finally:
        store.close()
