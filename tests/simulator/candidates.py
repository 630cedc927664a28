"""Processes that compete for logs under virtual time, by a coordinator that loses answers.

Owns: what a candidate believes of its compares, and the proof that the beliefs are true. A belief
is checked against the history of the simulated etcd. `Mistake` plants what must not be done.
Must not import: any core but that of `dodona_replication`.
"""

import enum
from itertools import pairwise
from random import Random
from typing import Final

from dodona_replication.core.coordination import Answer, Applied, Compare, InDoubt, Refused
from dodona_replication.core.document import Document, Revisioned, owner_id
from dodona_wire.errors import Unavailable
from simulator.coordinator import CoordinatorPort, SimulatedEtcd
from simulator.world import World

LOG: Final = "cell-1"
REPLICAS: Final = ("a", "b", "c", "d")
COPIES_MIN: Final = 2
PAUSE_US_MAX: Final = 300_000


class Mistake(enum.Enum):
    """What a wrong candidate does. Each one breaks a rule."""

    OLD_REVISION_IS_DEFEAT = enum.auto()  # R17
    DOUBT_IS_VICTORY = enum.auto()  # R3
    ONE_ID_FOR_ALL = enum.auto()  # R2
    COMPARE_ON_NEWEST = enum.auto()  # R1: what is sent belongs to a document that is gone
    REFUSED_REPEAT_IS_DEFEAT = enum.auto()  # R17: the first of both may have been applied


class Truth:
    """What all candidates believe, and what of that is wrong."""

    def __init__(self, etcd: SimulatedEtcd) -> None:
        self._etcd = etcd
        self._owners: dict[int, Candidate] = {}
        self._defeats = set[tuple[str, int]]()
        self.faults: list[str] = []
        self.victory_count = 0
        self.settled_count = 0

    def won(self, candidate: "Candidate", compare: Compare, revision: int) -> None:
        self.victory_count += 1
        if Revisioned(compare.document, revision) not in self._etcd.history[LOG]:
            self.faults.append(f"{candidate.name} believes in what was never stored")
        holder = self._owners.setdefault(compare.document.epoch, candidate)
        if compare.document.epoch and holder is not candidate:
            self.faults.append(f"epoch {compare.document.epoch} has two owners")

    def lost(self, candidate: "Candidate", numbers: list[int]) -> None:
        """A candidate believes that its compare is never applied, however often it was sent."""
        self._defeats.update((candidate.name, it) for it in numbers)

    def check_end(self) -> None:
        """What can be said only of the whole history."""
        history = self._etcd.history[LOG]
        wrong = sorted(self._defeats & self._etcd.applied)
        self.faults += [f"call {it} was applied after all" for it in wrong]
        for old, new in pairwise(history):
            if not _follows(old.document, new.document):
                self.faults.append(f"{new.document} follows {old.document}")


def _follows(old: Document, new: Document) -> bool:
    if new.epoch == old.epoch:
        is_change = new.members != old.members or new.released
        return new.owner == old.owner and not old.released and is_change
    return new.epoch == old.epoch + 1 and new.members == old.members and not new.released


class Candidate:
    """One process. It takes over, changes the set, and releases, one compare at a time."""

    def __init__(
        self,
        world: World,
        port: CoordinatorPort,
        truth: Truth,
        mistake: Mistake | None = None,
    ) -> None:
        self.name = port.name
        self.mistake = mistake
        self._world = world
        self._random: Random = world.stream(f"candidate/{port.name}")
        self._port = port
        self._truth = truth
        start = bytes(8) if mistake is Mistake.ONE_ID_FOR_ALL else self._random.randbytes(8)
        name = "all" if mistake is Mistake.ONE_ID_FOR_ALL else port.name
        self.owner = owner_id(name, start)
        self._mine: Revisioned | None = None
        """The newest document that this process knows to be its own."""
        self._pending: Compare | None = None
        self._sent: list[int] = []
        """The calls by which it was sent."""
        self.seen: list[Revisioned] = []
        """What the watch showed."""
        self._rests = False
        port.watch(LOG, 0, self.seen.append)
        self._later()

    @property
    def is_in_doubt(self) -> bool:
        return self._pending is not None

    def rest(self) -> None:
        """Propose nothing more, but settle what is in doubt."""
        self._rests = True

    def _later(self) -> None:
        self._world.after(self._random.randrange(1, PAUSE_US_MAX), self._read)

    def _read(self) -> None:
        self._port.read(LOG, self._take)

    def _take(self, found: Revisioned | Unavailable | None) -> None:
        if isinstance(found, Unavailable):
            self._later()
        elif self._pending is not None:
            self._settle(self._pending, found)
        else:
            self._propose(found)

    def _propose(self, found: Revisioned | None) -> None:
        compare = None if self._rests else self._next(found)
        if compare is None:
            self._later()
            return
        self._pending, self._sent = compare, []
        self._send(compare)

    def _send(self, compare: Compare) -> None:
        number = self._port.compare(LOG, compare.revision, compare.document, self._hear)
        self._sent.append(number)

    def _next(self, found: Revisioned | None) -> Compare | None:
        random = self._random
        if found is None:
            return Compare(None, Document.initial(REPLICAS[:3], COPIES_MIN))
        document = found.document
        if self._mine is not None and self._mine == found:
            if random.random() < 0.2:
                return Compare(found.revision, document.release())
            members = random.sample(REPLICAS, random.randrange(COPIES_MIN, 4))
            if sorted(members) != sorted(document.members):
                return Compare(found.revision, document.with_members(members))
            return None
        if self._mine is not None and self.mistake is Mistake.COMPARE_ON_NEWEST:
            members = [it for it in REPLICAS if it not in self._mine.document.members]
            changed = self._mine.document.with_members([*members, *self._mine.document.members][:2])
            return Compare(found.revision, changed)
        self._mine = None
        is_tried = document.released or random.random() < 0.2
        return Compare(found.revision, document.take_over(self.owner)) if is_tried else None

    def _hear(self, answer: Answer | Unavailable) -> None:
        compare = self._pending
        assert compare is not None
        is_repeat = len(self._sent) > 1
        match answer:
            case Applied(revision):
                self._win(compare, revision)
            case Refused(current) if is_repeat:
                if self.mistake is Mistake.REFUSED_REPEAT_IS_DEFEAT:
                    self._lose()
                else:
                    self._settle(compare, current)
            case Unavailable() if is_repeat:
                self._later()
            case Refused() | Unavailable():
                self._lose()
            case InDoubt():
                if self.mistake is Mistake.DOUBT_IS_VICTORY:
                    self._win(compare, (compare.revision or 0) + 1)
                else:
                    self._later()

    def _settle(self, compare: Compare, seen: Revisioned | None) -> None:
        match compare.settle(seen):
            case Applied(revision):
                self._truth.settled_count += 1
                self._win(compare, revision)
            case InDoubt() if self.mistake is Mistake.OLD_REVISION_IS_DEFEAT:
                self._lose()
            case InDoubt():
                if self._random.random() < 0.5:
                    self._send(compare)
                else:
                    self._later()
            case _:
                self._truth.settled_count += 1
                self._pending = self._mine = None
                self._later()

    def _win(self, compare: Compare, revision: int) -> None:
        self._pending = None
        if compare.document.owner is not None:
            self._truth.won(self, compare, revision)
            is_open = not compare.document.released
            self._mine = Revisioned(compare.document, revision) if is_open else None
        self._later()

    def _lose(self) -> None:
        self._pending = None
        self._truth.lost(self, self._sent)
        self._later()
