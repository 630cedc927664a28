"""The tree of the catalog: directories, tables, attributes, and master transactions on them. Pure.

Owns: the calls that are the same inside and outside master transactions, and the end of a master
transaction. Also the checks that the client can make better than the master: schemas from users,
pivot keys, values.
If the master does not answer, the client repeats two kinds of calls: those that change nothing, and
those whose repeat changes no more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import msgspec

from dodona._core.catalog.like import Columns, check_same, schema_for
from dodona._core.catalog.master_transaction import TIMEOUT_MS, Lease
from dodona._core.catalog.tables import TableInfo, describe, pivots_of
from dodona._core.protocol.arguments import check_flag, check_path, check_text, pack_map, pack_value
from dodona._core.protocol.context import NAMING_ATTRIBUTES, Context, error_of
from dodona._core.protocol.retry import has_time
from dodona._core.protocol.steps import MASTER, Calls, Protocol
from dodona._core.writing.transaction import TransactionState
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    TableExists,
    TransactionNotFound,
    Unavailable,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import CreateTable, Done, GetTable, Table
from dodona_wire.messages.families import Reply
from dodona_wire.messages.tree import (
    AbortTreeTransaction,
    BeginTreeTransaction,
    CommitTreeTransaction,
    CopyNode,
    CreateDirectory,
    GetNode,
    ListNodes,
    LockMode,
    LockNode,
    MoveNode,
    NodeExists,
    NodeLock,
    NodeNames,
    NodeValue,
    PingTreeTransaction,
    RemoveNode,
    SetNode,
    TreeTransaction,
)
from dodona_wire.shown import shown
from dodona_wire.types import NO_TREE_TRANSACTION, Atomicity, TreeTransactionId

LOCK_MODES: Final = get_args(LockMode)

Wanted = TypeVar("Wanted")
Names = list[str]
"""A list of names. In a class with a method `list`, the word `list` is not the type."""


class TreeSession:
    """The calls of the tree inside one master transaction. Without a `lease` they are outside of
    all."""

    def __init__(self, context: Context, lease: Lease | None = None) -> None:
        self._context = context
        self._lease = lease

    # ---- tables

    def create_table(
        self,
        path: str,
        schema: Columns | None = None,
        atomicity: Atomicity = "full",
        pivot_keys: Sequence[Sequence[Any]] | None = None,
        tablet_count: int | None = None,
        mount: bool = False,
        attributes: Mapping[str, Any] | None = None,
        like: Any = None,
        keys: Sequence[str] | None = None,
        if_not_exists: bool = False,
    ) -> Protocol[None]:
        """Create a table, which is not mounted. Raises SchemaViolation, InvalidRequest, and
        NodeExists if the path is in use. With `if_not_exists`, raises TableExists only if the table
        that is there differs."""
        check_path(path)
        check_flag(if_not_exists, "if_not_exists")
        if mount:
            raise InvalidRequest(
                "A master transaction can't mount tables. Mount the table after the commit."
            )
        parsed = schema_for(schema, like, keys)
        if atomicity not in ("full", "none"):
            raise InvalidRequest(f'Atomicity must be "full" or "none", not {shown(atomicity)}')
        pivots = pivots_of(parsed, pivot_keys, tablet_count)
        packed = pack_map(attributes, "attributes")
        request = CreateTable(path, parsed.columns, atomicity, pivots, packed, self._id())
        try:
            table = yield from self._ask(request, Table)
        except TableExists:
            if not if_not_exists:
                raise
            table = yield from self._get(path)
            check_same(describe(table), parsed, atomicity)
        if self._lease is None:
            self._context.routing.forget(path)
            self._context.routing.learn(table)

    def remove_table(self, path: str) -> Protocol[None]:
        """Remove a table. Raises InvalidRequest, and TableNotFound also if the path is that of a
        directory."""
        yield from self.get_table(path)
        yield from self.remove(path)

    def get_table(self, path: str) -> Protocol[TableInfo]:
        """Return what the master knows of the table now. Raises TableNotFound if there is none."""
        table = yield from self._get(path)
        if self._lease is None:
            self._context.routing.learn(table)
        return describe(table)

    def _get(self, path: str) -> Protocol[Table]:
        return self._ask_patiently(GetTable(check_path(path), self._id()), Table)

    # ---- nodes

    def create_directory(
        self,
        path: str,
        attributes: Mapping[str, Any] | None = None,
        recursive: bool = False,
        ignore_existing: bool = False,
    ) -> Protocol[None]:
        """Create a directory. Raises NodeExists, and NodeNotFound if there is no directory above
        it."""
        packed = pack_map(attributes, "attributes")
        check_flag(recursive, "recursive")
        check_flag(ignore_existing, "ignore_existing")
        check_path(path)
        request = CreateDirectory(path, packed, recursive, ignore_existing, self._id())
        # With attributes, a repeated call may find a directory that another client made with
        # others.
        ask = self._ask_patiently if ignore_existing and not attributes else self._ask
        yield from ask(request, Done)

    def remove(self, path: str, recursive: bool = False, force: bool = False) -> Protocol[None]:
        """Remove a table or directory. Raises NodeNotFound, and InvalidRequest for a directory that
        is not empty."""
        check_flag(recursive, "recursive")
        check_flag(force, "force")
        request = RemoveNode(check_path(path), recursive, force, self._id())
        yield from self._change(path, request)

    def move(self, source: str, destination: str, recursive: bool = False) -> Protocol[None]:
        """Move a table or directory. Raises NodeNotFound, NodeExists if the new path is in use, and
        InvalidTabletState if a table is not unmounted."""
        check_flag(recursive, "recursive")
        check_path(destination)
        request = MoveNode(check_path(source), destination, recursive, self._id())
        yield from self._change(source, request)

    def copy(self, source: str, destination: str, recursive: bool = False) -> Protocol[None]:
        """Copy a table or directory. Raises NodeNotFound, NodeExists if the new path is in use, and
        InvalidTabletState if a table is not unmounted."""
        check_flag(recursive, "recursive")
        check_path(destination)
        request = CopyNode(check_path(source), destination, recursive, self._id())
        yield from self._ask(request, Done)

    def list(self, path: str) -> Protocol[Names]:
        """Return the names in a directory, sorted. Raises NodeNotFound."""
        request = ListNodes(check_path(path), self._id())
        names = yield from self._ask_patiently(request, NodeNames)
        return [*names.names]

    def exists(self, path: str) -> Protocol[bool]:
        """Return whether there is such a node or attribute."""
        request = NodeExists(check_path(path), self._id())
        reply = yield from self._ask_patiently(request, NodeValue)
        return msgspec.msgpack.decode(reply.value, type=bool)

    def get(self, path: str) -> Protocol[Any]:
        """Return the value that is at the path. Raises NodeNotFound if there is none."""
        reply = yield from self._ask_patiently(GetNode(check_path(path), self._id()), NodeValue)
        return msgspec.msgpack.decode(reply.value)

    def set(self, path: str, value: Any) -> Protocol[None]:
        """Set the value that is at the path. Raises NodeNotFound if there is no such node,
        InvalidRequest."""
        request = SetNode(check_path(path), pack_value(value, "value"), self._id())
        try:
            yield from self._ask(request, Done)
        finally:
            self._context.routing.forget_settings(path.partition("/@")[0])

    # ---- master transactions

    def begin(
        self, timeout_ms: int = TIMEOUT_MS, title: str = ""
    ) -> Protocol["MasterTransactionSession"]:
        """Begin a master transaction. If this session has one, the new one is nested in it. The
        master ends it if no ping comes within `timeout_ms`. Raises Unavailable, InvalidRequest."""
        if type(timeout_ms) is not int or timeout_ms <= 0:
            raise InvalidRequest(f"A timeout is a positive number of ms, not {shown(timeout_ms)}")
        check_text(title, "title")
        request = BeginTreeTransaction(timeout_ms, self._id(), title)
        began_us = self._context.instant_us()
        # If the reply was lost, the first transaction does nothing, and ends by its timeout.
        begun = yield from self._ask_patiently(request, TreeTransaction)
        return MasterTransactionSession(self._context, Lease(begun, self._lease, began_us))

    def resume(self, begun: TreeTransaction) -> "MasterTransactionSession":
        """Return the calls inside a transaction that another process began, and pings."""
        return MasterTransactionSession(
            self._context, Lease(begun, None, self._context.instant_us())
        )

    # ---- requests to the master

    def _id(self) -> TreeTransactionId:
        """Return the id of the transaction that calls run in. Raises TransactionClosed,
        TransactionNotFound."""
        if self._lease is None:
            return NO_TREE_TRANSACTION
        self._lease.check_open()
        return self._lease.id

    def _change(self, path: str, request: Any) -> Protocol[None]:
        """Ask for a change after which the cached routes at the path and below it are wrong."""
        try:
            yield from self._ask(request, Done)
        finally:
            self._context.routing.forget(path)

    def _ask(self, request: Any, wanted: type[Wanted]) -> Protocol[Wanted]:
        """Ask the master once, since a repeat would be one more change."""
        return (yield from self._guard(self._context.ask_master(request, wanted)))

    def _ask_patiently(self, request: Any, wanted: type[Wanted]) -> Protocol[Wanted]:
        patience = self._context.patience()
        asking = self._context.ask_master_patiently(request, wanted, patience)
        return (yield from self._guard(asking))

    def _guard(self, asking: Protocol[Wanted]) -> Protocol[Wanted]:
        """Notice that the master has ended the transaction."""
        try:
            return (yield from asking)
        except TransactionNotFound as error:
            if self._lease is None:
                raise
            self._lease.lose()
            raise self._lease.lost_error() from error


class MasterTransactionSession(TreeSession):
    """The calls inside one master transaction, and its end."""

    def __init__(self, context: Context, lease: Lease) -> None:
        super().__init__(context, lease)
        self.lease = lease

    def lock(
        self,
        path: str,
        mode: LockMode = "exclusive",
        child: str | None = None,
        attribute: str | None = None,
    ) -> Protocol[int]:
        """Lock a node, and return the id of the node. Raises NodeNotFound, InvalidRequest, and
        NodeLocked if another transaction holds a lock that conflicts."""
        if mode not in LOCK_MODES:
            raise InvalidRequest(
                f"a lock's mode is one of {', '.join(LOCK_MODES)}, not {shown(mode)}"
            )
        if child is not None:
            check_text(child, "child")
        if attribute is not None:
            check_text(attribute, "attribute")
        request = LockNode(check_path(path), mode, self._id(), child, attribute)
        lock = yield from self._ask_patiently(request, NodeLock)
        return lock.node

    def ping(self) -> Protocol[None]:
        """Show the master that this client is alive. Raises TransactionNotFound, TransactionClosed,
        Unavailable."""
        request = PingTreeTransaction(self._id())
        self.lease.put_off_ping(self._context.instant_us())
        yield from self._ask_patiently(request, Done)

    def commit(self) -> Protocol[None]:
        """Commit the transaction. The request is sent again while the master does not answer. A
        second commit changes nothing, since the master remembers the first one.
        After CommitOutcomeUnknown, call this again to learn the outcome. After any other error
        nothing was committed. The transaction is then still active, unless the master has ended
        it."""
        lease = self.lease
        is_in_doubt = lease.is_in_doubt
        request = CommitTreeTransaction(lease.id if is_in_doubt else self._id())
        lease.state, lease.is_in_doubt = TransactionState.COMMITTING, False
        try:
            yield from self._ask_to_commit(request, is_in_doubt)
        finally:  # also if the caller is interrupted
            lease.is_in_doubt = lease.state is TransactionState.COMMITTING
        self._context.routing.forget("//")  # which tables it moved is not known here

    def _ask_to_commit(self, request: CommitTreeTransaction, is_in_doubt: bool) -> Protocol[None]:
        patience = self._context.patience()
        while True:
            (reply,) = yield Calls(((MASTER, request),))
            if isinstance(reply, Done):
                break
            error = _refusal_of(reply)
            is_in_doubt |= (
                type(error) is Unavailable and error.attributes.get("is_sent") is not False
            )
            is_final = not isinstance(error, Unavailable)
            if is_final or not (yield from has_time(patience, error)):
                raise self._uncommitted(error, is_in_doubt)
        self.lease.state = TransactionState.COMMITTED

    def _uncommitted(self, error: DodonaError, is_in_doubt: bool) -> DodonaError:
        is_lost = isinstance(error, TransactionNotFound)
        if is_in_doubt and not is_lost:  # the first request may still arrive
            named = {it: error.attributes[it] for it in NAMING_ATTRIBUTES if it in error.attributes}
            return CommitOutcomeUnknown(
                f"The outcome of master transaction {self.lease.id} is unknown. Commit the "
                f"transaction again. Reason: {error.message}",
                transaction=self.lease.id,
                **named,
            )
        self.lease.state = TransactionState.ACTIVE
        if not is_lost:
            return error
        self.lease.lose()
        return self.lease.lost_error()

    def abort(self) -> Protocol[None]:
        """Abort the transaction. Repeats do no harm. Raises Unavailable, and TransactionClosed
        after a commit."""
        if self.lease.state is TransactionState.ABORTED:
            return
        request = AbortTreeTransaction(self._id())
        self.lease.state = TransactionState.ABORTED  # no more pings: at worst it times out
        yield from self._context.ask_master_patiently(request, Done, self._context.patience())

    def leave(self, has_failed: bool) -> Protocol[None]:
        """End a `with` block: commit, or abort if the block has failed. The abort is tried once. If
        the abort fails, no error is raised, since the error of the block says more."""
        lease = self.lease
        if has_failed and lease.is_open:
            lease.state = TransactionState.ABORTED
            yield Calls(((MASTER, AbortTreeTransaction(lease.id)),))
        elif not has_failed and (lease.is_open or lease.is_lost):
            yield from self._commit_or_abort()

    def _commit_or_abort(self) -> Protocol[None]:
        try:
            yield from self.commit()
        except DodonaError:
            yield from self.leave(has_failed=True)
            raise


def _refusal_of(reply: Reply) -> DodonaError:
    if isinstance(reply, Failure):
        return error_of(reply)
    return Unavailable(f"The master answered a commit with {type(reply).__name__}.")
