"""A node that stands by gives a cell up that it can't recover, and remembers that."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dodona_replication.core.attempts import Attempts
from dodona_replication.core.errors import LogLost
from dodona_replication.core.standby import FoundLog
from dodona_replication.shell.owner_host import TakeOverStuck
from dodona_server.process import read_clock
from dodona_tablets.shell import replicated_node
from dodona_tablets.shell.attempt_file import NAME, read_attempts, write_attempts
from dodona_tablets.shell.replicated_log import OWNER
from dodona_tablets.shell.replicated_node import (
    STUCK_S_MAX,
    _NotTaken,
    _Start,
    run_replicated_node,
)
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.net.folder import LockedFolder, lock_folder

LOG = "cell-1"


class Ended(Exception):
    """The process would have ended, to start again."""


class ScriptedLog:
    """A log whose take-over ends as the test says. `before` and `after` the recovery begins."""

    before: Exception | None = None
    after: Exception | None = None
    stuck_s: float | None = None
    epoch = 3

    def __init__(self, *_: Any) -> None: ...

    def note_owner(self) -> None: ...

    def take(self, recover: Any, expected: Any, stuck_s: float | None) -> Any:
        type(self).stuck_s = stuck_s
        if self.before is not None:
            raise self.before
        made = recover()
        if self.after is not None:
            raise self.after
        return made


class Recovered:
    def _replace(self, **_: Any) -> "Recovered":
        return self


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LockedFolder]:
    locked = lock_folder(tmp_path)
    yield locked
    locked.close()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedLog]:
    def end(*_: Any) -> None:
        raise Ended

    class Log(ScriptedLog): ...

    monkeypatch.setattr(replicated_node, "ReplicatedCellLog", Log)
    monkeypatch.setattr(replicated_node, "ChunkCache", lambda *_: None)
    monkeypatch.setattr(replicated_node, "recover_node", lambda *_: Recovered())
    monkeypatch.setattr(replicated_node, "end_for_another_start", end)
    monkeypatch.setattr(replicated_node, "end_process", end)
    return Log


def settings_of(path: Path, cell: int | None = None) -> NodeSettings:
    made: dict[str, Any] = {
        "master_url": "http://127.0.0.1:1",
        "data_dir": path,
        "cell": cell,
        "port": 1,
        "cluster": "c1",
        "replicas": "http://a:1,http://b:1,http://c:1",
        "etcd": "http://e:1",
        "object_store": "file:///tmp",
    }
    return NodeSettings(**made)


def start_of(folder: LockedFolder, cell: int | None = None) -> _Start:
    settings = settings_of(folder.path, cell)
    replication: Any = replicated_node.replication_of(settings)
    objects: Any = None
    return _Start(
        settings, replication, folder, objects, FoundLog(LOG, None), read_attempts(folder)
    )


def test_a_take_over_that_got_stuck_leaves_the_log_alone_with_a_growing_pause(
    folder: LockedFolder, log: type[ScriptedLog], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    log.before = TakeOverStuck("it does not get on")
    for count in (1, 2):
        with pytest.raises(_NotTaken, match="it does not get on"):
            start_of(folder).recover()
        assert read_attempts(folder).by_log[LOG].count == count
        assert f"leaves it alone for {5 * count} s: it does not get on" in caplog.text
    assert log.stuck_s == STUCK_S_MAX


def test_a_cell_that_can_not_be_recovered_ends_the_process_which_remembers_it(
    folder: LockedFolder, log: type[ScriptedLog], caplog: pytest.LogCaptureFixture
) -> None:
    """What it has recovered would stay in memory. After its start it waits for other cells."""
    log.after = DataCorrupted("the log names chunk 7, which is missing")
    with pytest.raises(Ended):
        start_of(folder).recover()
    attempts = read_attempts(folder)
    assert attempts.by_log[LOG].count == 1
    assert attempts.may_take_at_us(read_clock())[LOG] > read_clock().instant_us
    assert "the log names chunk 7, which is missing" in caplog.text


def test_a_process_that_is_killed_during_a_recovery_remembers_it(
    folder: LockedFolder, log: type[ScriptedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []

    def kill(*_: Any) -> None:
        noted.append(read_attempts(folder).by_log[LOG].count)
        raise KeyboardInterrupt

    monkeypatch.setattr(replicated_node, "recover_node", kill)
    with pytest.raises(KeyboardInterrupt):
        start_of(folder).recover()
    assert noted == [read_attempts(folder).by_log[LOG].count] == [1]


def test_a_success_forgets_the_failures_of_before(
    folder: LockedFolder, log: type[ScriptedLog]
) -> None:
    attempts = Attempts()
    attempts.begin(LOG, read_clock())
    write_attempts(folder, attempts)
    start_of(folder).recover()
    assert read_attempts(folder).by_log == {}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_log_that_another_process_has_is_no_failure(
    moment: str, folder: LockedFolder, log: type[ScriptedLog]
) -> None:
    setattr(log, moment, LogLost("another process has it"))
    with pytest.raises(_NotTaken if moment == "before" else Ended):
        start_of(folder).recover()
    assert read_attempts(folder).by_log == {}


def test_a_node_waits_for_its_own_cell_and_its_errors_end_the_process(
    folder: LockedFolder, log: type[ScriptedLog]
) -> None:
    """The supervisor shows them, and starts the node again."""
    log.after = DataCorrupted("the log names chunk 7, which is missing")
    with pytest.raises(DataCorrupted):
        start_of(folder, cell=1).recover()
    assert log.stuck_s is None
    assert read_attempts(folder).by_log == {}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"by_log": 7}'])
def test_a_file_of_attempts_that_is_damaged_counts_as_empty(
    content: bytes, folder: LockedFolder
) -> None:
    (folder.path / NAME).write_bytes(content)
    assert read_attempts(folder) == Attempts()


OWN_PARTS = {
    "a log": "log/00000000000000000001.mdb",
    "the bounds of a log": "log-bounds",
    "chunks": "chunks/7.arrow",
}


@pytest.mark.parametrize("what", OWN_PARTS)
def test_the_folder_of_a_node_with_its_own_log_is_refused_and_stays(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chunks are in no log that has copies, so a start would take them for garbage."""
    own = tmp_path / OWN_PARTS[what]
    own.parent.mkdir(exist_ok=True)
    own.write_bytes(b"all that there is")
    before = {it.relative_to(tmp_path) for it in tmp_path.rglob("*")}
    monkeypatch.setattr(replicated_node, "listener_of", _went_on)
    with pytest.raises(InvalidRequest, match="dodona cluster adopt"):
        run_replicated_node(settings_of(tmp_path))
    assert {it.relative_to(tmp_path) for it in tmp_path.rglob("*")} - before <= {
        Path("dodona.lock")
    }
    assert own.read_bytes() == b"all that there is"


def test_the_folder_of_a_node_whose_log_has_copies_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chunks").mkdir()
    (tmp_path / "chunks" / "7.arrow").write_bytes(b"a copy")
    (tmp_path / OWNER).write_text("node-1-abc")
    monkeypatch.setattr(replicated_node, "listener_of", _went_on)
    with pytest.raises(Ended):
        run_replicated_node(settings_of(tmp_path))


def _went_on(*_: Any) -> None:
    raise Ended
