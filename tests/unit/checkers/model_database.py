"""A small database with switchable bugs: what the checkers are measured against.

Owns: a two-cell store with snapshot reads, row locks by group, two-phase commit and blind writes to
one cell, and sessions that use it in a seeded interleaving while their history is recorded. Some
rows hold lists, as text, to which transactions append; `appends` is their history in the words of
the list-append checker. Runs of odd seeds lock all lists that they read, and are serializable.
Without a bug it keeps every promise; each bug of `BUGS` breaks at least one. It shares no code with
the product.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from dodona_loadtest.checkers.appends import Append, AppendTransaction, Observe
from dodona_loadtest.histories.history import (
    Columns,
    Conflict,
    History,
    LatestRead,
    Lock,
    Read,
    RowKey,
    Scan,
    Transaction,
    Version,
    Write,
    visible,
)

TABLE: Final = "//model"
ROWS: Final = tuple(RowKey(TABLE, bytes([65 + index])) for index in range(6))
LISTS: Final = tuple(RowKey("//lists", bytes([97 + index])) for index in range(4))
CELLS: Final = 2
GROUPS: Final = (0, 1)
SESSIONS: Final = 5
STEPS: Final = 900
BLIND_RATE: Final = 0.2
LIST_RATE: Final = 0.5
UNSURE_RATE: Final = 0.1
LAG: Final = 12
NAMES_PER_RESERVE: Final = 20
LAST: Final = 1 << 62

BUGS: Final = (
    "stale_read",
    "dirty_read",
    "no_wait_on_prepared",
    "no_write_check",
    "weak_lock_ignored",
    "read_locks_not_checked",
    "strong_lock_forgotten",
    "main_ignores_groups",
    "half_commit",
    "split_timestamps",
    "early_timestamp",
    "lost_commit",
    "ghost_of_refused",
    "applied_twice",
    "duplicate_timestamp",
    "leftover_timestamp",
    "scan_misses_row",
    "scan_shows_deleted",
    "update_clobbers",
    "undead_columns",
    "false_conflict",
    "stale_latest",
    "wrong_commit_told",
    "commit_told_as_failure",
    "blind_does_not_wait",
    "blind_not_checked",
    "blind_conflict",
    "blind_at_its_name",
    "name_given_twice",
    "snapshot_per_cell",
    "lagging_cell",
    "unrepeatable_read",
    "retried_as_it_was",
    "element_doubled",
    "element_garbled",
    "elements_swapped",
)


Item = TypeVar("Item", Write, Lock)


@dataclass(slots=True)
class _Locks:
    """Of one row and group."""

    holder: Transaction | None = None
    readers: list[Transaction] = field(default_factory=list)
    last_modified: int = 0
    read_locked_until: int = 0


class Model:
    """The store. Every method is atomic; waiting is the caller's business."""

    def __init__(self, random: Random, bug: str) -> None:
        self.random = random
        self.bug = bug
        self.issued = 0
        self.leftover: list[int] = []
        self.reserve: list[int] = []
        rows = (*ROWS, *LISTS)
        self.versions: dict[RowKey, list[Version]] = {row: [] for row in rows}
        self.locks = {(row, group): _Locks() for row in rows for group in GROUPS}
        self.prepared: dict[RowKey, dict[str, tuple[int, Write]]] = {row: {} for row in rows}

    def is_buggy(self, bug: str, chance: float = 1.0) -> bool:
        return self.bug == bug and self.random.random() < chance

    def timestamp(self) -> int:
        if self.is_buggy("duplicate_timestamp", 0.05) and self.issued:
            return self.issued
        if self.bug == "leftover_timestamp":
            if self.leftover and self.random.random() < 0.1:
                return self.leftover.pop()
            self.issued += 1
            self.leftover.append(self.issued)
        self.issued += 1
        return self.issued

    def take_name(self) -> int:
        """For a blind write: a timestamp that was issued some time ago."""
        if not self.reserve:
            first, self.issued = self.issued + 1, self.issued + NAMES_PER_RESERVE
            self.reserve = list(range(self.issued, first - 1, -1))
        return self.reserve[-1] if self.is_buggy("name_given_twice", 0.1) else self.reserve.pop()

    def is_held(self, t: Transaction) -> bool:
        """Whether anybody holds what this blind write needs."""
        needed = [
            self.locks[write.row, group] for write in t.writes for group in _checked(write.groups)
        ]
        if self.bug == "blind_does_not_wait":
            return False
        return any(locks.holder is not None or locks.readers for locks in needed)

    def is_blocked(self, row: RowKey, at: int) -> bool:
        if self.bug in ("no_wait_on_prepared", "dirty_read"):
            return False
        return any(p <= at for p, _ in self.prepared[row].values())

    def read(self, row: RowKey, at: int) -> Columns | None:
        if self.bug == "snapshot_per_cell" and _cell_of(row):
            at = self.issued
        elif self.bug == "lagging_cell" and _cell_of(row):
            at -= LAG
        versions = [version for version in self.versions[row] if version.timestamp <= at]
        if versions and self.is_buggy("stale_read", 0.05):
            versions.pop()
        if self.bug == "dirty_read":
            versions += [Version(row, p, w.columns) for p, w in self.prepared[row].values()]
        return self._fold(versions)

    def _fold(self, versions: list[Version]) -> Columns | None:
        columns: dict[str, Any] | None = None
        for version in versions:
            if version.columns is None:
                columns = columns if self.bug == "undead_columns" else None
            else:
                base = {} if self.bug == "update_clobbers" else columns or {}
                columns = base | dict(version.columns)
        if columns is None or versions[-1].columns is None:
            return None
        return visible(columns)

    def scan(self, at: int) -> tuple[Read, ...]:
        reads = []
        for row in ROWS:
            columns = self.read(row, at)
            if columns is None and self.versions[row] and self.is_buggy("scan_shows_deleted", 0.2):
                columns = self._fold([v for v in self.versions[row] if v.columns is not None])
            if columns is not None and not self.is_buggy("scan_misses_row", 0.05):
                reads.append(Read(row, columns))
        return tuple(reads)

    def latest(self, row: RowKey) -> Columns | None:
        is_stale = self.is_buggy("stale_latest", 0.2)
        return self._fold(self.versions[row][: -1 if is_stale else None])

    def prepare(self, t: Transaction, cell: int, early: int) -> int | Conflict:
        """Take the locks of one cell. The prepare timestamp, or what was lost."""
        items: list[Write | Lock] = [*_of_cell(t.writes, cell), *_of_cell(t.locks, cell)]
        for item in items:
            conflict = self._conflict(t, item)
            if conflict is not None:
                return conflict
        p = early if self.bug == "early_timestamp" else self.timestamp()
        for write in _of_cell(t.writes, cell):
            self.prepared[write.row][t.name] = (p, write)
            for group in write.groups:
                self.locks[write.row, group].holder = t
        for lock in _of_cell(t.locks, cell):
            for group in lock.groups:
                self.locks[lock.row, group].readers.append(t)
        return p

    def _conflict(self, t: Transaction, item: Write | Lock) -> Conflict | None:
        if self.is_buggy("false_conflict", 0.02):
            return Conflict((item.row,), winner_start=self.random.randint(1, self.issued))
        if t.is_blind and self.bug != "blind_conflict":
            return None
        groups = item.groups
        checked = groups if self.bug == "main_ignores_groups" else _checked(groups)
        for group in checked:
            locks = self.locks[item.row, group]
            if locks.holder is not None:
                return Conflict((item.row,), winner_start=_id_of(locks.holder))
            if locks.last_modified > t.start and self._is_checked(item):
                return Conflict((item.row,), winner_commit=locks.last_modified)
            if isinstance(item, Write) and locks.readers:
                return Conflict((item.row,), winner_start=_id_of(locks.readers[0]))
            if isinstance(item, Write) and locks.read_locked_until > t.start:
                return Conflict((item.row,), winner_commit=locks.read_locked_until)
        return None

    def _is_checked(self, item: Write | Lock) -> bool:
        if isinstance(item, Write):
            return self.bug != "no_write_check"
        if self.bug == "read_locks_not_checked":
            return False
        return item.is_strong or self.bug != "weak_lock_ignored"

    def finish(self, t: Transaction, cell: int, commit: int | None) -> None:
        """Apply one cell's part (or drop it), and let its locks go."""
        for write in _of_cell(t.writes, cell):
            if self.prepared[write.row].pop(t.name, None) is None:
                continue
            for group in write.groups:
                self.locks[write.row, group].holder = None
                if commit is not None and not (t.is_blind and self.bug == "blind_not_checked"):
                    self.locks[write.row, group].last_modified = commit
            if commit is not None or (self.is_buggy("ghost_of_refused", 0.5)):
                self._apply(write, commit or self.timestamp())
        for lock in _of_cell(t.locks, cell):
            for group in lock.groups:
                locks = self.locks[lock.row, group]
                if t in locks.readers:
                    locks.readers.remove(t)
                    self._keep_read_time(locks, lock, commit)

    def _keep_read_time(self, locks: _Locks, lock: Lock, commit: int | None) -> None:
        if commit is not None and lock.is_strong and self.bug != "strong_lock_forgotten":
            locks.read_locked_until = max(locks.read_locked_until, commit)

    def _apply(self, write: Write, commit: int) -> None:
        if write.row in LISTS:
            write = write._replace(columns=_as_text(self._misspelt(_elements(write.columns))))
        self.versions[write.row].append(Version(write.row, commit, write.columns))
        if self.is_buggy("applied_twice", 0.05):
            self.versions[write.row].append(Version(write.row, self.timestamp(), write.columns))
        self.versions[write.row].sort(key=lambda version: version.timestamp)

    def _misspelt(self, elements: list[str]) -> list[str]:
        if self.is_buggy("element_doubled", 0.1):
            return [*elements, elements[-1]]
        if self.is_buggy("element_garbled", 0.1):
            return [*elements[:-1], elements[-1] + "?"]
        if self.is_buggy("elements_swapped", 0.2):
            return [*elements[:-2], *elements[-2:][::-1]]
        return elements


def _elements(columns: Columns | None) -> list[str]:
    return [] if columns is None else dict(columns)["list"].split(",")


def _as_text(elements: list[str]) -> Columns:
    return (("list", ",".join(elements)),)


def _of_cell(items: list[Item], cell: int) -> list[Item]:
    return [item for item in items if _cell_of(item.row) == cell]


def _id_of(t: Transaction) -> int:
    return t.names[-1] if t.is_blind else t.start


def _cell_of(row: RowKey) -> int:
    return row.key[0] % CELLS


def _checked(groups: tuple[int, ...]) -> tuple[int, ...]:
    return GROUPS if 0 in groups else (0, *groups)


class Run:
    """Sessions over one model, interleaved by a seed."""

    def __init__(self, seed: int, bug: str = "") -> None:
        assert bug == "" or bug in BUGS
        self.random = Random(seed)
        self.model = Model(Random(seed + 1), bug)
        self.history = History()
        self.is_serializable = seed % 2 == 1
        self.now_us = 0
        self.value = 0

    def execute(self) -> tuple[History, list[Version]]:
        sessions = {f"s{index}": self._session(f"s{index}") for index in range(SESSIONS)}
        for _ in range(STEPS):
            self.now_us += 1
            next(sessions[self.random.choice(list(sessions))])
        self._drain(list(sessions.values()))
        self._drain([self._look_at_all_lists()])
        return self.history, [v for versions in self.model.versions.values() for v in versions]

    def _drain(self, running: list[Iterator[bool]]) -> None:
        """Let all transactions end, in turns: one may wait for the locks of another."""
        while running:
            self.now_us += 1
            running = [session for session in running if not next(session)]

    def _session(self, name: str) -> Iterator[bool]:
        """Endless transactions; yields wherever others may come between, True after each."""
        while True:
            t = self.history.begin(name, self.now_us)
            yield False
            if self.random.random() < BLIND_RATE:
                yield from self._write_blind(t)
                yield True
                continue
            t.start, t.begun_us = self.model.timestamp(), self.now_us
            if self.random.random() < LIST_RATE:
                yield from self._append(t)
            else:
                yield from self._read(t)
                self._draw_writes(t)
            if t.is_writer:
                yield from self._commit(t)
            else:
                t.status, t.end_us = "ok", self.now_us
            yield True

    def _append(self, t: Transaction) -> Iterator[bool]:
        """Look at some lists, and add an element to some of these."""
        rows = self.random.sample(LISTS, self.random.randint(1, 3))
        again = [row for row in rows if self.random.random() < 0.2]
        for index, row in enumerate([*rows, *again]):
            is_skewed = self.model.bug == "unrepeatable_read" and index >= len(rows)
            at = self.model.issued if is_skewed else t.start
            yield from self._wait_for([row], at)
            t.reads.append(Read(row, self.model.read(row, at)))
            yield False
        count = 0 if self.random.random() < 0.3 else self.random.randint(1, len(rows))
        for row, columns in t.reads[:count]:
            self.value += 1
            t.writes.append(Write(row, _as_text([*_elements(columns), str(self.value)])))
        if self.is_serializable and t.writes:
            t.locks += [Lock(row, is_strong=True) for row in rows[count:]]

    def _look_at_all_lists(self) -> Iterator[bool]:
        t = self.history.begin("end", self.now_us)
        t.start, t.begun_us = self.model.timestamp(), self.now_us
        t.reads = [Read(row, self.model.read(row, t.start)) for row in LISTS]
        t.status, t.end_us = "ok", self.now_us
        yield True

    def _read(self, t: Transaction) -> Iterator[bool]:
        for row in self.random.sample(ROWS, 2):
            yield from self._wait_for([row], t.start)
            t.reads.append(Read(row, self.model.read(row, t.start)))
            yield False
        if self.random.random() < 0.3:
            yield from self._wait_for(ROWS, t.start)
            t.scans.append(Scan(TABLE, b"", b"\xff", self.model.scan(t.start)))
        if self.random.random() < 0.3:
            asked_us, row = self.now_us, self.random.choice(ROWS)
            yield from self._wait_for([row], LAST)
            read = Read(row, self.model.latest(row))
            self.history.latest_reads.append(LatestRead(asked_us, self.now_us, read))

    def _wait_for(self, rows: Sequence[RowKey], at: int) -> Iterator[bool]:
        """Until no row is prepared at or below the timestamp."""
        while any(self.model.is_blocked(row, at) for row in rows):
            yield False

    def _draw_writes(self, t: Transaction) -> None:
        rows = self.random.sample(ROWS, self.random.randint(0, 4))
        for row in rows:
            self.value += 1
            kind = self.random.random()
            if kind < 0.1:
                t.locks.append(Lock(row, self.random.random() < 0.5, (0,)))
            elif kind < 0.2:
                t.locks.append(Lock(row, self.random.random() < 0.5, (1,)))
            elif kind < 0.35:
                t.writes.append(Write(row, None, (0,)))
            elif kind < 0.5:
                t.writes.append(Write(row, (("a", self.value),), (0,)))
            elif kind < 0.7:
                t.writes.append(Write(row, (("b", self.value),), (1,)))
            else:
                t.writes.append(Write(row, (("a", self.value), ("b", self.value)), (0, 1)))

    def _write_blind(self, t: Transaction) -> Iterator[bool]:
        """What it writes lies in one cell, and is committed as soon as nobody holds it."""
        t.is_blind, t.commit_us, cell = True, self.now_us, self.random.randrange(CELLS)
        self._draw_writes(t)
        t.writes, t.locks = _of_cell(t.writes, cell), []
        if not t.writes:
            t.status, t.end_us = "fail", self.now_us
            return
        t.names.append(self.model.take_name())
        while self.model.is_held(t):
            yield False
        p = self.model.prepare(t, cell, self.model.issued)
        if isinstance(p, Conflict):
            t.status, t.end_us, t.conflict = "fail", self.now_us, p
            return
        is_early = self.model.bug == "blind_at_its_name"
        yield from self._finish(t, {cell: t.names[0] if is_early else p})

    def _commit(self, t: Transaction) -> Iterator[bool]:
        t.commit_us = t.commit_us or self.now_us
        cells = [cell for cell in range(CELLS) if any(_cell_of(row) == cell for row in t.rows)]
        prepares: dict[int, int] = {}
        early = [self.model.timestamp() for _ in range(CELLS)]
        for cell in cells:
            yield False
            p = self.model.prepare(t, cell, early[cell])
            if isinstance(p, Conflict):
                for prepared in prepares:
                    self.model.finish(t, prepared, None)
                yield from self._give_up(t, p)
                return
            prepares[cell] = p
        yield from self._finish(t, prepares)

    def _give_up(self, t: Transaction, conflict: Conflict) -> Iterator[bool]:
        if self.model.bug == "retried_as_it_was" and t.reads[0].row in LISTS:
            # At a new start and with what is read there, but with what it was to write.
            t.start, t.begun_us = self.model.timestamp(), self.now_us
            rows = [read.row for read in t.reads]
            yield from self._wait_for(rows, t.start)
            t.reads = [Read(row, self.model.read(row, t.start)) for row in rows]
            yield from self._commit(t)
        elif _has_value(t) and self.random.random() < UNSURE_RATE:
            t.status = "info"
        else:
            t.status, t.end_us, t.conflict = "fail", self.now_us, conflict

    def _finish(self, t: Transaction, prepares: dict[int, int]) -> Iterator[bool]:
        model, commit = self.model, max(prepares.values())
        is_lost = model.is_buggy("lost_commit", 0.1)
        for index, (cell, p) in enumerate(prepares.items()):
            yield False
            is_dropped = is_lost or (index > 0 and model.is_buggy("half_commit", 0.2))
            at = p if model.bug == "split_timestamps" else commit
            model.finish(t, cell, None if is_dropped else at)
        yield False
        t.end_us = self.now_us
        if (_has_value(t) or t.is_blind) and self.random.random() < UNSURE_RATE:
            t.status, t.end_us = "info", None
        elif model.is_buggy("commit_told_as_failure", 0.1):
            t.status = "fail"
        else:
            is_wrong = model.is_buggy("wrong_commit_told", 0.5)
            t.status, t.commit = "ok", min(prepares.values()) if is_wrong else commit


def _has_value(t: Transaction) -> bool:
    return any(write.columns is not None for write in t.writes)


def appends(history: History) -> list[AppendTransaction]:
    """What transactions on lists did. The element that one appends is the last it wrote."""
    return [
        AppendTransaction(t.name, t.session, t.status, t.begin_us, t.end_us, tuple(_operations(t)))
        for t in history.transactions
        if any(read.row in LISTS for read in t.reads)
    ]


def _operations(t: Transaction) -> Iterator[Append | Observe]:
    for row, columns in t.reads:
        yield Observe(row.key.decode(), tuple(_elements(columns)))
    for write in t.writes:
        yield Append(write.row.key.decode(), _elements(write.columns)[-1])
