"""The audit: every call has its line, in a file of its own, or is refused."""

import asyncio
import errno
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import Forbidden, InvalidRequest, Overloaded, Unavailable
from dodona_gateway.core.access.grants import parse_grants
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.shell import audit, service
from dodona_gateway.shell.audit import AuditedCall, AuditLog
from dodona_gateway.shell.settings import GatewaySettings
from dodona_server.settings import parse_settings
from suite.waiting import WAIT_S_MAX, until

pytestmark = pytest.mark.anyio
ADA = Principal("ada", "0123456789abcdef", parse_grants(["admin:/"]))
SECRET = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
async def log(path: Path) -> AsyncIterator[AuditLog]:
    it = AuditLog(path, unix_us=lambda: 1_700_000_000_123_456)
    yield it
    await it.close()


def call(log: AuditLog, request_id: str = "r1", **options: Any) -> AuditedCall:
    fields = {"operation": "remove", "path": "//home/t", "remote": "127.0.0.1", **options}
    return log.call(fields.pop("principal", ADA), request_id=request_id, **fields)


async def do(log: AuditLog, request_id: str = "r1", **options: Any) -> None:
    async with call(log, request_id, **options):
        pass


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(autouse=True)
def _lines_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the real disk is."""
    monkeypatch.setattr(audit, "WRITE_WAIT_S_MAX", WAIT_S_MAX)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call hardly waits for a line that can't be written."""
    monkeypatch.setattr(audit, "WRITE_WAIT_S_MAX", 0.05)


class Disk:
    """Stands in for `os.write`: takes so many bytes, or none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes_left: int | None = None
        self.bytes_at_once = 1 << 20
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(audit, "RETRY_S", 0.01)

    def write(self, descriptor: int, data: bytes) -> int:
        count = min(len(data), self.bytes_at_once)
        if self.bytes_left is not None:
            count = min(count, self.bytes_left)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.bytes_left -= count
        return self._write(descriptor, data[:count])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_a_call_is_one_line(log: AuditLog, path: Path) -> None:
    async with call(log):
        assert lines(path) == []
    (line,) = path.read_bytes().splitlines()
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123456+00:00",
        "request_id": "r1",
        "principal": "ada",
        "token_id": "0123456789abcdef",
        "operation": "remove",
        "path": "//home/t",
        "outcome": "ok",
        "status": 200,
        "remote": "127.0.0.1",
    }
    assert path.stat().st_mode & 0o777 == 0o600


async def test_an_audit_line_contains_the_outcome_of_a_call(log: AuditLog, path: Path) -> None:
    async with call(log, "created") as it:
        it.status = 201
    async with call(log, "refused") as it:
        it.status = 404
    for error in (Forbidden("no"), ZeroDivisionError()):
        with pytest.raises(type(error)):
            async with call(log, "failed"):
                raise error
    await do(log, "nobody", principal=None, path=None, remote=None)
    found = [(it["request_id"], it["outcome"], it["status"]) for it in lines(path)]
    assert found == [
        ("created", "ok", 201),
        ("refused", "refused", 404),
        ("failed", "forbidden", 403),
        ("failed", "internal", 500),
        ("nobody", "ok", 200),
    ]
    last = lines(path)[-1]
    assert [last[it] for it in ("principal", "token_id", "path", "remote")] == [None] * 4


async def test_a_cancelled_call_has_an_audit_line(log: AuditLog, path: Path) -> None:
    async def hang() -> None:
        async with call(log):
            await asyncio.sleep(60)

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [(it["outcome"], it["status"]) for it in lines(path)] == [("cancelled", None)]


async def test_text_from_callers_neither_breaks_an_audit_line_nor_shows_a_token(
    log: AuditLog, path: Path
) -> None:
    text = f'//t\n{{"outcome": "ok"}}\ud800 dodona_0001020304050607_{SECRET}'
    await do(log, text, operation=text, path=text + "x" * 10_000, remote=text)
    (line,) = lines(path)
    assert SECRET[:10] not in path.read_text()
    assert line["remote"].startswith('//t\n{"outcome": "ok"}\\ud800 dodona_0001020304050607_...')
    assert len(line["path"]) < 3_000


async def test_lines_are_in_the_order_in_which_calls_ended(log: AuditLog, path: Path) -> None:
    await asyncio.gather(*(do(log, str(place)) for place in range(200)))
    assert [it["request_id"] for it in lines(path)] == [str(place) for place in range(200)]


async def test_a_file_that_was_moved_is_left_alone(log: AuditLog, path: Path) -> None:
    await do(log, "1")
    moved = path.rename(path.with_suffix(".1"))
    await do(log, "2")
    path.unlink()
    await do(log, "3")
    assert [it["request_id"] for it in lines(moved)] == ["1"]
    assert [it["request_id"] for it in lines(path)] == ["3"]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_the_audit_file_is_opened_again_on_request(
    log: AuditLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For file systems that do not tell whether it was moved."""
    monkeypatch.setattr(log._file, "_was_moved", lambda descriptor: False)
    moved = path.rename(path.with_suffix(".1"))
    await do(log, "1")
    log.reopen()
    await do(log, "2")
    assert [it["request_id"] for it in lines(moved)] == ["1"]
    assert [it["request_id"] for it in lines(path)] == ["2"]


async def test_an_audit_file_is_moved_before_the_file_exceeds_its_bound(path: Path) -> None:
    log = AuditLog(path, bytes_max=1_000)
    sizes = []
    for place in range(20):
        await do(log, str(place))
        sizes.append(path.stat().st_size)
    await log.close()
    moved = path.with_name("audit.jsonl.1")
    assert max(*sizes, moved.stat().st_size) <= 1_000
    assert sorted(it.name for it in path.parent.iterdir()) == ["audit.jsonl", "audit.jsonl.1"]
    kept = [it["request_id"] for it in lines(moved) + lines(path)]
    assert kept == [str(place) for place in range(20)][-len(kept) :], "no line in between is lost"
    assert moved.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o600


async def test_a_link_to_the_audit_file_stays_when_the_file_is_moved(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    log = AuditLog(link, bytes_max=10)
    for place in range(3):
        await do(log, str(place))
    await log.close()
    assert link.is_symlink()
    assert sorted(it.name for it in path.parent.iterdir()) == [path.name, f"{path.name}.1", "link"]
    assert [it["request_id"] for it in lines(path)] == ["2"]


@contextmanager
def output_in(path: Path, output: int) -> Iterator[None]:
    """Let an output of this process go to the file for a while."""
    kept, file = os.dup(output), os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.dup2(file, output)
    yield
    os.dup2(kept, output)
    os.close(kept)
    os.close(file)


@pytest.mark.parametrize("output", [1, 2])
async def test_an_output_of_the_process_is_not_moved(path: Path, output: int) -> None:
    """As /dev/stdout is, whose link would be moved with the device folder's other names."""
    link = path.with_name("output")
    link.symlink_to(f"/proc/self/fd/{output}")
    with output_in(path, output):
        for place in (link, path):
            log = AuditLog(place, bytes_max=10)
            await do(log, "1")
            await do(log, "2")
            await log.close()
    assert sorted(it.name for it in path.parent.iterdir()) == [path.name, "output"]
    assert link.is_symlink()
    assert [it["request_id"] for it in lines(path)] == ["1", "2", "1", "2"]


async def test_a_line_that_is_longer_than_the_bound_is_written(path: Path) -> None:
    log = AuditLog(path, bytes_max=10)
    await do(log, "1")
    await do(log, "2")
    await log.close()
    moved = path.with_name("audit.jsonl.1")
    assert [it["request_id"] for it in lines(moved) + lines(path)] == ["1", "2"]


async def test_a_file_that_was_there_is_moved_by_the_first_line(path: Path) -> None:
    path.write_text("x" * 2_000 + "\n")
    log = AuditLog(path, bytes_max=1_000)
    await do(log)
    await log.close()
    assert path.with_name("audit.jsonl.1").stat().st_size == 2_001
    assert len(lines(path)) == 1


async def test_without_a_bound_no_file_is_moved(log: AuditLog, path: Path) -> None:
    for place in range(20):
        await do(log, str(place))
    assert [it.name for it in path.parent.iterdir()] == ["audit.jsonl"]


@pytest.mark.usefixtures("impatient")
async def test_calls_are_refused_while_a_full_file_can_t_be_moved(
    path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    in_its_place = path.with_name("audit.jsonl.1")
    in_its_place.mkdir()
    log = AuditLog(path, bytes_max=300)
    await do(log, "1")
    await do(log, "2")
    await until(lambda: log._file.problem)
    with pytest.raises(Unavailable, match="audit"):
        await do(log, "3")
    assert [it["request_id"] for it in lines(path)] == ["1"], "it does not grow over its bound"
    in_its_place.rmdir()
    await until(lambda: not log._file.problem)
    await do(log, "4")
    await log.close()
    assert [it["request_id"] for it in lines(in_its_place) + lines(path)] == ["2", "4"]
    assert caplog.text.count("can't be written, calls are refused") == 1


@pytest.mark.usefixtures("impatient")
async def test_the_audit_retries_if_a_new_file_cannot_be_opened(
    path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(path, bytes_max=300)
    await do(log, "1")

    def refuse(*_: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        await do(log, "2")
        await until(lambda: log._file.problem)
        with pytest.raises(Unavailable):
            await do(log, "3")
    await until(lambda: not log._file.problem)
    await log.close()
    moved = path.with_name("audit.jsonl.1")
    assert [it["request_id"] for it in lines(moved) + lines(path)] == ["1", "2"]


async def test_a_line_that_was_cut_short_does_not_spoil_the_next(path: Path) -> None:
    path.write_text('{"time": "2023')
    log = AuditLog(path)
    await do(log)
    await log.close()
    first, second = path.read_text().splitlines()
    assert first == '{"time": "2023'
    assert json.loads(second)["request_id"] == "r1"
    assert len(path.read_text().splitlines()) == 2
    again = AuditLog(path)
    await again.close()
    assert path.read_text() == f"{first}\n{second}\n"


async def test_an_audit_line_is_complete_when_the_disk_writes_in_small_pieces(
    log: AuditLog, path: Path, disk: Disk
) -> None:
    disk.bytes_at_once = 7
    await asyncio.gather(*(do(log, str(place)) for place in range(3)))
    assert [it["request_id"] for it in lines(path)] == ["0", "1", "2"]


@pytest.mark.usefixtures("impatient")
async def test_nothing_is_done_that_can_t_be_written_down(
    log: AuditLog, path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.bytes_left = 20
    waiting = asyncio.create_task(do(log, "1"))
    await asyncio.wait([waiting], timeout=WAIT_S_MAX)
    assert waiting.done(), "the answer does not wait for ever"
    await until(lambda: log._file.problem)
    with pytest.raises(Unavailable, match="audit"):
        await do(log, "2")
    assert len(path.read_bytes()) == 20
    disk.bytes_left = None
    await until(lambda: not log._file.problem)
    await do(log, "3")
    await until(lambda: path.read_bytes().count(b"\n") == 2)
    assert [it["request_id"] for it in lines(path)] == ["1", "3"], "the first was kept"
    assert caplog.text.count("can't be written, calls are refused") == 1
    assert caplog.text.count("can be written again") == 1


@pytest.mark.usefixtures("impatient")
async def test_the_gateway_logs_each_lost_audit_line(
    path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(path)
    disk.bytes_left = 20
    calls = [call(log, "1"), call(log, "2")]
    for it in calls:  # both have their places before the first is written
        await it.__aenter__()
    await asyncio.gather(*(it.__aexit__(None, None, None) for it in calls))
    await log.close()
    await until(lambda: caplog.text.count("a line of the audit log is lost") >= 2)
    assert caplog.text.count("a line of the audit log is lost") == 2
    with pytest.raises(Unavailable):
        await do(log, "3")
    disk.bytes_left = None
    again = AuditLog(path)
    await do(again, "4")
    await again.close()
    torn, line = path.read_text().splitlines()
    assert (len(torn), json.loads(line)["request_id"]) == (20, "4")


async def test_a_line_after_one_that_was_given_up_is_whole(path: Path, disk: Disk) -> None:
    file = audit._File(path)
    file.closing.set()
    disk.bytes_left = 5
    with pytest.raises(OSError, match="No space"):
        file.write(b"the first\n")
    disk.bytes_left = None
    file.write(b"the second\n")
    file.close()
    assert path.read_bytes() == b"the f\nthe second\n"


async def test_calls_are_refused_when_the_audit_queue_is_full(path: Path) -> None:
    log = AuditLog(path, queue_max=2)
    async with call(log, "1"), call(log, "2"):
        with pytest.raises(Overloaded):
            await do(log, "3")
    await do(log, "4")
    await log.close()
    assert [it["request_id"] for it in lines(path)] == ["2", "1", "4"]


async def test_a_file_that_can_t_be_opened_is_no_audit(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as raised:
        AuditLog(tmp_path / "nowhere" / "audit.jsonl")
    assert raised.value.attributes == {"path": str(tmp_path / "nowhere" / "audit.jsonl")}


async def test_writing_does_not_hold_up_the_loop(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    write = os.write

    def noted(descriptor: int, data: bytes) -> int:
        threads.append(threading.current_thread())
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", noted)
    await do(log)
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


async def test_the_audit_of_a_gateway_has_the_size_bound_of_its_settings(path: Path) -> None:
    for options, bytes_max in (([], None), (["--audit-mib-max=3"], 3 << 20)):
        arguments = [f"--audit-log={path}", *options]
        log = service._audit(parse_settings(GatewaySettings, "gateway", arguments))
        assert log is not None
        assert log._file._bytes_max == bytes_max
        await log.close()
    assert service._audit(parse_settings(GatewaySettings, "gateway", [])) is None
