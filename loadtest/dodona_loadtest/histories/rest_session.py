"""A gateway's REST interface as a recorder uses it: JSON bodies as a user of curl sends them.

Owns: which call each operation is, and what each answer proves. The caller hands in how calls are
sent. A write without an answer is unsure. A commit without an answer is sent again, and a gateway
answers it as it would have answered the first time. A session has one transaction at a time. One
that is left behind is aborted when the next one begins.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from dodona._core.protocol.limits import TransactionLimits
from dodona._core.protocol.steps import Protocol
from dodona._core.writing.outcomes import PENDING, Outcome
from dodona._core.writing.transaction import TransactionBuffer
from dodona_loadtest.histories.shape import Row
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    TransactionAborted,
    Unavailable,
    error_from_wire,
)
from dodona_wire.types import Durability, LockType, Timestamp, TransactionId

COMMIT_ATTEMPTS_MAX: Final = 2
ROWS_PER_PAGE: Final = 10_000
FINAL_STATES: Final = ("committed", "aborted", "unknown")


class RestCall(NamedTuple):
    """One request."""

    method: str
    path: str
    body: dict[str, Any] | None
    label: str
    """The path as in the documents: for statistics."""


class RestAnswer(NamedTuple):
    """An answer. `status` is 0 if none came. `body` is the document, None if there was none."""

    status: int
    body: Any


Send = Callable[[RestCall], RestAnswer]
"""Waits for the answer; raises nothing."""


class RestSession:
    """A `RowSession` of one user. The protocols send as they run, and yield no steps."""

    def __init__(self, send: Send, instant_us: Callable[[], int]) -> None:
        self._send = send
        self._instant_us = instant_us
        self._open: tuple[Timestamp, str] | None = None
        self._unsure: tuple[Timestamp, str] | None = None

    # ---- timestamps and reads

    def generate_timestamp(self, count: int = 1) -> Protocol[Timestamp]:
        """Return the first of `count` timestamps."""
        answer = self._post("/v1/timestamps", {"count": count})
        yield from ()
        return Timestamp(answer["first"])

    def lookup_rows(
        self,
        path: str,
        keys: Sequence[Row],
        columns: Sequence[str] | None = None,
        *,
        keep_missing: bool,
        timestamp: Timestamp,
    ) -> Protocol[list[Any]]:
        """Look rows up, within the open transaction if the timestamp is its own."""
        body = {"table": path, "keys": list(keys), "keep_missing": keep_missing}
        body |= {} if columns is None else {"columns": list(columns)}
        yield from ()
        if self._open is not None and timestamp == self._open[0]:
            rows: list[Any] = self._post_within("lookup", body)["rows"]
        else:
            rows = self._post("/v1/rows/lookup", body | {"timestamp": timestamp})["rows"]
        return rows

    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        *,
        timestamp: Timestamp,
    ) -> Protocol[list[Row]]:
        """Read page after page, at the timestamp of the first."""
        yield from ()
        bounds: dict[str, Any] = {"lower": _bound(lower), "upper": _bound(upper)}
        body = {"table": path, "limit": ROWS_PER_PAGE, "timestamp": timestamp} | bounds
        rows: list[Row] = []
        while True:
            page = self._post("/v1/rows/select", body)
            rows += page["rows"]
            if page["next"] is None:
                return rows
            body["lower"] = page["next"]
            if page["timestamp"] is not None:
                body["timestamp"] = page["timestamp"]

    # ---- writes without a transaction

    def write_rows(
        self, path: str, rows: Sequence[Row], update: bool, durability: Durability
    ) -> Protocol[Timestamp | None]:
        body = {"table": path, "rows": list(rows), "update": update, "durability": durability}
        yield from ()
        return _timestamp(self._post("/v1/rows/insert", body, is_write=True))

    def erase_rows(
        self, path: str, keys: Sequence[Row], durability: Durability
    ) -> Protocol[Timestamp | None]:
        body = {"table": path, "keys": list(keys), "durability": durability}
        yield from ()
        return _timestamp(self._post("/v1/rows/delete", body, is_write=True))

    # ---- transactions

    def begin(self) -> Protocol[TransactionBuffer]:
        """Begin a transaction. The buffer stands for it, but its rows are at the gateway."""
        yield from ()
        self._give_up()
        begun_us = self._instant_us()
        answer = self._post("/v1/transactions", {})
        start = Timestamp(answer["start_timestamp"])
        self._open = (start, str(answer["transaction"]))
        limits = TransactionLimits()
        return TransactionBuffer(
            start, atomicity="full", durability="sync", begun_us=begun_us, limits=limits
        )

    def insert_rows(
        self,
        buffer: TransactionBuffer,
        path: str,
        rows: Sequence[Row],
        update: bool,
        aggregate: bool,
        lock_type: LockType,
    ) -> Protocol[None]:
        yield from ()
        how = {"update": update, "aggregate": aggregate, "lock_type": lock_type}
        self._post_within("insert", {"table": path, "rows": list(rows)} | how)

    def delete_rows(
        self, buffer: TransactionBuffer, path: str, keys: Sequence[Row]
    ) -> Protocol[None]:
        yield from ()
        self._post_within("delete", {"table": path, "keys": list(keys)})

    def lock_rows(
        self,
        buffer: TransactionBuffer,
        path: str,
        keys: Sequence[Row],
        locks: Sequence[str] | None,
        lock_type: LockType,
    ) -> Protocol[None]:
        yield from ()
        how = {"locks": None if locks is None else list(locks), "lock_type": lock_type}
        self._post_within("lock", {"table": path, "keys": list(keys)} | how)

    def commit(self, buffer: TransactionBuffer) -> Protocol[Timestamp | None]:
        """Commit. Raises CommitOutcomeUnknown if no answer to any of the attempts was final."""
        yield from ()
        assert self._open is not None, "a transaction is open"
        (start, name), self._open = self._open, None
        error: DodonaError | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            answer = self._send(_call(f"/v1/transactions/{name}/commit", None, name))
            if 200 <= answer.status < 300:
                return _timestamp(answer.body)
            is_again = error is not None
            error = _error_of(answer, is_write=True)
            if is_again and not isinstance(error, TransactionAborted):
                # The refusal of this attempt does not prove the outcome of the first.
                error = CommitOutcomeUnknown(error.message)
            if not isinstance(error, CommitOutcomeUnknown):
                raise error
        assert error is not None, "there was an attempt"
        self._unsure = start, name
        error.attributes["transaction"] = TransactionId(start)
        raise error

    def outcome(self, transaction: TransactionId, *, settle: bool = False) -> Protocol[Outcome]:
        """Return the outcome of the transaction whose commit was last unsure."""
        yield from ()
        assert self._unsure is not None, "a commit was unsure"
        start, name = self._unsure
        assert TransactionId(start) == transaction, "it is the one that was unsure"
        question = "?settle=true" if settle else ""
        call = RestCall(
            "GET", f"/v1/transactions/{name}{question}", None, "/v1/transactions/{transaction}"
        )
        found = self._answered(call)
        if found["state"] not in FINAL_STATES:
            return PENDING
        return Outcome(found["state"], found.get("timestamp"))

    def _give_up(self) -> None:
        """Abort it: the gateway would keep it until its lease ends, and it keeps only so many."""
        if self._open is not None:
            (_, name), self._open = self._open, None
            self._send(_call(f"/v1/transactions/{name}/abort", None, name))

    # ---- calls

    def _post_within(self, what: str, body: dict[str, Any]) -> Any:
        assert self._open is not None, "a transaction is open"
        name = self._open[1]
        return self._answered(_call(f"/v1/transactions/{name}/{what}", body, name))

    def _post(self, path: str, body: dict[str, Any], *, is_write: bool = False) -> Any:
        return self._answered(_call(path, body), is_write=is_write)

    def _answered(self, call: RestCall, *, is_write: bool = False) -> Any:
        """Return the answer's document. Raises the error in it."""
        answer = self._send(call)
        if 200 <= answer.status < 300:
            return answer.body
        raise _error_of(answer, is_write=is_write)


def _call(path: str, body: dict[str, Any] | None, name: str = "") -> RestCall:
    label = path.replace(name, "{transaction}") if name else path
    return RestCall("POST", path, body, label)


def _bound(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _timestamp(body: Any) -> Timestamp | None:
    timestamp: Timestamp | None = body["timestamp"]
    return timestamp


def _error_of(answer: RestAnswer, *, is_write: bool) -> DodonaError:
    """Return the caller's error. If no answer proves a write's outcome, it is unknown."""
    told = answer.body
    if isinstance(told, dict) and isinstance(told.get("kind"), str):
        attributes = dict(told.get("attributes") or {})
        if told["kind"] == CommitOutcomeUnknown.kind:
            # Here a transaction has its gateway's name; `commit` puts in its real id.
            attributes.pop("transaction", None)
        error = error_from_wire(told["kind"], str(told.get("detail", "")), attributes)
        # An error inside the gateway may have come after the commit.
        is_unsure = is_write and error.action == "stop"
        return CommitOutcomeUnknown(error.message) if is_unsure else error
    what = f"status {answer.status}" if answer.status else "no answer"
    return CommitOutcomeUnknown(what) if is_write else Unavailable(what)
