"""Owners of one log, one after the other, and the messages that they send to one replica.

Owns: `History`, which draws what happens from a seed, and says what the replica has broken.
Messages arrive late, in another order, twice, or never. The replica crashes between any two steps.
A new owner's log is the log of an earlier owner up to some entry, at least to the last acknowledged
one: another replica, which is not simulated, has that.

Only the newest owner acknowledges, and nothing before the first entry of its epoch (R11): what the
replica said that it has stored, which it must keep then. Or what others have stored: then the
replica is not in the set, and falls behind.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from dodona_replication.core.entries import make_entry
from dodona_replication.core.records import LogState
from dodona_replication.core.tail import Tail
from dodona_wire.messages.replicas import (
    AlignLog,
    BeginLog,
    EntriesStored,
    Entry,
    EpochTooOld,
    FenceLog,
    FetchEntries,
    LogEntries,
    LogFenced,
    LogMisaligned,
    LogRequest,
    StoreEntries,
)
from unit.replication.replicas import LOG, Rig, Store, request

SENT_MAX = 12
"""Messages under way: the oldest ones are lost."""


def records_of(index: int, epoch: int, size_bytes: int) -> bytes:
    """Of an entry: nothing else is stored under its name."""
    text = f"{index} of {epoch}. ".encode()
    return (text * (size_bytes // len(text) + 1))[:size_bytes]


class Owner:
    """What one owner knows. `epochs` has the epoch of each entry of its log, from index 1 on."""

    def __init__(self, epoch: int, recovered: list[int]) -> None:
        self.epoch = epoch
        self.epochs = [*recovered, epoch]
        self.opening_index = len(self.epochs)
        self.is_fenced = False
        self.cut_index = 0

    def epoch_at(self, index: int) -> int:
        return self.epochs[index - 1] if index else 0

    def entry(self, index: int) -> Entry:
        epoch = self.epoch_at(index)
        size_bytes = 10_000 if index % 7 == 3 else 20
        return make_entry(index, epoch, records_of(index, epoch, size_bytes))


class History:
    """One run. Broken promises are failed assertions."""

    def __init__(
        self,
        seed: int,
        store: Store | None = None,
        reopen: Callable[[], Store] | None = None,
    ) -> None:
        """`reopen` returns the store as the next process finds it. By default, it is the same."""
        self._random = Random(seed)
        self._rig = Rig(store)
        self._reopen = reopen
        self._owners: dict[int, Owner] = {}
        self._sent: list[tuple[int, LogRequest]] = []
        self._asked: dict[int, tuple[int, LogRequest]] = {}
        self._fenced_epoch = 0
        """The highest epoch whose fence was answered."""
        self._acknowledged: list[int] = []
        """The epochs of the entries that are acknowledged."""
        self._kept_index = 0
        """The last of them that the replica has to keep, unless it is cut."""
        self._checkpoint = 0
        """The last acknowledged entry that a log may begin with."""
        self._checkpoints = {1}
        self._take_over()

    def run(self, step_count: int) -> None:
        """Take so many steps, and check the replica after each."""
        steps = [self._send, self._send, self._deliver, self._deliver, self._deliver]
        steps += [self._flush, self._flush, self._write, self._move_checkpoint]
        steps += [self._acknowledge_elsewhere]
        for _ in range(step_count):
            chance = self._random.random()
            if chance < 0.03:
                self._take_over()
            elif chance < 0.06:
                self._crash()
            else:
                self._random.choice(steps)()
            self._hear_answers()
            self._check()

    @property
    def _newest(self) -> Owner:
        return self._owners[max(self._owners)]

    # What happens

    def _take_over(self) -> None:
        recovered: list[int] = []
        if self._owners:
            old = self._random.choice(list(self._owners.values()))
            least = len(self._acknowledged)
            if old.epochs[:least] == self._acknowledged and self._random.random() < 0.5:
                recovered = old.epochs[: self._random.randint(least, len(old.epochs))]
            else:
                recovered = [*self._acknowledged]
        epoch = max(self._owners, default=0) + 1
        self._owners[epoch] = Owner(epoch, recovered)
        self._post(epoch, request(FenceLog, epoch))

    def _write(self) -> None:
        owner = self._random.choice(list(self._owners.values()))
        owner.epochs.append(owner.epoch)

    def _acknowledge_elsewhere(self) -> None:
        owner = self._newest
        if self._random.random() < 0.3:
            least = max(owner.opening_index, len(self._acknowledged))
            self._acknowledged = owner.epochs[: self._random.randint(least, len(owner.epochs))]

    def _move_checkpoint(self) -> None:
        if self._acknowledged and self._random.random() < 0.3:
            index = self._random.randint(1, len(self._acknowledged))
            self._checkpoint = max(self._checkpoint, index)
            self._checkpoints.add(self._checkpoint)

    def _post(self, epoch: int, body: LogRequest) -> None:
        self._sent = [*self._sent, (epoch, body)][-SENT_MAX:]

    def _send(self) -> None:
        owner = self._random.choice([*self._owners.values(), self._newest])
        first = self._random.randint(1, len(owner.epochs))
        last = min(len(owner.epochs), first + self._random.randint(-1, 2))
        kind = self._random.random()
        if not owner.is_fenced or kind < 0.1:
            self._post(owner.epoch, request(FenceLog, owner.epoch))
        elif kind < 0.2:
            self._post(owner.epoch, request(FetchEntries, owner.epoch, first, 50))
        elif kind < 0.3 and self._checkpoint:
            self._send_begin(owner)
        else:
            self._post(owner.epoch, self._store_request(owner, first, last))

    def _store_request(self, owner: Owner, first: int, last: int) -> LogRequest:
        entries = tuple([owner.entry(index) for index in range(first, last + 1)])
        previous = (first - 1, owner.epoch_at(first - 1))
        cut = self._checkpoint if owner is self._newest else 0
        return request(StoreEntries, owner.epoch, *previous, entries, cut, owner.epoch_at(cut))  # type: ignore[no-any-return]

    def _deliver(self) -> None:
        if not self._sent:
            return
        at = self._random.randrange(len(self._sent))
        epoch, body = self._sent[at]
        if self._random.random() < 0.6:  # else another copy is under way
            del self._sent[at]
        self._asked[self._rig.ask(body)] = epoch, body

    def _flush(self) -> None:
        self._rig.flush()

    def _crash(self) -> None:
        self._asked.clear()
        self._rig.crash(None if self._reopen is None else self._reopen())

    # What owners make of the answers

    def _hear_answers(self) -> None:
        for number, (epoch, body) in list(self._asked.items()):
            if number in self._rig.answers:
                del self._asked[number]
                self._hear(self._owners[epoch], body, self._rig.answers.pop(number))

    def _hear(self, owner: Owner, body: LogRequest, answer: Any) -> None:
        if isinstance(answer, EpochTooOld):
            return
        assert owner.epoch >= self._fenced_epoch, "R4: an old owner was served"
        match answer:
            case LogFenced():
                owner.is_fenced = True
                self._fenced_epoch = owner.epoch
                assert self._durable.epoch >= owner.epoch, "R4: the fence is not durable"
                self._check_report(answer)
                self._align(owner, answer)
            case LogMisaligned():
                self._align(owner, answer)
            case EntriesStored(index=index):
                self._note_stored(owner, index)
            case LogEntries(entries=entries):
                stored = self._entries()
                assert all(stored.get(it.index) == it for it in entries), "R7: not durable"

    def _check_report(self, report: LogFenced) -> None:
        last = max([index for _, index in report.last_indexes], default=0)
        assert last <= self._durable.tail.last_index, "R7: reported before it is durable"

    def _align(self, owner: Owner, report: LogFenced | LogMisaligned) -> None:
        """Bring the replica to the owner's log, from the last entry that both have on."""
        starts, first = [], report.first_index
        for epoch, last in report.last_indexes:
            starts.append((epoch, first))
            first = last + 1
        tail = Tail(report.first_index, report.epoch_before, starts, first - 1)
        common = [
            index
            for index in range(tail.first_index, min(tail.last_index, len(owner.epochs)) + 1)
            if tail.epoch_at(index) == owner.epoch_at(index)
        ]
        if common:
            at = common[-1]
        elif tail.first_index == 1 and self._checkpoint <= 1:
            at = 0
        elif self._checkpoint:
            self._send_begin(owner)
            return
        else:
            return
        if self._random.random() < 0.5:  # else it is lost
            self._post(owner.epoch, request(AlignLog, owner.epoch, at, owner.epoch_at(at)))
        if at < len(owner.epochs):
            self._post(owner.epoch, self._store_request(owner, at + 1, len(owner.epochs)))

    def _send_begin(self, owner: Owner) -> None:
        first = self._checkpoint
        last = min(len(owner.epochs), first + self._random.randint(0, 2))
        if last >= first and owner.epochs[:first] == self._acknowledged[:first]:
            entries = tuple([owner.entry(index) for index in range(first, last + 1)])
            before = owner.epoch_at(first - 1)
            self._post(owner.epoch, request(BeginLog, owner.epoch, before, entries))

    def _note_stored(self, owner: Owner, index: int) -> None:
        if index < owner.opening_index:
            return
        tail = self._durable.tail
        assert tail.last_index >= index, "R7: stored before it is durable"
        if owner is self._newest:
            self._kept_index = max(self._kept_index, index)
            if len(self._acknowledged) < index:
                self._acknowledged = owner.epochs[:index]

    # What must be so at any time

    @property
    def _durable(self) -> LogState:
        return self._rig.store.logs().get(LOG, LogState())

    def _entries(self) -> dict[int, Entry]:
        tail = self._durable.tail
        page = self._rig.store.read(LOG, tail.first_index, tail.last_index, 1 << 40, 1 << 40)
        return {it.index: it for it in page}

    def _check(self) -> None:
        tail = self._durable.tail
        assert self._durable.epoch >= self._fenced_epoch, "R4: an epoch was forgotten"
        has = [tail.epoch_at(it) for it in range(tail.first_index, tail.last_index + 1)]
        if has:
            writer = self._owners[tail.last_epoch]
            expected = writer.epochs[tail.first_index - 1 : tail.last_index]
            assert has == expected, "R9: entries of two logs"
            assert tail.epoch_before == writer.epoch_at(tail.first_index - 1)
        kept = self._acknowledged[tail.first_index - 1 : self._kept_index]
        assert has[: len(kept)] == kept, "an acknowledged entry is lost"
        if tail.first_index > 1:
            checkpoint = self._acknowledged[tail.first_index - 1 : tail.first_index]
            assert checkpoint == has[:1] != [], "R24: cut without the checkpoint"
            assert tail.first_index in self._checkpoints, "R24: cut elsewhere"
        if self._random.random() < 0.1:
            found = self._entries()
            assert list(found) == [*range(tail.first_index, tail.last_index + 1)]
            for index, entry in found.items():
                assert entry == self._owners[entry.epoch].entry(index)


def run_histories(seeds: range, step_count: int = 250) -> None:
    """Run these seeds over a store without a disk."""
    for seed in seeds:
        History(seed).run(step_count)
