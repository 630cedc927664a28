"""Fifty thousand requests, most of them wrong: the gateway answers all, stays as it was, and is
right with those that are right."""

import asyncio
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import pytest

from dodona.errors import ERRORS_BY_KIND
from dodona_local.launcher import LocalCluster
from dodona_wire.messages.rest import PROBLEM_TYPE, Problem
from integration.gateway.fuzzing import (
    COLUMNS,
    KEPT,
    KEPT_LOGICAL,
    LOGICAL,
    TARGETS,
    WIDE,
    Fuzzer,
    Sent,
)
from integration.gateway.rest import INSIDES, Rest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(280),
    pytest.mark.alone,  # it says how much memory a gateway needs
]

REQUESTS: Final = int(os.environ.get("DODONA_FUZZ_REQUESTS", "50000"))
SEED: Final = int(os.environ.get("DODONA_FUZZ_SEED", "1"))
CALLERS: Final = 48
WARM_UP: Final = 0.1
"""After this share of the requests the gateway's memory is as it is to stay."""
GROWTH_MIB_MAX: Final = 100
ANSWER_S_MAX: Final = 60
MEANT: Final = frozenset((503, 504, 507))
HEAD_END: Final = b"\r\n\r\n"
BULK_READ: Final = b" /v1/bulk/read"


class Wrong(AssertionError):
    """What the gateway did, and to which request."""

    def __init__(self, what: str, sent: Sent, answer: bytes) -> None:
        super().__init__(f"{what}\nsent: {sent.content[:3000]!r}\nanswered: {answer[:3000]!r}")


class Caller:
    """One connection after the other, one request after the other."""

    def __init__(self, url: str, number: int) -> None:
        parts = urlsplit(url)
        self._place = parts.hostname, parts.port
        self.fuzzer = Fuzzer(SEED, number, parts.netloc)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.statuses: dict[int, int] = {}
        self.broken_off_count = 0
        """Streams that ended in their middle: others remove tables while they are read."""

    async def run(self, count: int) -> None:
        for _ in range(count):
            sent = self.fuzzer.next()
            try:
                await asyncio.wait_for(self._exchange(sent), ANSWER_S_MAX)
            except TimeoutError:
                raise Wrong("there was no answer", sent, b"") from None
        await self._close()

    async def _exchange(self, sent: Sent) -> None:
        for is_last_try in (False, True):
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._place, limit=1 << 26)
            reader, writer = self._streams
            try:
                writer.write(sent.content)
                await writer.drain()
                if not sent.is_waited_for:
                    await self._close()
                    return
                head = await self._head(reader)
                break
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                await self._close()  # an idle connection may have been closed a moment ago
                if is_last_try:
                    raise Wrong(f"the connection ended: {error!r}", sent, b"") from error
        try:
            body = await self._body(reader, head, sent)
        except asyncio.IncompleteReadError as error:
            await self._close()
            if BULK_READ not in sent.content.partition(b"\r\n")[0]:
                raise Wrong("an answer broke off", sent, head + error.partial) from error
            self.broken_off_count += 1
            return
        self._check(sent, head, body)
        if re.search(rb"\r\nconnection: close", head):
            await self._close()

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        while True:
            head = await reader.readuntil(HEAD_END)
            if not head.startswith(b"HTTP/1.1 100 "):
                return head

    async def _body(self, reader: asyncio.StreamReader, head: bytes, sent: Sent) -> bytes:
        if sent.is_head:
            return b""
        length = re.search(rb"\r\ncontent-length: (\d+)", head)
        if length is not None:
            return await reader.readexactly(int(length[1]))
        if b"\r\ntransfer-encoding: chunked" not in head:
            raise Wrong("nobody knows how long the answer is", sent, head)
        body = b""
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            body += (await reader.readexactly(size + 2))[:-2]
            if not size:
                return body

    def _check(self, sent: Sent, head: bytes, body: bytes) -> None:
        status = int(head.split(b" ", 2)[1])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        answer = head + body
        if status >= 500 and status not in MEANT:
            raise Wrong("the server failed", sent, answer)
        if INSIDES.search(body.decode("latin-1")) and status >= 400:
            raise Wrong("an answer tells of our insides", sent, answer)
        if status >= 400 and not sent.is_head:
            self._check_problem(status, head, body, sent)
        if sent.answer is not None:
            self._check_right(sent, status, answer, body)
        if status == 201 and b'"transaction"' in body:
            self.fuzzer.learn(msgspec.json.decode(body)["transaction"])

    def _check_problem(self, status: int, head: bytes, body: bytes, sent: Sent) -> None:
        if b"content-type: " + PROBLEM_TYPE.encode() not in head:
            raise Wrong("an error is no problem", sent, head + body)
        try:
            problem = msgspec.json.decode(body, type=Problem)
        except msgspec.DecodeError as error:
            raise Wrong("an error is no problem", sent, head + body) from error
        if problem.status != status or problem.kind not in ERRORS_BY_KIND:
            raise Wrong("a problem is not what it says", sent, head + body)

    def _check_right(self, sent: Sent, status: int, answer: bytes, body: bytes) -> None:
        assert sent.answer is not None
        if status != 200 or not sent.answer(msgspec.json.decode(body)):
            raise Wrong("a request that is right was answered wrongly", sent, answer)

    async def _close(self) -> None:
        if self._streams is not None:
            writer = self._streams[1]
            self._streams = None
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def resident_mib(pid: int) -> float:
    """How much memory a process has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    (found,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(found) / 1024


async def fuzz(count: int, callers: list[Caller]) -> None:
    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(caller.run(count // len(callers)))


def prepare(rest: Rest) -> None:
    rest("create_table", path=KEPT, schema=COLUMNS, mount=True)
    rest("create_table", path=KEPT_LOGICAL, schema=LOGICAL, mount=True)
    schemas = {"//fuzz/wide": WIDE, "//fuzz/logical": LOGICAL}
    for path in TARGETS:
        atomicity = "none" if path.endswith("none") else "full"
        schema = schemas.get(path, COLUMNS)
        rest("create_table", path=path, schema=schema, atomicity=atomicity, mount=True)


def test_the_gateway_answers_random_requests_and_keeps_working(tmp_path: Path) -> None:
    print(f"DODONA_FUZZ_SEED={SEED}")
    with LocalCluster(tmp_path / "data", gateway_count=1, is_insecure=True) as cluster:
        (url,) = cluster.gateway_urls
        pid = cluster.processes["gateway"].pid
        assert pid is not None
        with Rest(url) as rest:
            prepare(rest)
            callers = [Caller(url, number) for number in range(CALLERS)]
            asyncio.run(fuzz(int(REQUESTS * WARM_UP), callers))
            before_mib = resident_mib(pid)
            asyncio.run(fuzz(int(REQUESTS * (1 - WARM_UP)), callers))
            grown_mib = resident_mib(pid) - before_mib
            statuses: dict[int, int] = {}
            for caller in callers:
                for status, count in caller.statuses.items():
                    statuses[status] = statuses.get(status, 0) + count
            broken_off_count = sum(it.broken_off_count for it in callers)
            print(dict(sorted(statuses.items())), f"grown by {grown_mib:.0f} MiB")
            print(f"{broken_off_count} streams broke off")
            assert {200, 201, 400, 404, 405, 406, 409, 413, 415} - set(statuses) == set()
            assert statuses[200] > REQUESTS / 5
            assert grown_mib < GROWTH_MIB_MAX
            assert cluster.processes["gateway"].pid == pid
            assert cluster.processes["gateway"].start_count == 1
            assert_right(rest)
        log = (tmp_path / "data" / "logs" / "gateway.log").read_text(errors="replace")
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:5000]
        reasons = re.findall(r"an answer broke off: (.*?) \(request=", log)
        assert "the reason is not known" not in reasons
        assert broken_off_count <= len(reasons) < REQUESTS / 1000


def assert_right(rest: Rest) -> None:
    """After all of it, too."""
    rows: list[Any] = [{"id": -1, "owner": "last", "balance": 1}]
    begun = rest("begin_transaction")["transaction"]
    rest("insert_rows_in_transaction", begun, table=KEPT, rows=rows)
    rest("commit_transaction", begun)
    assert rest("lookup_rows", table=KEPT, keys=[{"id": -1}])["rows"] == rows
