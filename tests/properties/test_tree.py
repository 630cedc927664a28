"""The catalog's tree and its master transactions, against a model, with restarts at any point.

After each step everybody's view is compared, and the tree is built anew from the records so far;
any prefix of them has to give the state that there was then.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dodona.errors import DodonaError, InvalidRequest, NodeExists, NodeLocked, NodeNotFound
from dodona.types import TabletId, TreeTransactionId
from dodona_wire.messages.catalog import (
    CatalogRequest,
    GetTable,
    ListTables,
    MountTable,
    UnmountTable,
)
from dodona_wire.messages.tree import (
    AbortTreeTransaction,
    BeginTreeTransaction,
    CommitTreeTransaction,
    CopyNode,
    CreateDirectory,
    GetNode,
    LockNode,
    MoveNode,
    PingTreeTransaction,
    RemoveNode,
    SetNode,
)
from properties.tree_model import (
    EXISTS,
    INVALID,
    LOCKED,
    MISSING,
    NOBODY,
    Forest,
    Model,
    Path,
    Refused,
)
from suite.levels import examples
from unit.oracle.realm import Realm, create

TIMEOUT_MS = 10_000
NAMES = ("a", "b", "c")
THERE = st.integers(0, 11)
"""One of the paths that are there, by number."""
NEW = st.tuples(THERE, st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(tuple))
"""Names below one of these."""
ATTRIBUTES = st.sampled_from(["x", "y"])
VALUES = st.one_of(st.none(), st.integers(0, 3), st.just(["deep", {"er": True}]))
OWNERS = st.integers(0, 5)
ERRORS: dict[str, type[DodonaError]] = {
    MISSING: NodeNotFound,
    EXISTS: NodeExists,
    INVALID: InvalidRequest,
    LOCKED: NodeLocked,
}

Seen = dict[str, dict[str, Any]]


def text(path: Path) -> str:
    return "//" + "/".join(path)


def attribute_path(path: Path, name: str) -> str:
    return f"{text(path) if path else '/'}/@{name}"


def shown(forest: Forest) -> Seen:
    return {text(path): {"type": entry.kind, **entry.attributes} for path, entry in forest.items()}


def seen(realm: Realm, owner: int) -> Seen:
    transaction = TreeTransactionId(owner)
    found: Seen = {}

    def get(path: str) -> Any:
        return msgspec.msgpack.decode(realm.ask(GetNode(path, transaction)).value)

    def visit(path: Path, inside: Any) -> None:
        attributes = get(attribute_path(path, ""))
        known = ("type", "x", "y")
        found[text(path)] = {name: attributes[name] for name in known if name in attributes}
        assert attributes["path"] == (text(path) if path else "/")
        for name, below in (inside or {}).items():
            visit((*path, name), below)

    visit((), get("/"))
    return found


class TreeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.realm = Realm()
        self.model = Model()
        self.realm.beat(0)
        # After so many records, this is what everybody saw.
        self.history: dict[int, dict[int, Seen]] = {}

    @initialize()
    def begin_with_some_nodes_and_transactions(self) -> None:
        for path in (("a", "b"), ("c",)):
            self.create(0, (0, path), is_table=True, is_recursive=True)
        self.create(0, (1, ("a",)), is_table=False, is_recursive=False)
        for number in (0, 1, 0):
            self.begin(number)

    def owner(self, number: int) -> int:
        owners = [NOBODY, *self.model.open]
        return owners[number % len(owners)]

    def there(self, owner: int, number: int) -> Path:
        paths = sorted(self.model.seen_by(owner))
        return paths[number % len(paths)]

    def new(self, owner: int, place: tuple[int, Path]) -> Path:
        return (*self.there(owner, place[0]), *place[1])

    def both(self, request: CatalogRequest, modelled: Callable[[], None]) -> None:
        """The catalog refuses for the model's reason, and changes nothing then."""
        record_count = len(self.realm.records)
        try:
            modelled()
        except Refused as refused:
            try:
                self.realm.ask(request)
            except DodonaError as error:
                assert isinstance(error, ERRORS[refused.reason])  # noqa: PT017
                assert len(self.realm.records) == record_count
                return
            raise AssertionError(f"{request} should be {refused.reason}") from refused
        self.realm.ask(request)
        assert len(self.realm.records) <= record_count + 1

    @rule(number=OWNERS, path=NEW, is_table=st.booleans(), is_recursive=st.booleans())
    def create(
        self, number: int, path: tuple[int, Path], is_table: bool, is_recursive: bool
    ) -> None:
        owner = self.owner(number)
        self._create(owner, self.new(owner, path), is_table, is_recursive)

    def _create(self, owner: int, path: Path, is_table: bool, is_recursive: bool) -> None:
        transaction = TreeTransactionId(owner)
        request: CatalogRequest = CreateDirectory(
            text(path), is_recursive=is_recursive, transaction=transaction
        )
        if is_table:
            request = msgspec.structs.replace(create(text(path)), transaction=transaction)
        kind = "table" if is_table else "directory"
        self.both(request, lambda: self.model.create(owner, path, kind, is_recursive or is_table))

    @rule(number=OWNERS, place=THERE, is_recursive=st.booleans())
    def remove(self, number: int, place: int, is_recursive: bool) -> None:
        owner = self.owner(number)
        path = self.there(owner, place)
        self.both(
            RemoveNode(text(path), is_recursive, transaction=TreeTransactionId(owner)),
            lambda: self.model.remove(owner, path, is_recursive),
        )

    @rule(number=OWNERS, source=THERE, destination=NEW, is_recursive=st.booleans())
    def move(
        self, number: int, source: int, destination: tuple[int, Path], is_recursive: bool
    ) -> None:
        owner = self.owner(number)
        was, path = self.there(owner, source), self.new(owner, destination)
        self.both(
            MoveNode(text(was), text(path), is_recursive, TreeTransactionId(owner)),
            lambda: self.model.move(owner, was, path, is_recursive),
        )

    @rule(number=OWNERS, source=THERE, destination=NEW, is_recursive=st.booleans())
    def copy(
        self, number: int, source: int, destination: tuple[int, Path], is_recursive: bool
    ) -> None:
        owner = self.owner(number)
        was, path = self.there(owner, source), self.new(owner, destination)
        self.both(
            CopyNode(text(was), text(path), is_recursive, TreeTransactionId(owner)),
            lambda: self.model.copy(owner, was, path, is_recursive),
        )

    @rule(number=OWNERS, place=THERE, name=ATTRIBUTES, value=VALUES)
    def set(self, number: int, place: int, name: str, value: Any) -> None:
        owner = self.owner(number)
        path = self.there(owner, place)
        transaction = TreeTransactionId(owner)
        request: CatalogRequest = RemoveNode(attribute_path(path, name), transaction=transaction)
        if value is not None:
            packed = msgspec.msgpack.encode(value)
            request = SetNode(attribute_path(path, name), packed, transaction)
        self.both(request, lambda: self.model.set(owner, path, name, value))

    @precondition(lambda self: self.model.open)
    @rule(number=OWNERS, place=THERE, part=st.sampled_from(["", "/a", "/b", "@x", "exclusive"]))
    def lock(self, number: int, place: int, part: str) -> None:
        owner = list(self.model.open)[number % len(self.model.open)]
        path = self.there(owner, place)
        mode = "exclusive" if part == "exclusive" else "shared"
        part = "" if mode == "exclusive" else part
        request = LockNode(
            text(path),
            mode,  # type: ignore[arg-type]
            TreeTransactionId(owner),
            child=part[1:] if part.startswith("/") else None,
            attribute=part[1:] if part.startswith("@") else None,
        )
        self.both(request, lambda: self.model.lock(owner, path, mode, part))

    @rule(place=THERE)
    def mount_or_unmount(self, place: int) -> None:
        path = self.there(NOBODY, place)
        entry = self.model.forest.get(path)
        is_mounted = entry is not None and entry.identity in self.model.mounted
        request = UnmountTable(text(path)) if is_mounted else MountTable(text(path))
        self.both(request, lambda: self.model.toggle_mount(path))
        self.realm.serve(0)  # takes over the rows of copies, too

    @rule(number=OWNERS)
    def begin(self, number: int) -> None:
        if len(self.model.open) < 4:
            parent = self.owner(number)
            request = BeginTreeTransaction(TIMEOUT_MS, TreeTransactionId(parent))
            self.model.begin(self.realm.ask(request).transaction, parent)

    @precondition(lambda self: self.model.open)
    @rule(number=OWNERS)
    def commit(self, number: int) -> None:
        owner = list(self.model.open)[number % len(self.model.open)]
        self.model.commit(owner)
        self.realm.ask(CommitTreeTransaction(TreeTransactionId(owner)))

    @precondition(lambda self: self.model.open)
    @rule(number=OWNERS)
    def abort(self, number: int) -> None:
        owner = list(self.model.open)[number % len(self.model.open)]
        self.model.abort(owner)
        self.realm.ask(AbortTreeTransaction(TreeTransactionId(owner)))

    @precondition(lambda self: self.model.open)
    @rule(number=OWNERS)
    def expire_all_but_one_and_those_around_it(self, number: int) -> None:
        owner = list(self.model.open)[number % len(self.model.open)]
        self.realm.instant_us += TIMEOUT_MS * 1000 - 1
        self.realm.ask(PingTreeTransaction(TreeTransactionId(owner)))
        self.realm.instant_us += 1
        kept = self.model.kin(owner)
        for each in list(self.model.open):
            if each not in kept and each in self.model.open:
                self.model.abort(each)
        self.realm.beat(0)
        for each in kept:
            self.realm.ask(PingTreeTransaction(TreeTransactionId(each)))

    @rule()
    def restart(self) -> None:
        self.realm.restart()
        self.realm.beat(0)

    @rule(fraction=st.floats(0, 1))
    def any_prefix_of_the_records_is_what_was_seen_then(self, fraction: float) -> None:
        count = list(self.history)[int(fraction * (len(self.history) - 1))]
        other = Realm()
        for record in self.realm.records[:count]:
            other.append(record)
        other.restart()
        assert {owner: seen(other, owner) for owner in self.history[count]} == self.history[count]

    @invariant()
    def everybody_sees_what_the_model_says(self) -> None:
        expected = {owner: shown(self.model.seen_by(owner)) for owner in (NOBODY, *self.model.open)}
        assert {owner: seen(self.realm, owner) for owner in expected} == expected
        self.history[len(self.realm.records)] = expected
        tables = [path for path, entry in expected[NOBODY].items() if entry["type"] == "table"]
        assert self.realm.ask(ListTables("//")).paths == tuple(sorted(tables))
        assert [self.realm.ask(GetTable(path)).path for path in tables] == tables
        statistics = self.realm.catalog.statistics()
        assert statistics.node_count == len(expected[NOBODY])
        assert statistics.tree_transaction_count == len(self.model.open)
        if not self.model.open:
            assert (statistics.lock_count, statistics.table_count) == (0, len(tables))

    @invariant()
    def exactly_what_nobody_needs_is_gone(self) -> None:
        """By the records, of all ids: those of tables that only a transaction sees are needed."""
        state = self.realm.state()
        tables = [*state.tables, *(node.table for _, node in state.nodes if node.table)]
        tablets = [tablet for table in tables for tablet in table.tablets]
        needed = {tablet.tablet for tablet in tablets}
        needed |= {source.tablet for tablet in tablets for source in tablet.sources}
        ids = [TabletId(number) for number in range(1, state.last_id + 1)]
        found = self.realm.beat(0, stored=ids).dropped
        assert found == tuple(it for it in ids if it not in needed)


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
