"""Find the order in which each list grew, as its readers saw it, and what that order demands.

Owns: the checks of one list at a time (INCOMPATIBLE-ORDER, G1A, G1B, DUPLICATE, GARBAGE, INTERNAL,
LOST-APPEND). Also owns which transactions count as committed, and the dependencies between them.

The longest list that any reader saw is the order of its key. Appends that no reader saw come behind
all that were seen. No more is known about them. That is exact if every writer also observed the
list it appended to, as a client that reads, adds and writes does. If other writers left several
unseen appends on one key, their order is unknown. Then this module says nothing about them.

Each promise is flagged once a key, because a broken list is read again and again.
Must not import: any core, or networkx.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from dodona_loadtest.checkers.appends import Append, AppendTransaction, Observe
from dodona_loadtest.checkers.violation import Promise, Violation

Elements = tuple[Hashable, ...]


class Dependency(NamedTuple):
    """`after` depends on `before`: transactions, by their number in the history.

    - ww: `before` put `old` into the list, and `after` put `new` behind it
    - wr: `after` saw `old`, which `before` had put there
    - rw: `before` saw the list up to `old`, and `after` put `new` behind that
    """

    kind: Literal["ww", "wr", "rw"]
    before: int
    after: int
    key: Hashable
    old: Hashable = None
    new: Hashable = None


class Unseen(NamedTuple):
    """`readers` saw the whole list, up to `old`, and so nothing that `writers` put behind it."""

    key: Hashable
    old: Hashable
    readers: list[int]
    writers: list[tuple[int, Hashable]]


class _Run(NamedTuple):
    """Neighbours in a list that one transaction put there."""

    writer: int
    elements: list[Hashable]


@dataclass(slots=True)
class _List:
    """All that is known about one key."""

    writers: dict[Hashable, int] = field(default_factory=dict)
    appended: dict[int, list[Hashable]] = field(default_factory=dict)
    observed: dict[int, Elements] = field(default_factory=dict)
    longest: Elements = ()
    is_forked: bool = False
    seen: set[Hashable] = field(default_factory=set)
    runs: list[_Run] = field(default_factory=list)
    cuts: dict[int, int] = field(default_factory=lambda: {0: 0})
    """The number of runs in a list of this length. A length that cuts a run in two is missing."""


class Orders:
    """The orders of lists: `violations`, `is_committed` of each transaction, dependencies."""

    def __init__(self, transactions: Sequence[AppendTransaction], *, keeps_real_time: bool) -> None:
        self.violations: list[Violation] = []
        self.write_writes: list[Dependency] = []
        self.write_reads: list[Dependency] = []
        self.read_writes: list[Dependency] = []
        self.unseen: list[Unseen] = []
        self._transactions = transactions
        self._flagged: set[tuple[Promise, Hashable]] = set()
        self._lists: dict[Hashable, _List] = {}
        self._register()
        self.is_committed = [t.status == "ok" for t in transactions]
        for key, it in self._lists.items():
            self._order(key, it)
        for key, it in self._lists.items():
            self._check_runs(key, it)
            self._link_writers(key, it)
            self._link_readers(key, it)
            if not it.is_forked:
                self._link_unseen(key, it, keeps_real_time)

    def _flag(self, promise: Promise, key: Hashable, text: str) -> None:
        if (promise, key) not in self._flagged:
            self._flagged.add((promise, key))
            self.violations.append(Violation(promise, text))

    def _name(self, number: int) -> str:
        return self._transactions[number].name

    def _list(self, key: Hashable) -> _List:
        it = self._lists.get(key)
        if it is None:
            it = self._lists[key] = _List()
        return it

    def _register(self) -> None:
        for number, t in enumerate(self._transactions):
            for operation in t.operations:
                it = self._list(operation.key)
                if isinstance(operation, Append):
                    element = operation.element
                    assert element not in it.writers, f"{t.name} repeats {_show(operation)}"
                    it.writers[element] = number
                    it.appended.setdefault(number, []).append(element)
                else:
                    self._note_observed(number, it, operation)

    def _note_observed(self, number: int, it: _List, operation: Observe) -> None:
        """Note what a transaction saw. It must see one state of a list, at any time."""
        first = it.observed.setdefault(number, operation.elements)
        if len(operation.elements) > len(it.longest):
            it.longest = operation.elements
        if first != operation.elements:
            text = f"{self._name(number)} saw {operation.key} as {first} and {operation.elements}"
            self._flag("INTERNAL", operation.key, text)
            it.seen.update(operation.elements)

    def _order(self, key: Hashable, it: _List) -> None:
        """Read the runs off the longest list, and find the lists that do not fit it."""
        self._split(key, it)
        for number, elements in it.observed.items():
            if it.longest[: len(elements)] != elements:
                it.is_forked = True
                text = f"{self._name(number)} saw {key} as {elements}, another as {it.longest}"
                self._flag("INCOMPATIBLE-ORDER", key, text)
                it.seen.update(elements)
        it.seen.update(it.longest)
        for element in it.seen:
            writer = it.writers.get(element)
            if writer is not None:
                self.is_committed[writer] = True

    def _split(self, key: Hashable, it: _List) -> None:
        counted = set()
        for length, element in enumerate(it.longest, 1):
            writer = it.writers.get(element)
            if writer is not None and element not in counted:
                if it.runs and it.runs[-1].writer == writer:
                    it.runs[-1].elements.append(element)
                    del it.cuts[length - 1]
                else:
                    it.runs.append(_Run(writer, [element]))
            elif writer is not None:
                self._flag("DUPLICATE", key, f"{key} has {element} twice: {it.longest}")
            it.cuts[length] = len(it.runs)
            counted.add(element)

    def _check_runs(self, key: Hashable, it: _List) -> None:
        for element in sorted(it.seen - it.writers.keys(), key=repr):
            self._flag("GARBAGE", key, f"{key} was seen with {element}, which nobody appended")
        failed = {
            it.writers[element]
            for element in it.seen & it.writers.keys()
            if self._transactions[it.writers[element]].status == "fail"
        }
        for writer in sorted(failed):
            text = (
                f"{key} was seen with {it.appended[writer]} of {self._name(writer)}, which failed"
            )
            self._flag("G1A", key, text)
        for run in it.runs:
            whole = it.appended[run.writer]
            if run.elements != whole:
                text = f"{key} was seen with {run.elements}, of {self._name(run.writer)}'s {whole}"
                self._flag("G1B", key, text)

    def _link_writers(self, key: Hashable, it: _List) -> None:
        for (before, old), (after, new) in pairwise(it.runs):
            self.write_writes.append(Dependency("ww", before, after, key, old[-1], new[0]))

    def _link_readers(self, key: Hashable, it: _List) -> None:
        for reader, elements in it.observed.items():
            if reader in it.appended and not set(it.appended[reader]).isdisjoint(elements):
                own = it.appended[reader]
                self._flag("INTERNAL", key, f"{self._name(reader)} saw {own} of its own in {key}")
            elif it.is_forked and it.longest[: len(elements)] != elements:
                continue
            elif len(elements) not in it.cuts:
                text = f"{self._name(reader)} saw {key} as {elements}, in the midst of a writer's"
                self._flag("G1B", key, text)
            else:
                self._link_reader(key, it, reader, it.cuts[len(elements)])

    def _link_reader(self, key: Hashable, it: _List, reader: int, cut: int) -> None:
        old = None
        if cut:
            writer, written = it.runs[cut - 1]
            old = written[-1]
            self.write_reads.append(Dependency("wr", writer, reader, key, old))
        if cut < len(it.runs) and it.runs[cut].writer != reader:
            writer, written = it.runs[cut]
            self.read_writes.append(Dependency("rw", reader, writer, key, old, written[0]))

    def _link_unseen(self, key: Hashable, it: _List, keeps_real_time: bool) -> None:
        """Flag unseen appends as lost if a reader looked later. Put the others at the end."""
        looked_us = max((self._transactions[i].begin_us for i in it.observed), default=0)
        writers = []
        for number, elements in it.appended.items():
            if not self.is_committed[number] or not it.seen.isdisjoint(elements):
                continue
            t = self._transactions[number]
            told_us = t.end_us if t.status == "ok" and keeps_real_time else None
            if told_us is not None and told_us < looked_us:
                text = f"{t.name} appended {elements} to {key}, and nobody ever saw it"
                self._flag("LOST-APPEND", key, text)
            else:
                writers.append(number)
        readers = [i for i, elements in it.observed.items() if elements == it.longest]
        self._order_unseen(key, it, readers, writers)

    def _order_unseen(
        self, key: Hashable, it: _List, readers: list[int], writers: list[int]
    ) -> None:
        """Order the unseen writers. One that saw the known end of the list comes first behind it.
        There can be only one such writer."""
        old = it.longest[-1] if it.longest else None
        updaters = sorted(set(readers) & set(writers))
        if len(updaters) > 1:
            names = " and ".join(self._name(number) for number in updaters)
            self._flag("G-SINGLE", key, f"{names} all saw {key} as {it.longest} and appended to it")
            return
        behind = [(number, it.appended[number][0]) for number in writers]
        if it.runs:
            last, written = it.runs[-1]
            self._link_behind(key, last, written[-1], behind)
        if updaters:
            first = updaters[0]
            own = it.appended[first]
            self._link_behind(key, first, own[-1], [it for it in behind if it[0] != first])
            readers, behind = [it for it in readers if it != first], [(first, own[0])]
        if readers and behind:
            self.unseen.append(Unseen(key, old, readers, behind))

    def _link_behind(
        self, key: Hashable, last: int, old: Hashable, writers: list[tuple[int, Hashable]]
    ) -> None:
        links = (Dependency("ww", last, writer, key, old, new) for writer, new in writers)
        self.write_writes.extend(links)


def _show(operation: Append) -> str:
    return f"the append of {operation.element} to {operation.key}"
