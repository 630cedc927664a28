"""A pretended cluster on loopback: a master over HTTP, a proxy and two cells over WebSockets.

Owns: the least that clients need to be tried out: tables that are mounted at once, rows of one
version, commits without conflicts. It runs in a thread of its own, so that blocking clients can be
tested too. `master_answers` and `cell_answers` let a test answer in its place.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dodona.errors import InvalidRequest
from dodona.types import CellId, Key, Revision, TabletId, Timestamp, TransactionId
from dodona_wire.messages import rest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import (
    Cell,
    Cluster,
    CreateTable,
    Done,
    GetCluster,
    ListTables,
    Table,
    TableList,
    Tablet,
)
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    CommitOne,
    Committed,
    DataReply,
    Decide,
    Lookup,
    LookupReply,
    LookupVersions,
    Prepare,
    Prepared,
    RowVersion,
    Scan,
    ScanPage,
    VersionedRows,
    WriteNonAtomic,
    Written,
)
from suite.waiting import WAIT_S_MAX
from unit.client.endpoint import Endpoint, Timestamps

PATH = "//bank/accounts"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "balance", "type": "int64"},
]
CONFLICT = Failure("transaction_conflict", "somebody was faster")
ROWS_PER_PAGE = 3
HANG = Failure("internal", "never sent")
"""A test's answer in a cell's place that makes the cell give none."""


class FakeCluster:
    """See the module. Everything is reached through `url`."""

    def __init__(self) -> None:
        self.timestamps = Timestamps(1 << 40)
        self.tables: dict[str, Table] = {}
        self.rows: dict[tuple[int, Key], tuple[Any, ...]] = {}
        self.outcomes: dict[TransactionId, Timestamp] = {}
        self.prepared: dict[TransactionId, list[Any]] = {}
        self.has_proxy = True
        self.master_answers: Callable[[Any], Any] = lambda body: None
        self.cell_answers: Callable[[Any], DataReply | None] = lambda body: None
        self.cells = [Endpoint(self._cell) for _ in range(2)]
        self.proxy = Endpoint(self._proxy)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._http_thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def start(self) -> None:
        self._thread.start()
        for endpoint in (*self.cells, self.proxy):
            self.run(endpoint.start())
        self._http_thread.start()

    def stop(self) -> None:
        for endpoint in (*self.cells, self.proxy):
            self._loop.call_soon_threadsafe(endpoint.stop)
        self._http.shutdown()
        self._http_thread.join()
        self._http.server_close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Any) -> Any:
        """Run something in the cluster's thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S_MAX)

    def call_soon(self, function: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(function)

    # ---- the master

    def ask_master(self, body: Any) -> Any:
        answer = self.master_answers(body)
        if answer is not None:
            return answer
        match body:
            case GetCluster():
                cells = enumerate(self.cells)
                known = [Cell(CellId(at), it.address, True, 0) for at, it in cells]
                proxies = (self.proxy.address,) if self.has_proxy else ()
                return Cluster(proxies, tuple(known))
            case CreateTable():
                return self._create(body)
            case ListTables():
                return TableList(tuple(sorted(it for it in self.tables if body.prefix in it)))
        path: str = body.path
        if path not in self.tables:
            return Failure("table_not_found", f"there is no table {path}", {"path": path})
        return Done() if "Remove" in type(body).__name__ else self.tables[path]

    def _create(self, body: CreateTable) -> Table:
        first = 10 * len(self.tables)
        tablets = [
            Tablet(TabletId(first + at), pivot, "mounted", CellId(at % 2), Revision(1))
            for at, pivot in enumerate(body.pivot_keys)
        ]
        addresses = {CellId(at): it.address for at, it in enumerate(self.cells)}
        table = Table(body.path, body.columns, body.atomicity, tuple(tablets), addresses)
        self.tables[body.path] = table
        return table

    # ---- the proxy and the cells

    def _proxy(self, body: Any) -> DataReply | None:
        return self.timestamps(body)

    def _cell(self, body: Any) -> DataReply | None:
        answer = self.cell_answers(body)
        if answer is not None:
            return None if answer is HANG else answer
        match body:
            case CommitOne():
                self.apply(body.modifications)
                return self.commit(body.transaction)
            case Prepare():
                self.prepared.setdefault(body.transaction, []).extend(body.modifications)
                return Prepared(body.transaction, self._tick())
            case Decide(commit_timestamp=None) | AskOutcome():
                return self._outcome(body.transaction)
            case Decide():
                self.apply(self.prepared.pop(body.transaction))
                return self.commit(body.transaction)
            case WriteNonAtomic():
                self.apply([body])
                return Written(len(body.writes), body.stamp)
            case Lookup():
                return LookupReply(tuple([self.rows.get((body.tablet, it)) for it in body.keys]))
            case LookupVersions():
                return VersionedRows(tuple([self._history(body.tablet, it) for it in body.keys]))
            case Scan():
                return self._scan(body)
        return Failure("invalid_request", f"not pretended here: {type(body).__name__}")

    def _history(self, tablet: TabletId, key: Key) -> tuple[RowVersion, ...]:
        """Rows have one version here, and nobody remembers of when."""
        values = self.rows.get((tablet, key))
        if values is None:
            return ()
        return (RowVersion(Timestamp(1), (1 << len(values)) - 1, values),)

    def _tick(self) -> Timestamp:
        self.timestamps.next_unused += 1
        return Timestamp(self.timestamps.next_unused)

    def apply(self, modifications: Any) -> None:
        for part in modifications:
            for key, mask, values in part.writes:
                self.rows[part.tablet, key] = values
                if not mask:
                    del self.rows[part.tablet, key]

    def commit(self, transaction: TransactionId) -> Committed:
        self.outcomes[transaction] = self._tick()
        return Committed(transaction, self.outcomes[transaction])

    def _outcome(self, transaction: TransactionId) -> DataReply:
        known = self.outcomes.get(transaction)
        return Aborted(transaction) if known is None else Committed(transaction, known)

    def _scan(self, body: Scan) -> ScanPage:
        here = sorted(key for tablet, key in self.rows if tablet == body.tablet)
        wanted = [key for key in here if body.lower <= key < body.upper]
        page = wanted[:ROWS_PER_PAGE]
        resume = wanted[ROWS_PER_PAGE] if len(wanted) > ROWS_PER_PAGE else None
        return ScanPage(tuple(page), tuple([self.rows[body.tablet, it] for it in page]), resume)


def _handler_of(cluster: FakeCluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("content-length", 0))
            content = self.rfile.read(length)
            known = [it for it in rest.OPERATIONS if it.method == self.command]
            operation = next((it for it in known if it.path == url.path), None)
            if operation is None:
                self.send_error(404)
                return
            try:
                request = rest.decode_request(operation, parse_qsl(url.query), content)
                reply = cluster.ask_master(request)
            except InvalidRequest as error:
                reply = Failure(error.kind, error.message)
            status, raw = 200, b""
            if isinstance(reply, Failure):
                problem = rest.problem_of(reply)
                status, raw = problem.status, rest.encode_problem(problem)
            else:
                raw = rest.encode_json(reply)
            self.send_response(status)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - names that the base class calls

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def running_cluster() -> Iterator[FakeCluster]:
    """A cluster for the length of a block."""
    cluster = FakeCluster()
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def account(number: int, balance: int = 100) -> dict[str, Any]:
    return {"id": number, "balance": balance}


def refuse_once(kind: type[Any]) -> Any:
    """A cell that refuses the first request of that kind."""
    refusals = [CONFLICT]
    return lambda body: refusals.pop() if isinstance(body, kind) and refusals else None


def lose_commits(cluster: FakeCluster, count: int, *, is_applied: bool) -> list[Any]:
    """The cell takes so many commits and drops the connection instead of answering."""
    lost: list[Any] = []

    def answers(body: Any) -> Any:
        if isinstance(body, CommitOne) and len(lost) < count:
            lost.append(body)
            if is_applied:
                cluster.apply(body.modifications)
                cluster.commit(body.transaction)
            for cell in cluster.cells:
                cell.drop_all()
            return Failure("unavailable", "goes nowhere")
        return None

    cluster.cell_answers = answers
    return lost
