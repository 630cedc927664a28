"""Read the status of a running cluster from its servers' REST pages: its servers, the copies of its
logs, and transactions in doubt.

Owns: which pages are asked, for how long, and what a missing answer means. Changes nothing. The
master lists the other servers, and then each of them is asked. A cell whose log has copies names
the log replicas.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import httpx
import msgspec

from dodona._io.network import check_url
from dodona_wire.cores.copies import CopiesReport
from dodona_wire.errors import error_from_wire
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cell, Cluster, GetCluster
from dodona_wire.messages.rest import decode_reply, encode_call
from dodona_wire.net.cluster_key import ClusterKey, key_headers
from dodona_wire.net.roles import wrong_server
from dodona_wire.preload import preload_decoder
from dodona_wire.types import CellId, Timestamp, TransactionId

TIMEOUT_S: Final = 3.0
ANSWER_S_MAX: Final = 10.0
"""After this time no further server is asked, if so many of them are silent."""
AT_A_TIME_MAX: Final = 128
READY: Final = "ready"
FULL: Final = "it has no space for new entries: free its disk, or raise its map-mib-max"
PROGRAM: Final = "dodona/"
NOT_JOINED: Final = (
    "the master has admitted no node of this cell since its start: see the node's /readyz and log"
)

Found = TypeVar("Found")


class PartStatus(NamedTuple):
    """The status of one server. None means unknown, or that the server has no such count."""

    part: str
    state: str
    """`ready`, or why it is not."""
    version: str | None = None
    tablets: int | None = None
    rows: int | None = None
    """The number of versions of rows in memory, which are in no chunk yet."""
    transactions: int | None = None
    """The number of open transactions in the cell."""
    prepared: int | None = None
    """How many of the open transactions are prepared and undecided."""
    committed: int | None = None
    """The number of commits since its start."""
    address: str | None = None
    copies: CopiesReport | None = None
    """The copies of the cell's log, if the log has copies and the node says so."""

    @property
    def is_ready(self) -> bool:
        return self.state == READY


class CopyStatus(NamedTuple):
    """One log replica, as the owner of a cell's log knows it."""

    cell: int
    epoch: int
    owner: str
    role: str
    lag_entries: int
    lag_ms: int
    silent_ms: int
    replica: str
    address: str
    reason: str


class InDoubt(NamedTuple):
    """A transaction that is prepared in a cell and not decided there."""

    transaction: TransactionId
    cell: CellId
    coordinator: CellId
    participants: tuple[CellId, ...]
    prepare_timestamp: Timestamp
    age_ms: int


class _Doubt(msgspec.Struct):
    transaction: int
    coordinator: int
    participants: tuple[int, ...]
    prepare_timestamp: int
    age_ms: int


@preload_decoder
class _DoubtPage(msgspec.Struct):
    transactions: tuple[_Doubt, ...]


class _Counts(msgspec.Struct):
    tablets: int
    rows: int
    transactions_alive: int
    transactions_prepared: int
    committed: int


@preload_decoder
class _CountsPage(msgspec.Struct):
    cell: _Counts
    copies: CopiesReport | None = None


class _ReplicaCounts(msgspec.Struct):
    is_full: bool = False


@preload_decoder
class _ReplicaPage(msgspec.Struct):
    replica: _ReplicaCounts
    candidates: tuple[str, ...] = ()


def look_at_cluster(url: str) -> list[PartStatus]:
    """Return the status of the master, the proxies and the cells. Log replicas and nodes that stand
    by follow, if there are any. Raises InvalidRequest if the URL is not valid."""
    master_url = check_url(url)
    with _http(url) as http:
        master = _look(http, "master", master_url)
        if not master.is_ready:
            return [master]
        cluster = _cluster(http, master_url)
        if isinstance(cluster, Failure):
            return [master._replace(state=cluster.message)]
        proxies = [partial(_look, http, "proxy", address) for address in cluster.proxies]
        cells = [partial(_look_at_cell, http, cell) for cell in cluster.cells]
        found = _all([*proxies, *cells])
        looks = _all([partial(_look_at_replica, http, it) for it in _replicas_of(found)])
        replicas = [part for part, _ in looks]
        waiting = sorted({it for _, candidates in looks for it in candidates})
        standbys = _all([partial(_look, http, "standby", it) for it in waiting])
        return [master, *found, *replicas, *standbys]


def list_copies(url: str) -> tuple[list[CopyStatus], list[str]]:
    """Return the copies of all logs, and why cells could not be asked. Raises InvalidRequest, and
    Unavailable if the master does not answer."""
    master_url = check_url(url)
    with _http(url) as http:
        cells = _cluster_of(http, master_url).cells
        found = _all([partial(_look_at_cell, http, it) for it in cells])
    copies = [it for cell, part in zip(cells, found, strict=True) for it in _copies_of(cell, part)]
    silent = [f"{it.part} can't be asked: {it.state}" for it in found if it.version is None]
    return copies, silent


def _copies_of(cell: Cell, found: PartStatus) -> list[CopyStatus]:
    report = found.copies
    if report is None:
        return []
    return [
        CopyStatus(
            cell.cell,
            report.epoch,
            report.owner,
            it.role,
            it.lag_entries,
            it.lag_us // 1000,
            it.silent_us // 1000,
            it.replica,
            it.address,
            it.reason,
        )
        for it in report.replicas
    ]


def list_in_doubt(url: str) -> tuple[list[InDoubt], list[str]]:
    """Return the transactions in doubt, oldest first, and why cells could not be asked. Raises
    InvalidRequest, and Unavailable if the master does not answer."""
    master_url = check_url(url)
    with _http(url) as http:
        cells = _cluster_of(http, master_url).cells
        pages = _all([partial(_doubts_of, http, cell) for cell in cells])
    found = sorted(it for page in pages if not isinstance(page, str) for it in page)
    return found, [page for page in pages if isinstance(page, str)]


def _http(url: str) -> httpx.Client:
    headers = key_headers(ClusterKey.of_client(url))
    hooks = {"request": [_bounded(time.monotonic() + ANSWER_S_MAX)]}
    limits = httpx.Limits(max_connections=AT_A_TIME_MAX)
    return httpx.Client(
        headers=headers, timeout=TIMEOUT_S, trust_env=False, event_hooks=hooks, limits=limits
    )


def _bounded(until_s: float) -> Callable[[httpx.Request], None]:
    """Return what refuses all requests from an instant of the monotonic clock on."""

    def check(_: httpx.Request) -> None:
        if time.monotonic() >= until_s:
            text = f"it was not asked, since other servers did not answer in {ANSWER_S_MAX:g} s"
            raise httpx.ConnectTimeout(text)

    return check


def _all(jobs: Sequence[Callable[[], Found]]) -> list[Found]:
    """Run the jobs, several at the same time, and return all results in order."""
    with ThreadPoolExecutor(AT_A_TIME_MAX, "dodona-status") as pool:
        return list(pool.map(lambda job: job(), jobs))


def _cluster_of(http: httpx.Client, master_url: str) -> Cluster:
    """Return the servers that the master lists. Raises Unavailable."""
    cluster = _cluster(http, master_url)
    if isinstance(cluster, Failure):
        raise error_from_wire(cluster.kind, cluster.message, cluster.attributes)
    return cluster


def _cluster(http: httpx.Client, master_url: str) -> Cluster | Failure:
    call = encode_call(GetCluster())
    try:
        response = http.request(call.method, master_url + call.target)
    except httpx.HTTPError as error:
        return Failure("unavailable", _silence(master_url, error))
    reply = decode_reply(GetCluster, response.status_code, response.content)
    if isinstance(reply, Failure) and "authorization" not in http.headers:
        key = ClusterKey.announced(master_url, reply.attributes)
        if key is not None:
            http.headers.update(key_headers(key))
            return _cluster(http, master_url)
    assert isinstance(reply, Cluster | Failure)
    return reply


def _look(http: httpx.Client, part: str, address: str) -> PartStatus:
    """Return whether a server is ready."""
    try:
        response = http.get(f"{address}/readyz")
    except httpx.HTTPError as error:
        return PartStatus(part, _silence(address, error), address=address)
    other = wrong_server(address, response.headers) if part == "master" else None
    if other is not None:
        return PartStatus(part, other.message, address=address)
    server = response.headers.get("server", "")
    version = server.removeprefix(PROGRAM) if server.startswith(PROGRAM) else None
    state = READY if response.status_code == httpx.codes.OK else _reason(response)
    return PartStatus(part, state, version, address=address)


def _look_at_cell(http: httpx.Client, cell: Cell) -> PartStatus:
    if not cell.address:
        return PartStatus(f"cell {cell.cell}", NOT_JOINED, tablets=cell.tablet_count)
    status = _look(http, f"cell {cell.cell}", cell.address)._replace(tablets=cell.tablet_count)
    if status.version is None:
        return status
    page = _page(http, f"{cell.address}/v1/statistics", _CountsPage)
    if not isinstance(page, str):
        status = status._replace(copies=page.copies)
    if not status.is_ready:
        return status
    if not cell.is_alive:
        status = status._replace(state="the master does not hear from it")
    if isinstance(page, str):
        return status
    counts = page.cell
    return status._replace(
        tablets=counts.tablets,
        rows=counts.rows,
        transactions=counts.transactions_alive,
        prepared=counts.transactions_prepared,
        committed=counts.committed,
    )


def _replicas_of(found: Sequence[PartStatus]) -> list[str]:
    """Return the addresses of all log replicas. The owner of a log knows no address for a member
    that it never met: then there is only its id."""
    reports = [it.copies for it in found if it.copies is not None]
    addresses = [it.address for report in reports for it in report.replicas]
    return list(dict.fromkeys(it for it in addresses if "://" in it))


def _look_at_replica(http: httpx.Client, address: str) -> tuple[PartStatus, tuple[str, ...]]:
    """Return the status of a log replica, and the addresses of the nodes that stand by there."""
    status = _look(http, "replica", address)
    if not status.is_ready:
        return status, ()
    page = _page(http, f"{address}/v1/statistics", _ReplicaPage)
    if isinstance(page, str):
        return status, ()
    return status._replace(state=FULL) if page.replica.is_full else status, page.candidates


def _doubts_of(http: httpx.Client, cell: Cell) -> list[InDoubt] | str:
    if not cell.address:
        return f"cell {cell.cell} can't be asked: {NOT_JOINED}"
    page = _page(http, f"{cell.address}/v1/in-doubt", _DoubtPage)
    if isinstance(page, str):
        return f"cell {cell.cell} can't be asked: {page}"
    return [
        InDoubt(
            TransactionId(it.transaction),
            cell.cell,
            CellId(it.coordinator),
            tuple(map(CellId, it.participants)),
            Timestamp(it.prepare_timestamp),
            it.age_ms,
        )
        for it in page.transactions
    ]


def _page(http: httpx.Client, url: str, kind: type[Found]) -> Found | str:
    """Return the content of a page, or why there is none."""
    try:
        response = http.get(url)
        if response.status_code != httpx.codes.OK:
            return _reason(response)
        return msgspec.json.decode(response.content, type=kind)
    except httpx.HTTPError as error:
        return _silence(url, error)
    except (msgspec.MsgspecError, UnicodeError) as error:
        return f"the answer does not come from a tablet node: {error}"


def _silence(address: str, error: Exception) -> str:
    return f"no answer from {address}: {str(error) or type(error).__name__}"


def _reason(response: httpx.Response) -> str:
    """Return the reason of a failed answer: servers send it as a problem, or as their status."""
    try:
        said: Any = response.json()
    except ValueError:
        said = None
    if isinstance(said, dict) and isinstance(found := said.get("detail", said.get("status")), str):
        return found
    return f"it answers with HTTP status {response.status_code}"
