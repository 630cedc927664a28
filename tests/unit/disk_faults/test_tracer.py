"""The tracer sees all that a program does to a folder, in order, and lets it fail, or refuses."""

import errno
import signal
from concurrent.futures import Executor
from pathlib import Path

import pytest

from disk_faults import ptrace
from disk_faults.injection import Site, sites_of
from disk_faults.operations import (
    ROOT,
    Made,
    Marked,
    Operation,
    Recording,
    Removed,
    Renamed,
    Resized,
    Synced,
    SyncFailed,
    Written,
)
from disk_faults.ptrace import Untraceable
from disk_faults.tracer import KILL, SHORT, Failure
from unit.disk_faults import programs
from unit.disk_faults.programs import Plain


def trace(
    apart: Executor, program: Plain, folder: Path, sabotage: Site | int | None = None
) -> Recording:
    return apart.submit(programs.trace, program, folder, sabotage).result()


def test_the_tracer_sees_every_kind_of_write_with_its_offset(
    apart: Executor, tmp_path: Path
) -> None:
    """And what they come to is what is in the file: the recorder checks that itself."""
    recording = trace(apart, programs.write_in_every_way, tmp_path)
    writes = [it for it in recording.operations if isinstance(it, Written)]
    assert [(it.offset, it.data) for it in writes] == [
        (0, b"write "),
        (6, b"pwrite "),
        (13, b"writev "),
        (20, b"pwritev "),
        (28, b"append "),
        (35, b"python"),
    ]
    assert recording.operations[-1] == Marked(b"written")
    assert recording.endings[-1].status == 0


def test_every_way_to_sync_is_seen(apart: Executor, tmp_path: Path) -> None:
    recording = trace(apart, programs.sync_in_every_way, tmp_path)
    assert recording.operations == [
        Made(ROOT, "file", 1),
        Written(1, 0, b"x", is_synced=True),
        Marked(b"durable"),
        Synced(1),
        Synced(1),
        Resized(1, 5),
        Synced(ROOT),
    ]


def test_every_change_of_a_name_is_seen(apart: Executor, tmp_path: Path) -> None:
    recording = trace(apart, programs.name_in_every_way, tmp_path)
    names: list[Operation] = [
        it for it in recording.operations if isinstance(it, Made | Renamed | Removed)
    ]
    folder, below, file, other, gone, last = range(1, 7)
    assert names == [
        Made(ROOT, "a", folder, is_folder=True),
        Made(folder, "b", below, is_folder=True),
        Made(folder, "file", file),
        Made(folder, "other", other),
        Renamed(folder, "other", "file"),
        Made(folder, "gone", gone),
        Removed(folder, "gone"),
        Removed(folder, "b"),
        Renamed(ROOT, "a", "c"),
        Made(folder, "below", last),
        Renamed(folder, "below", "under"),
    ]
    assert Resized(other, 0) in recording.operations


def test_threads_are_all_seen_and_one_at_a_time(apart: Executor, tmp_path: Path) -> None:
    recording = trace(apart, programs.write_from_threads, tmp_path)
    for file in range(1, 5):
        of_file = [
            it.data if isinstance(it, Written) else b"sync"
            for it in recording.operations
            if (isinstance(it, Written) and it.file == file) or it == Synced(file)
        ]
        assert of_file == [part for count in range(5) for part in (b"%d " % count, b"sync")]


def test_an_end_waits_for_the_call_that_another_thread_is_in(
    apart: Executor, tmp_path: Path
) -> None:
    """Else the kernel may have done it, and nobody hears of it: the recorder would complain."""
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        recording = trace(apart, programs.end_beside_a_writer, folder)
        (ending,) = recording.endings
        assert ending.status == 3
        assert any(isinstance(it, Written) for it in recording.operations)


def test_a_recording_begins_with_the_existing_files(apart: Executor, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "known").write_bytes(b"from before")
    recording = trace(apart, programs.sync_in_every_way, tmp_path)
    assert recording.operations[:6] == [
        Made(ROOT, "folder", 1, is_folder=True),
        Synced(ROOT),
        Made(1, "known", 2),
        Synced(1),
        Written(2, 0, b"from before"),
        Synced(2),
    ]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (programs.write_by_memory, "file is written by memory"),
        (programs.start_another, "starts another process"),
        (programs.link, "system call 88 on link"),
        (programs.allocate, "system call 285 on file"),
    ],
)
def test_the_tracer_refuses_unsupported_operations(
    apart: Executor, tmp_path: Path, program: Plain, words: str
) -> None:
    with pytest.raises(Untraceable, match=words):
        trace(apart, program, tmp_path)


def test_there_are_no_rings(apart: Executor, tmp_path: Path) -> None:
    assert trace(apart, programs.make_a_ring, tmp_path).marks() == [b"ENOSYS"]


def test_a_call_that_was_missed_is_found_out(apart: Executor, tmp_path: Path) -> None:
    with pytest.raises(Untraceable, match="not all was seen that was done to file"):
        apart.submit(programs.trace_half_blind, tmp_path).result()


def test_a_recording_contains_the_exit_status_and_error_of_a_program(
    apart: Executor, tmp_path: Path
) -> None:
    (ending,) = trace(apart, programs.end_badly, tmp_path).endings
    assert ending.status == 1
    assert "ValueError: what was it again?" in ending.words


def test_the_tracer_refuses_an_unsupported_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "sparc")
    with pytest.raises(Untraceable, match="x86_64 only, and this is Linux on sparc"):
        ptrace.check_machine()


def test_a_forbidden_trace_fails_with_a_hint_to_allow_ptrace(
    apart: Executor, tmp_path: Path
) -> None:
    with pytest.raises(Untraceable, match="allow ptrace"):
        apart.submit(programs.trace_where_it_is_forbidden, tmp_path).result()


# Failing calls


@pytest.mark.parametrize(
    ("site", "answers", "content"),
    [
        (Site("write", 1, Failure(errno.EIO)), ["EIO", "None", "4", "None"], b"head"),
        (Site("write", 1, SHORT), ["2", "None", "4", "None"], b"head"),
        (Site("sync", 1, Failure(errno.ENOSPC)), ["4", "ENOSPC", "4", "None"], b"head"),
        (Site("sync", 2, Failure(errno.EIO)), ["4", "None", "4", "EIO"], b"head"),
        (Site("synced write", 1, Failure(errno.EIO)), ["4", "None", "EIO", "None"], b"four"),
        (Site("synced write", 1, Failure(errno.EIO, True)), ["4", "None", "EIO", "None"], b"head"),
    ],
)
def test_one_call_fails_and_all_others_do_not(
    apart: Executor, tmp_path: Path, site: Site, answers: list[str], content: bytes
) -> None:
    recording = trace(apart, programs.write_and_tell, tmp_path, site)
    assert [mark.decode() for mark in recording.marks()] == answers
    assert (tmp_path / "file").read_bytes() == content


def test_a_failed_sync_is_recorded_as_one(apart: Executor, tmp_path: Path) -> None:
    site = Site("sync", 1, Failure(errno.EIO))
    recording = trace(apart, programs.write_and_tell, tmp_path, site)
    assert SyncFailed(1) in recording.operations


def test_a_write_that_failed_to_sync_was_a_write(apart: Executor, tmp_path: Path) -> None:
    site = Site("synced write", 1, Failure(errno.EIO, is_carried_out=True))
    recording = trace(apart, programs.write_and_tell, tmp_path, site)
    at = recording.operations.index(Written(1, 0, b"head"))
    assert recording.operations[at + 1] == SyncFailed(1)


def test_a_recording_of_a_killed_program_has_the_operations_before_the_kill(
    apart: Executor, tmp_path: Path
) -> None:
    recording = trace(apart, programs.write_and_tell, tmp_path, 3)
    assert recording.operations == [Made(ROOT, "file", 1), Written(1, 0, b"four"), Marked(b"4")]
    assert recording.endings[-1].status == -signal.SIGKILL


def test_every_call_is_a_site_in_every_way() -> None:
    sites = list(sites_of({"sync": 2, "synced write": 1, "map": 5, "mark": 5}))
    assert [str(site) for site in sites] == [
        "EIO at synced write 1",
        "ENOSPC at synced write 1",
        "EIO, though done, at synced write 1",
        "EIO at sync 1",
        "ENOSPC at sync 1",
        "EIO at sync 2",
        "ENOSPC at sync 2",
    ]
    assert str(KILL) == "death"
